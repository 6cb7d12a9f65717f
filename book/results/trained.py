"""How small a budget training finds, over a few sizes and splits.

    python book/results/trained.py

writes trained.parquet beside this file. Finished cells are kept in
_build/results: stopped and started again, it goes on where it was.
"""

from pathlib import Path

import torch

from manyheads import capacity, sweep

HERE = Path(__file__).resolve().parent

# For each (num_vertices, d_model), the splits (heads, key_dim) that are tried.
SPLITS = {
    (128, 64): [(1, 6), (1, 5), (1, 4)],
    (256, 128): [(1, 7), (1, 6), (1, 5)],
    (256, 64): [(1, 16), (2, 8), (1, 12), (2, 6), (3, 4), (1, 10), (2, 5), (1, 9)],
    (512, 128): [(1, 12), (2, 6), (1, 10), (1, 9)],
    (256, 32): [(4, 12), (4, 9), (3, 11), (4, 8), (3, 10)],
    (512, 64): [(2, 16), (2, 14), (3, 9), (2, 12)],
    (128, 16): [(8, 8), (8, 5), (6, 6), (8, 4), (6, 5)],
}
SEEDS = 3


def certified_runs(num_vertices, d_model, heads, key_dim, steps):
    """Of `SEEDS` permutations, how many training stores so that every context is recovered."""
    seeds = range(SEEDS)
    graphs = [capacity.permutation_graph(num_vertices, seed=seed) for seed in seeds]
    embeddings = torch.stack(
        [capacity.gaussian_embeddings(num_vertices, d_model, seed=seed) for seed in seeds])
    training = capacity.train_channel(
        graphs, embeddings, heads=heads, key_dim=key_dim, steps=steps, seed=0)
    certified = [found.recovers_every_context for found in training.certificates]
    return {"total_key_dim": heads * key_dim, "runs": SEEDS, "certified": sum(certified)}


def full_grid():
    """Ten minutes on one core."""
    return [dict(num_vertices=m, d_model=d, heads=heads, key_dim=key_dim, steps=2000)
            for (m, d), splits in SPLITS.items() for heads, key_dim in splits]


if __name__ == "__main__":
    torch.set_num_threads(1)
    frame = sweep.run(certified_runs, full_grid(), cache=HERE.parents[1] / "_build" / "results")
    sweep.save(frame, HERE / "trained.parquet", command="python book/results/trained.py")
