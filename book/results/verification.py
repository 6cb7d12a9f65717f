"""The least D_K with which block channels recover every context, over many sizes.

    python book/results/verification.py

writes verification.parquet beside this file. Finished cells are kept in
_build/results: stopped and started again, it goes on where it was.
"""

from pathlib import Path

import torch

from manyheads import capacity, sweep

HERE = Path(__file__).resolve().parent


def relational_graph(graphs, num_vertices, degree, seed):
    """A graph of the named family with m' = num_vertices · degree edges."""
    num_edges = num_vertices * degree
    if graphs == "permutation":
        return capacity.permutation_graph(num_vertices, seed=seed)
    if graphs == "regular":
        return capacity.regular_graph(num_vertices, degree, seed=seed)
    if graphs == "random":
        return capacity.random_graph(num_vertices, num_edges, seed=seed)
    return capacity.power_law_graph(num_vertices, num_edges, exponent=2.5, seed=seed)


def instance(key_dim, graphs, num_vertices, degree, d_model, heads, decorrelation, seed):
    """Graph, embeddings and channel. Three seeds, so that no two draws are the same."""
    graph = relational_graph(graphs, num_vertices, degree, 3 * seed)
    embeddings = capacity.gaussian_embeddings(
        num_vertices, d_model, seed=3 * seed + 1, dtype=torch.float64)
    channel = capacity.block_channel(
        graph, embeddings, heads=heads, key_dim=key_dim, decorrelation=decorrelation,
        signatures="frame", seed=3 * seed + 2)
    return graph, embeddings, channel


def certificate(key_dim, **cell):
    """The certificate of one channel."""
    graph, embeddings, channel = instance(key_dim, **cell)
    return capacity.certify(channel, graph, embeddings)


def least_key_dim(least_margin, **cell):
    """A key_dim with a larger certified margin while key_dim - 1 has none, by bisection.

    With `least_margin` 0 that is recovery of every context. Bisection starts between
    0 and the block size, from which on signatures are orthonormal and more width
    changes nothing; NaN if that is not enough.
    """
    def enough(found):
        return found.margin - 2 * found.error_bound > least_margin

    num_edges = cell["num_vertices"] * cell["degree"]
    fails, succeeds = 0, -(-num_edges // cell["heads"])
    found = certificate(succeeds, **cell)
    if not enough(found):
        return {"num_edges": num_edges, "total_key_dim": float("nan"), "margin": found.margin}
    while succeeds - fails > 1:
        middle = (fails + succeeds) // 2
        tried = certificate(middle, **cell)
        if enough(tried):
            succeeds, found = middle, tried
        else:
            fails = middle
    total_key_dim = float(cell["heads"] * succeeds)
    return {"num_edges": num_edges, "total_key_dim": total_key_dim, "margin": found.margin}


def cells(num_vertices, d_model, seeds, steps=range(2, 9), graphs="permutation", degree=1,
          decorrelation="pinv", least_margin=0.0):
    """Cells whose heads are m'/d_model times powers of sqrt(2)."""
    ratio = num_vertices * degree / d_model
    heads = sorted({min(max(1, round(ratio * 2 ** (k / 2))), num_vertices * degree) for k in steps})
    return sweep.product(
        graphs=[graphs], num_vertices=[num_vertices], degree=[degree], d_model=[d_model],
        decorrelation=[decorrelation], least_margin=[least_margin], heads=heads,
        seed=range(seeds))


def full_grid():
    """About 2900 cells; ten minutes on one core."""
    grid = []
    for num_vertices, seeds, dimensions in [
        (64, 12, (16, 32, 64)),
        (128, 12, (16, 32, 64, 128)),
        (192, 12, (64,)),
        (256, 12, (16, 32, 64, 128)),
        (384, 8, (64, 128)),
        (512, 8, (32, 64, 128, 256)),
        (768, 5, (64, 128, 256)),
        (1024, 5, (64, 128, 256, 512)),
    ]:
        for d_model in dimensions:
            grid += cells(num_vertices, d_model, seeds)
            if 64 <= d_model < num_vertices:
                grid += cells(num_vertices, d_model, min(seeds, 5), least_margin=0.1)
    for num_vertices, d_model in [(256, 128), (256, 64), (512, 128), (512, 64)]:
        grid += cells(num_vertices, d_model, 3, range(-2, 13))  # the whole U
        for decorrelation in ("none", "ridge"):
            grid += cells(num_vertices, d_model, 3, range(0, 11), decorrelation=decorrelation)
    for num_vertices in (128, 192, 384, 768, 1024):  # with 256 and 512: a line in m'/d_model
        grid += cells(num_vertices, 64, 3, decorrelation="none")
    grid += cells(1024, 64, 5, range(9, 11))
    for graphs in ("regular", "random", "power-law"):
        for degree in (2, 4):
            grid += cells(256, 128, 4, range(2, 13), graphs=graphs, degree=degree)
    grid += cells(256, 128, 4, graphs="regular", degree=8)
    return list({tuple(cell.values()): cell for cell in grid}.values())  # each once


def small_grid():
    """The part of the full grid that the chapter runs itself: seconds."""
    return [cell for cell in full_grid()
            if cell["seed"] == 0 and cell["num_vertices"] <= 256 and cell["degree"] <= 2]


if __name__ == "__main__":
    frame = sweep.run(least_key_dim, full_grid(), engine="processes",
                      cache=HERE.parents[1] / "_build" / "results")
    sweep.save(frame, HERE / "verification.parquet", command="python book/results/verification.py")
