"""The split of a budget when attention is a softmax, routes values, or sits in a block.

    python book/results/beyond_the_channel.py

writes beyond_the_channel.parquet beside this file. Finished cells are kept in
_build/results: stopped and started again, it goes on where it was.
"""

from pathlib import Path

import torch

from manyheads import capacity, sweep

HERE = Path(__file__).resolve().parent
HEADS = (1, 2, 4, 8)
READOUTS = ("attention", "value", "block")

# A head under load, and two with room, of which the last sees all of MiniLM's dimensions:
# (num_vertices, d_model), budgets, readouts.
REGIMES = {
    "loaded": ((128, 16), (32, 64), READOUTS),
    "roomy": ((128, 64), (8,), READOUTS),
    "whole": ((512, 384), (16,), ("attention",)),  # a block takes minutes a cell
}


def embeddings_of(source, num_vertices, d_model, seed):
    """Gaussian embeddings, or MiniLM's tokens: all 384 dimensions, or the d_model main ones."""
    if source == "gaussian":
        return capacity.gaussian_embeddings(num_vertices, d_model, seed=seed)
    tokens = capacity.centered(capacity.pretrained_embeddings(source, num_vertices, seed=seed))
    if tokens.shape[1] > d_model:
        tokens = tokens @ torch.linalg.svd(tokens, full_matrices=False).Vh[:d_model].T
        tokens = tokens / tokens.norm(dim=1, keepdim=True)
    return tokens


def accuracy(source, num_vertices, d_model, readout, total_key_dim, heads, seed, steps):
    """Share of right answers of one trained router in fresh contexts of 32 edges."""
    graph = capacity.permutation_graph(num_vertices, seed=seed)
    routing = capacity.train_router(
        graph, embeddings_of(source, num_vertices, d_model, seed), heads=heads,
        key_dim=total_key_dim // heads, readout=readout, steps=steps, seed=seed, progress=False)
    parameters = sum(weights.numel() for weights in routing.model.parameters())
    return {"accuracy": routing.accuracy, "parameters": parameters}


def full_grid():
    """About 20 minutes on one core."""
    return [cell for (m, d), budgets, readouts in REGIMES.values()
            for cell in sweep.product(
                source=["gaussian", "minilm"], num_vertices=[m], d_model=[d],
                readout=readouts, total_key_dim=budgets, heads=HEADS, seed=range(5),
                steps=[800])]


def small_grid():
    """The part of the full grid that the chapter runs itself: seconds."""
    return [cell for cell in full_grid() if cell["seed"] == 0 and cell["d_model"] == 16
            and cell["source"] == "minilm" and cell["total_key_dim"] == 64
            and cell["heads"] in (1, 4)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    frame = sweep.run(accuracy, full_grid(), engine="processes",
                      cache=HERE.parents[1] / "_build" / "results")
    sweep.save(frame, HERE / "beyond_the_channel.parquet",
               command="python book/results/beyond_the_channel.py")
