"""Recovery by trained channels against D_K: where it sets in, and for which objective.

    python book/results/phase_transitions.py

writes phase_transitions.parquet beside this file. Finished cells are kept in
_build/results: stopped and started again, it goes on where it was.
"""

from pathlib import Path

import torch

from manyheads import capacity, sweep

HERE = Path(__file__).resolve().parent

# (num_vertices, d_model): heads, seeds, key_dims for all three objectives, and
# those that only the threshold objective needs.
CURVES = {
    (32, 16): (1, 12, range(1, 10), ()),
    (64, 32): (1, 12, range(1, 10), ()),
    (128, 64): (1, 8, range(2, 9), ()),
    (32, 8): (4, 12, range(1, 10), (11, 13, 16)),
    (64, 16): (4, 12, range(1, 8), (9, 11, 13, 16)),
    (128, 32): (2, 8, range(3, 10), (12, 16, 20)),
    (64, 8): (8, 12, range(1, 9), (10, 12, 16)),
    (128, 16): (8, 8, range(2, 8), (9, 12)),
}
# The same for the margin objective alone, at the largest sizes.
LARGE = {
    (256, 128): (1, 5, range(3, 8)),
    (256, 64): (1, 5, range(7, 13)),
    (256, 32): (4, 5, range(5, 11)),
}
# Budgets that training is known to manage, or, at the end, not to.
KNOWN = [(256, 64, 1, 16), (256, 64, 2, 8), (256, 32, 4, 12), (128, 16, 8, 8), (512, 64, 2, 16),
         (256, 64, 1, 12), (256, 32, 4, 9), (128, 16, 1, 64)]


def recovery(objective, num_vertices, d_model, heads, key_dim, seeds, steps):
    """What training reaches for permutations and embeddings of the seeds 0, ..., seeds - 1."""
    graphs = [capacity.permutation_graph(num_vertices, seed=seed) for seed in range(seeds)]
    embeddings = torch.stack(
        [capacity.gaussian_embeddings(num_vertices, d_model, seed=seed) for seed in range(seeds)])
    training = capacity.train_channel(graphs, embeddings, heads=heads, key_dim=key_dim,
                                      objective=objective, steps=steps, seed=0)
    return {
        "total_key_dim": heads * key_dim,
        "certified": [found.recovers_every_context for found in training.certificates],
        "rows": [round(rows, 4) for rows in training.row_recovery],
        "f1": [round(found.f1, 4) for found in training.certificates],
    }


def full_grid():
    """About 25 minutes on one core."""
    grid = []
    for (m, d), (heads, seeds, key_dims, wide) in CURVES.items():
        for objective in ("margin", "softmax", "threshold"):
            tried = [*key_dims, *(wide if objective == "threshold" else ())]
            grid += [cell(objective, m, d, heads, key_dim, seeds) for key_dim in tried]
    for (m, d), (heads, seeds, key_dims) in LARGE.items():
        grid += [cell("margin", m, d, heads, key_dim, seeds) for key_dim in key_dims]
    grid += [cell("margin", m, d, heads, key_dim, 5) for m, d, heads, key_dim in KNOWN]
    return list({tuple(one.values()): one for one in grid}.values())  # each once


def cell(objective, num_vertices, d_model, heads, key_dim, seeds):
    """One training of all seeds."""
    return dict(objective=objective, num_vertices=num_vertices, d_model=d_model, heads=heads,
                key_dim=key_dim, seeds=seeds, steps=1000)


def small_grid():
    """The part of the full grid that the chapter runs itself: seconds."""
    return [one for one in full_grid() if one["num_vertices"] == 32 and one["d_model"] == 16
            and one["objective"] == "margin"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    frame = sweep.run(recovery, full_grid(), engine="processes",
                      cache=HERE.parents[1] / "_build" / "results")
    sweep.save(frame, HERE / "phase_transitions.parquet",
               command="python book/results/phase_transitions.py")
