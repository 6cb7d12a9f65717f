"""How many of some random permutations one head of any width can carry, over many sizes.

    python book/results/one_head.py

writes one_head.parquet beside this file. Finished cells are kept in
_build/results: stopped and started again, it goes on where it was.
"""

from pathlib import Path

import numpy as np
import torch

from manyheads import capacity, sweep

HERE = Path(__file__).resolve().parent

# d_model: the middle of its transitions, how far to go down and up from there, trials a cell
TRANSITIONS = {
    6: (14, 0.45, 40), 8: (22, 0.4, 40), 10: (31, 0.35, 40), 12: (40, 0.3, 40),
    16: (62, 0.22, 40), 20: (87, 0.18, 24), 24: (114, 0.16, 24), 32: (183, 0.12, 10),
}
SIZES = 9


def problem(num_vertices, d_model, seed):
    """A random permutation and random embeddings."""
    embeddings = capacity.gaussian_embeddings(
        num_vertices, d_model, seed=seed, dtype=torch.float64)
    return capacity.permutation_graph(num_vertices, seed=seed), embeddings


def carried(d_model, criterion, num_vertices, trials):
    """Of the seeds 0, ..., trials - 1, how many one head can carry, and how many are undecided."""
    answers = []
    for seed in range(trials):
        graph, embeddings = problem(num_vertices, d_model, seed)
        answer = capacity.single_head_feasible(graph, embeddings, criterion=criterion)
        answers.append(answer.feasible)
    return {"feasible": answers.count(True), "undecided": answers.count(None)}


def full_grid():
    """About five minutes on one core."""
    grid = []
    for d_model, (middle, reach, trials) in TRANSITIONS.items():
        sizes = np.unique(np.round(middle * np.linspace(1 - reach, 1 + reach, SIZES)).astype(int))
        grid += sweep.product(d_model=[d_model], criterion=["global", "row"],
                              num_vertices=sizes.tolist(), trials=[trials])
    return grid


def small_grid():
    """The part of the full grid that the chapter runs itself: seconds."""
    return [cell for cell in full_grid() if cell["d_model"] <= 8]


if __name__ == "__main__":
    torch.set_num_threads(1)
    frame = sweep.run(carried, full_grid(), engine="processes",
                      cache=HERE.parents[1] / "_build" / "results")
    sweep.save(frame, HERE / "one_head.parquet", command="python book/results/one_head.py")
