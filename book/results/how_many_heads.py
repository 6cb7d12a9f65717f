"""Which split of D_K training likes best, over many sizes; and one head against the exact answer.

    python book/results/how_many_heads.py

writes how_many_heads.parquet, how_many_maps.parquet and how_many_one.parquet beside
this file. Finished cells are kept in _build/results: stopped and started again, it
goes on where it was.
"""

from pathlib import Path

import torch
from phase_transitions import cell, recovery

from manyheads import capacity, sweep

HERE = Path(__file__).resolve().parent
HEADS = (1, 2, 3, 4, 6, 8, 12, 16)
RECOVERY = {"margin": "certified", "softmax": "rows", "threshold": "f1"}

# (num_vertices, d_model) of the map of the best h.
SIZES = [(16, 8), (24, 8), (32, 8), (48, 8), (64, 8), (24, 12), (48, 12), (72, 12), (96, 12),
         (32, 16), (64, 16), (96, 16), (128, 16), (64, 32), (128, 32)]
# (num_vertices, d_model): the budgets of a heat map.
MAPS = {(64, 16): (4, 8, 12, 16, 24, 32, 48), (128, 16): (16, 24, 32, 48, 64, 96),
        (128, 32): (8, 12, 16, 24, 32, 48)}
# d_model: sizes around the most that one head can carry (chapter one-head).
ONE_HEAD = {8: range(12, 33, 2), 12: range(24, 53, 4), 16: range(40, 81, 5)}


def problems(num_vertices, d_model, seeds):
    """Random permutations and random embeddings of the seeds 0, ..., seeds - 1."""
    graphs = [capacity.permutation_graph(num_vertices, seed=seed) for seed in range(seeds)]
    return graphs, torch.stack(
        [capacity.gaussian_embeddings(num_vertices, d_model, seed=seed) for seed in range(seeds)])


def least_budget(objective, num_vertices, d_model, heads, seeds, steps):
    """Per run, the least D_K in so many heads with which training recovers its graph.

    A head wider than d_model is no more than one of width d_model, and ten times
    m'/d_model is far more than training needs.
    """
    graphs, embeddings = problems(num_vertices, d_model, seeds)
    most = min(d_model, max(2, -(-10 * num_vertices // (d_model * heads))))
    found = capacity.capacity_threshold(
        graphs, embeddings, heads=heads, most=d_model if heads == 1 else most,
        objective=objective, recovery=RECOVERY[objective], steps=steps, progress=False)
    return {"total_key_dim": found.total_key_dim.tolist()}


def one_head(objective, num_vertices, d_model, seeds, steps):
    """Per run, whether one head can recover the graph, and whether training makes it."""
    graphs, embeddings = problems(num_vertices, d_model, seeds)
    by_row = objective == "softmax"
    training = capacity.train_channel(graphs, embeddings, heads=1, key_dim=d_model,
                                      objective=objective, steps=steps, seed=0)
    exact = [capacity.single_head_feasible(graph, x.double(),
                                           criterion="row" if by_row else "global").feasible
             for graph, x in zip(graphs, embeddings)]
    trained = ([rows == 1 for rows in training.row_recovery] if by_row else
               [found.recovers_every_context for found in training.certificates])
    return {"feasible": exact, "trained": trained}


def full_grid():
    """The map of the best h: about 20 minutes on one core."""
    return [dict(objective=objective, num_vertices=m, d_model=d, heads=heads, seeds=4, steps=600)
            for objective in RECOVERY for m, d in SIZES for heads in HEADS]


def map_grid():
    """The heat maps: ten minutes on one core."""
    return [cell("margin", m, d, heads, total // heads, 5) for (m, d), budgets in MAPS.items()
            for total in budgets for heads in (1, 2, 4, 8, 16) if total % heads == 0]


def one_head_grid():
    """About three minutes on one core."""
    return [dict(objective=objective, num_vertices=m, d_model=d, seeds=8, steps=2000)
            for objective in ("margin", "softmax") for d, sizes in ONE_HEAD.items()
            for m in sizes]


def small_grid():
    """The part of the map that the chapter runs itself: seconds."""
    return [one for one in full_grid() if one["num_vertices"] == 16 and one["heads"] <= 4
            and one["objective"] == "margin"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    cache = HERE.parents[1] / "_build" / "results"
    for function, grid, name in ((one_head, one_head_grid(), "how_many_one"),
                                 (recovery, map_grid(), "how_many_maps"),
                                 (least_budget, full_grid(), "how_many_heads")):
        frame = sweep.run(function, grid, engine="processes", cache=cache)
        sweep.save(frame, HERE / f"{name}.parquet",
                   command="python book/results/how_many_heads.py")
