"""Embeddings: one unit vector of length d_model for every vertex.

With m > d_model they cannot be orthogonal. How far they are from it is what
every construction has to pay for: `incoherence` is the worst pair,
`effective_dimension` the average, `interference` what a block of edges meets.
"""

__all__ = [
    "centered",
    "correlated_embeddings",
    "effective_dimension",
    "gaussian_embeddings",
    "incoherence",
    "interference",
    "one_hot_embeddings",
    "pretrained_embeddings",
    "rademacher_embeddings",
    "sparse_embeddings",
    "token_embeddings",
    "welch_bound",
    "whitened",
    "whitening",
]

import math
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import (
    FLOATS,
    check_count,
    check_number,
    check_tensor,
    describe,
    refuse,
)
from manyheads.capacity.graphs import check_context
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


def sparse_embeddings(
    num_vertices: int, d_model: int, *, nonzeros: int, seed: int, dtype=torch.float32
) -> Float[Tensor, "m d_model"]:
    """Fair signs at `nonzeros` random places, 0 elsewhere, scaled to length one.

    With few non-zeros two rows can coincide (1 of 1 is a one-hot row with a sign).
    """
    rng, shape = _sampler(num_vertices, d_model, seed)
    nonzeros = check_count("nonzeros", nonzeros, most=shape[1])
    places = torch.from_numpy(rng.random(shape).argsort(axis=1)[:, :nonzeros].copy())
    signs = torch.from_numpy(2.0 * rng.integers(2, size=places.shape) - 1)
    return _unit(torch.zeros(shape, dtype=torch.float64).scatter_(1, places, signs), dtype)


def correlated_embeddings(
    num_vertices: int, d_model: int, *, strength: float, seed: int, dtype=torch.float32
) -> Float[Tensor, "m d_model"]:
    """One direction u shared by all: sqrt(strength) u + sqrt(1 - strength) g.

    g is uniform on the unit sphere orthogonal to u, so that two different rows
    have expected cosine exactly `strength`, in [0, 1). Needs d_model >= 2.
    """
    _, shape = _sampler(num_vertices, check_count("d_model", d_model, least=2), seed)
    strength = check_number("strength", strength, least=0, most=math.nextafter(1, 0))
    own = gaussian_embeddings(shape[0], shape[1] - 1, seed=seed, dtype=torch.float64)
    shared = own.new_ones(shape[0], 1)
    return _unit(torch.cat([strength**0.5 * shared, (1 - strength) ** 0.5 * own], dim=1), dtype)


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


def centered(embeddings: Float[Tensor, "m d_model"]) -> Float[Tensor, "m d_model"]:
    """The rows less their mean, scaled to length one again."""
    check_tensor("embeddings", embeddings, "m d_model")
    return _unit(embeddings - embeddings.mean(dim=0), embeddings.dtype)


def whitening(embeddings: Float[Tensor, "m d_model"]) -> Float[Tensor, "d_model d_model"]:
    """The symmetric matrix T that makes the rows x T isotropic.

    X T has second moment T X^T X T / m = 1/r on the r dimensions that the rows
    span, and their mean squared length is 1. Directions with less than
    sqrt(machine epsilon) of the largest second moment count as not spanned.
    T is linear, so weights can contain it: x (T W) = (x T) W.
    """
    check_tensor("embeddings", embeddings, "m d_model")
    moments, axes = torch.linalg.eigh(embeddings.T @ embeddings / len(embeddings))
    if not moments[-1] > 0:
        refuse("embeddings", "with at least one row that is not zero", embeddings)
    floor = moments[-1] * torch.finfo(embeddings.dtype).eps ** 0.5
    spanned = moments > floor
    scale = torch.where(spanned, moments.clamp(min=floor), torch.inf).rsqrt()
    return (axes * scale) @ axes.T / spanned.sum() ** 0.5


def whitened(embeddings: Float[Tensor, "m d_model"]) -> Float[Tensor, "m d_model"]:
    """The rows after `whitening`, scaled to length one again."""
    return _unit(embeddings @ whitening(embeddings), embeddings.dtype)


def effective_dimension(embeddings: Float[Tensor, "m d_model"]) -> float:
    """In how many dimensions isotropic embeddings would overlap as much, on average.

    One over the mean squared cosine of all m² pairs (each row with itself
    included), which is 1 / tr(Σ²) with Σ = X^T X / m for unit rows: the
    participation ratio of Σ's spectrum. From 1 (all rows parallel) to d_model
    (Σ a multiple of the identity). Rows are taken at length one.

    Raises
    ------
    ValueError
        If a row is zero or not finite.

    Examples
    --------
    >>> effective_dimension(torch.eye(4)), effective_dimension(torch.ones(4, 1))
    (4.0, 1.0)
    """
    check_tensor("embeddings", embeddings, "m d_model")
    unit = _unit(embeddings, embeddings.dtype)
    second_moment = unit.T @ unit / len(unit)
    return 1 / second_moment.square().sum().item()


def interference(
    embeddings: Float[Tensor, "m d_model"], block, vectors: Float[Tensor, "b d_model"] | None = None
) -> Float[Tensor, "m b"]:
    """What every vertex answers to the edges of a block that are not its own.

    Parameters
    ----------
    embeddings : (m, d_model) tensor
    block : sequence of b vertices
        The sources (or the targets) of a block's edges.
    vectors : (b, d_model) tensor, optional
        What stands for them in the weights; their embeddings, when left out.

    Returns
    -------
    (m, b) tensor
        Entry (i, e) is <x_i, p_e>, and 0 where `block[e]` is i. The squares of
        a row sum to the *block energy* of the vertex, near b/d for random
        directions.

    Raises
    ------
    ValueError
        If the block is empty or has other vertices, or the shapes do not match.

    Examples
    --------
    >>> interference(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), [0]).tolist()
    [[0.0], [0.6000000238418579]]
    """
    check_tensor("embeddings", embeddings, "m d_model")
    block = check_context(block, len(embeddings), "block", distinct=False)
    vectors = embeddings[block] if vectors is None else vectors
    check_tensor("vectors", vectors, "b d_model", like=embeddings)
    if vectors.shape != (len(block), embeddings.shape[1]):
        refuse("vectors", f"of shape ({len(block)}, {embeddings.shape[1]})", vectors)
    answers = embeddings @ vectors.T
    answers[block, np.arange(len(block))] = 0
    return answers


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
    # In float64, where the square of no float32 overflows or vanishes.
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
    if not (lengths > 0).all():
        refuse("embeddings", "free of zero rows", f"row {int(lengths.argmin())} of length 0")
    return (rows / lengths).to(dtype)
