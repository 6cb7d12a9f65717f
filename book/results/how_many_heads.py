"""Which split of D_K training likes best, and how far that is a matter of capacity.

    python book/results/how_many_heads.py

writes four files beside this one: how_many_heads.parquet (least budgets), how_many_maps.parquet
(recovery at given budgets), how_many_one.parquet (one head against the exact answer) and
how_many_least.parquet (least numbers of heads). Finished cells are kept in _build/results:
stopped and started again, it goes on where it was.
"""

from pathlib import Path

import torch
from phase_transitions import recovery

from manyheads import capacity, sweep

HERE = Path(__file__).resolve().parent
HEADS = (1, 2, 3, 4, 6, 8, 12, 16)
RECOVERY = {"margin": "certified", "softmax": "rows", "threshold": "f1"}

# (num_vertices, d_model) of the map of the best h, and of the test of rules made from it.
SIZES = [(16, 8), (24, 8), (32, 8), (48, 8), (64, 8), (24, 12), (48, 12), (72, 12), (96, 12),
         (32, 16), (64, 16), (96, 16), (128, 16), (64, 32), (128, 32)]
HELD_OUT = [(20, 10), (30, 10), (40, 10), (50, 10), (60, 10), (80, 10), (40, 20), (80, 20),
            (120, 20), (72, 24), (96, 24)]
# (num_vertices, d_model): the budgets of a heat map; and the one budget looked at closely.
MAPS = {(64, 16): (4, 8, 12, 16, 24, 32, 48), (128, 16): (16, 24, 32, 48, 64, 96),
        (128, 32): (8, 12, 16, 24, 32, 48)}
FIXED = {(64, 16): 12, (128, 16): 48, (128, 32): 12}
# d_model: sizes around the most that one head can carry (chapter one-head), and of the map.
ONE_HEAD = {8: (*range(12, 33, 2), 48, 64), 12: (*range(24, 53, 4), 72, 96),
            16: (32, *range(40, 61, 5), 64, 65, 70, 75, 80, 96, 128), 32: (64, 128)}
LEAST_HEADS = [(24, 8), (32, 8), (40, 8), (48, 8), (64, 8), (48, 12), (72, 12)]


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


def least_heads(num_vertices, d_model, seeds, steps):
    """Per run, the fewest heads of full width: with training, and by first fit.

    First fit gives each edge to the first head that can take it too, decided exactly; a
    head may score the edges of others as it likes.
    """
    graphs, embeddings = problems(num_vertices, d_model, seeds)
    trained, heads, left = [None] * seeds, 0, list(range(seeds))
    while left:
        heads += 1
        training = capacity.train_channel(
            [graphs[run] for run in left], embeddings[left], heads=heads, key_dim=d_model,
            steps=steps, seed=left)
        for run, found in zip(left, training.certificates):
            if found.recovers_every_context:
                trained[run] = heads
        left = [run for run in left if trained[run] is None]
    return {"trained": trained, "first_fit": [len(first_fit(graph, x.double()))
                                              for graph, x in zip(graphs, embeddings)]}


def first_fit(graph, embeddings):
    """Blocks of edges, each of which one head can carry while the others are free.

    Thresholds are positive, so that the heads can be scaled to share one.
    """
    def carried(block):
        rest = [edge for edge in edges if edge not in block]
        free = capacity.RelationalGraph(graph.num_vertices, rest)
        head = capacity.single_head_feasible(graph, embeddings, free=free)
        return head.feasible and head.channel.threshold > 0

    blocks, edges = [], graph.edges.tolist()
    for edge in edges:
        home = next((block for block in blocks if carried([*block, edge])), None)
        if home is None:
            blocks.append([edge])
        else:
            home.append(edge)
    return blocks


def full_grid():
    """The map of the best h and the sizes held out: half an hour on one core."""
    wanted = [(objective, m, d, 8 if objective == "margin" and m < 128 else 4)
              for objective in RECOVERY for m, d in SIZES]
    wanted += [("margin", *size, 4) for size in HELD_OUT]
    return [dict(objective=objective, num_vertices=m, d_model=d, heads=heads, seeds=seeds,
                 steps=600)
            for objective, m, d, seeds in wanted for heads in HEADS]


def map_grid():
    """The heat maps, then all objectives at one budget: a quarter of an hour on one core."""
    wanted = [("margin", *size, heads, total, 5) for size, budgets in MAPS.items()
              for total in budgets for heads in (1, 2, 4, 8, 16) if total % heads == 0]
    wanted += [(objective, *size, heads, total, 12) for objective in RECOVERY
               for size, total in FIXED.items()
               for heads in HEADS if total % heads == 0]
    return [dict(objective=objective, num_vertices=m, d_model=d, heads=heads,
                 key_dim=total // heads, seeds=seeds, steps=1000)
            for objective, m, d, heads, total, seeds in wanted]


def one_head_grid():
    """About eight minutes on one core."""
    return [dict(objective=objective, num_vertices=m, d_model=d, seeds=8, steps=2000)
            for objective in RECOVERY for d, sizes in ONE_HEAD.items() for m in sizes]


def least_grid():
    """About four minutes on one core."""
    return [dict(num_vertices=m, d_model=d, seeds=8, steps=2000) for m, d in LEAST_HEADS]


def small_grid():
    """The part of the map that the chapter runs itself: seconds."""
    return [one for one in full_grid() if one["num_vertices"] == 16 and one["heads"] <= 2
            and one["objective"] == "margin"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    cache = HERE.parents[1] / "_build" / "results"
    for function, grid, name in ((one_head, one_head_grid(), "how_many_one"),
                                 (least_heads, least_grid(), "how_many_least"),
                                 (recovery, map_grid(), "how_many_maps"),
                                 (least_budget, full_grid(), "how_many_heads")):
        frame = sweep.run(function, grid, engine="processes", cache=cache)
        sweep.save(frame, HERE / f"{name}.parquet",
                   command="python book/results/how_many_heads.py")
