"""Embeddings: one unit vector of length d_model for every vertex.

With m > d_model they cannot be orthogonal; how far they are from it,
`incoherence`, is what every construction has to pay for.
"""

__all__ = [
    "gaussian_embeddings",
    "incoherence",
    "one_hot_embeddings",
    "pretrained_embeddings",
    "rademacher_embeddings",
    "token_embeddings",
    "welch_bound",
]

import math
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import FLOATS, check_count, check_tensor, describe, refuse
from manyheads.pretrained import load_tensors, token_ids

_TOKEN_MATRIX = {"minilm": "embeddings.word_embeddings.weight", "gpt2": "wte.weight"}


def one_hot_embeddings(num_vertices: int, *, dtype=torch.float32) -> Float[Tensor, "m m"]:
    """The identity: d_model = m, no interference at all."""
    return _unit(torch.eye(check_count("num_vertices", num_vertices)), dtype)


def gaussian_embeddings(
    num_vertices: int, d_model: int, *, seed: int, dtype=torch.float32
) -> Float[Tensor, "m d_model"]:
    """Directions drawn uniformly from the unit sphere."""
    rng, shape = _sampler(num_vertices, d_model, seed)
    return _unit(torch.from_numpy(rng.standard_normal(shape)), dtype)


def rademacher_embeddings(
    num_vertices: int, d_model: int, *, seed: int, dtype=torch.float32
) -> Float[Tensor, "m d_model"]:
    """Entries ±1/sqrt(d_model) with fair signs."""
    rng, shape = _sampler(num_vertices, d_model, seed)
    return _unit(torch.from_numpy(2.0 * rng.integers(2, size=shape) - 1), dtype)


def pretrained_embeddings(
    source: str | Path, num_vertices: int, *, seed: int, tensor: str | None = None
) -> Float[Tensor, "m d_model"]:
    """Unit-length rows of a frozen token matrix, drawn without replacement.

    Parameters
    ----------
    source : "minilm" (30522 x 384), "gpt2" (50257 x 768) or a safetensors path
    num_vertices : int
        m, how many distinct tokens to draw.
    tensor : str, optional
        Name of the token matrix in the file; known for "minilm" and "gpt2".

    Raises
    ------
    ValueError
        If the source or the tensor is missing, or has fewer than m rows.
    """
    if not isinstance(source, str | Path):
        refuse("source", "'minilm', 'gpt2' or the path of a safetensors file", describe(source))
    if tensor is None and source not in _TOKEN_MATRIX:
        refuse("tensor", "the name of the token matrix in that file", describe(tensor))
    (matrix,) = load_tensors(source, [tensor or _TOKEN_MATRIX[source]])
    num_vertices = check_count("num_vertices", num_vertices, most=len(matrix))
    rng = np.random.default_rng(check_count("seed", seed, least=0))
    return _unit(matrix[rng.choice(len(matrix), num_vertices, replace=False)].double())


def token_embeddings(tokens: list[str]) -> Float[Tensor, "m d_model"]:
    """Unit-length rows of MiniLM's token matrix for these words, d_model = 384."""
    (matrix,) = load_tensors("minilm", [_TOKEN_MATRIX["minilm"]])
    return _unit(matrix[token_ids(tokens)].double())


def incoherence(embeddings: Float[Tensor, "m d_model"]) -> float:
    """The largest absolute cosine of two different embeddings; 0 when orthogonal.

    Raises
    ------
    ValueError
        If there are fewer than two rows, or a row is zero or not finite.
    """
    check_tensor("embeddings", embeddings, "m d_model")
    if len(embeddings) < 2:
        refuse("embeddings", "of at least two vertices", embeddings)
    unit = _unit(embeddings, embeddings.dtype)
    largest = 0.0
    for start in range(0, len(unit), 1024):  # row blocks: the Gram matrix is never held
        gram = unit[start : start + 1024] @ unit.T  # (rows, m)
        gram.diagonal(offset=start).zero_()
        largest = max(largest, gram.abs().max().item())
    return largest


def welch_bound(num_vertices: int, d_model: int) -> float:
    """The least incoherence that m unit vectors in d_model dimensions can have.

    sqrt((m - d) / (d (m - 1))), and 0 for m <= d (Welch 1974).
    """
    m = check_count("num_vertices", num_vertices, least=2)
    d = check_count("d_model", d_model)
    return math.sqrt(max(0, m - d) / (d * (m - 1)))


def _sampler(num_vertices, d_model, seed) -> tuple[np.random.Generator, tuple[int, int]]:
    shape = (check_count("num_vertices", num_vertices), check_count("d_model", d_model))
    return np.random.default_rng(check_count("seed", seed, least=0)), shape


def _unit(rows: Tensor, dtype=torch.float32) -> Tensor:
    if dtype not in FLOATS:
        refuse("dtype", "torch.float32 or torch.float64", dtype)
    lengths = rows.norm(dim=1, keepdim=True)
    if not (lengths > 0).all():
        refuse("embeddings", "free of zero rows", f"row {int(lengths.argmin())} of length 0")
    return (rows / lengths).to(dtype)
