"""Recovery by trained channels against D_K: where it sets in, and for which objective.

    python book/results/phase_transitions.py

writes phase_transitions.parquet and phase_settings.parquet, the same under other
settings of the optimiser, beside this file. Finished cells are kept in
_build/results: stopped and started again, it goes on where it was.
"""

from pathlib import Path
from unittest import mock

import torch

from manyheads import capacity, sweep
from manyheads.capacity import learning

HERE = Path(__file__).resolve().parent

# (num_vertices, d_model): heads, seeds, key_dims for all three objectives, and
# those that only the threshold objective needs.
CURVES = {
    (32, 16): (1, 12, range(1, 10), ()),
    (64, 32): (1, 12, range(1, 10), ()),
    (128, 64): (1, 8, range(2, 9), (9, 10, 12)),
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
    (256, 32): (4, 5, range(4, 11)),
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


def recovery_under(rate, sharpness, stops_early, **given):
    """The same with another rate of Adam, factor on the scores, or for all steps."""
    settings = {"_RATE": rate, "_SHARPNESS": sharpness}
    if not stops_early:
        settings["_SAFE"] = float("inf")
    with mock.patch.multiple(learning, **settings):
        return recovery(**given)


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


def settings_grid():
    """About 10 minutes on one core."""
    def under(one, rate=0.03, sharpness=3.0, stops_early=True):
        return dict(rate=rate, sharpness=sharpness, stops_early=stops_early) | one

    grid = [under(cell("margin", m, d, heads, key_dim, 5), rate=rate)
            for (m, d, heads), key_dims in {(256, 64, 1): range(9, 13),
                                            (128, 16, 8): range(3, 7)}.items()
            for key_dim in key_dims for rate in (0.01, 0.03, 0.1)]
    grid += [under(cell("margin", 256, 64, 1, 12, 5), sharpness=sharpness)
             for sharpness in (1.0, 10.0)]
    return grid + [under(cell("softmax", m, d, heads, key_dim, 5), stops_early=False)
                   for m, d, heads, key_dim in ((32, 16, 1, 9), (64, 16, 4, 7), (128, 16, 8, 7))]


def small_grid():
    """The part of the full grid that the chapter runs itself: seconds."""
    return [one for one in full_grid() if one["num_vertices"] == 32 and one["d_model"] == 16
            and one["objective"] == "margin"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, function, grid in (("phase_transitions", recovery, full_grid()),
                                 ("phase_settings", recovery_under, settings_grid())):
        frame = sweep.run(function, grid, engine="processes",
                          cache=HERE.parents[1] / "_build" / "results")
        sweep.save(frame, HERE / f"{name}.parquet",
                   command="python book/results/phase_transitions.py")
