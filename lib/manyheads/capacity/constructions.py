"""Channels written down, not trained.

Every edge e of a head gets a signature r_e, a unit vector of length key_dim.
With p_e and q_e for the edge's two ends, the head is

    W_Q = Σ_e p_e r_e^T,   W_K = Σ_e q_e r_e^T,

so that S(i, j) = Σ_{e,f} <x_i, p_e> <x_j, q_f> <r_e, r_f>. The constructions
differ in which edges share a head, in p and q, and in the signatures.
After Adler, arXiv 2509.22840; duals and frames are ours.
"""

__all__ = ["block_channel", "one_hot_channel"]

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import FLOATS, check_choice, check_count, check_tensor, refuse
from manyheads.capacity.channel import KeyQueryChannel
from manyheads.capacity.graphs import RelationalGraph

# A dual vector answers 1 to its own vertex and little to the block's others; the
# ridge keeps it short where the block is nearly dependent. Fixed, not tuned per case.
_RIDGE = 0.1
_FRAME_ROUNDS = 50  # 3 to 20 are usual, most when the blocks are small


def block_channel(
    graph: RelationalGraph,
    embeddings: Float[Tensor, "m d_model"],
    *,
    heads: int,
    key_dim: int | None = None,
    decorrelation: str = "none",
    signatures: str = "frame",
    seed: int | None = None,
) -> KeyQueryChannel:
    """Deal the edges out to the heads, in blocks that differ in size by at most one edge.

    Blocks follow `graph.matchings()`, so few of them hold a vertex twice on one side.

    Parameters
    ----------
    graph : RelationalGraph
        With m' >= 1 edges, on the vertices that have embeddings.
    embeddings : (m, d_model) tensor
    heads : int
        h, from 1 (one head for all edges) to m' (one edge a head).
    key_dim : int, optional
        Length of the signatures. Left out, or with key_dim at least the block
        size ceil(m'/h), every edge has a direction of its own (D_K = m' when h
        divides m') and signatures do not interfere.
    decorrelation : {"none", "ridge", "pinv"}
        What stands for an end x of an edge: x itself, or the vector of the
        block's dual basis that answers to x, by ridge regression or by
        pseudo-inverse, scaled to answer 1 to its own x.
    signatures : {"frame", "rademacher"}
        "frame": a random tight frame (unit rows, orthogonal columns of equal
        length, up to 1 %): the b signatures interfere with Σ_f <r_e, r_f>²
        = b/key_dim, the least that b unit vectors allow. "rademacher":
        entries ±1/sqrt(key_dim), as in the paper.
    seed : int
        Of the signatures; needed when key_dim is below the block size.

    Returns
    -------
    KeyQueryChannel
        With threshold 1/2.

    Raises
    ------
    ValueError
        If the graph has no edge, sizes do not match, an argument is outside its
        range, or a seed is needed and missing.
    """
    check_tensor("embeddings", embeddings, "m d_model")
    if not isinstance(graph, RelationalGraph) or graph.num_edges == 0:
        refuse("graph", "a RelationalGraph with at least one edge", graph)
    if graph.num_vertices != len(embeddings):
        refuse("graph", f"on the {len(embeddings)} vertices that have embeddings", repr(graph))
    heads = check_count("heads", heads, most=graph.num_edges)
    check_choice("decorrelation", decorrelation, ("none", "ridge", "pinv"))
    check_choice("signatures", signatures, ("frame", "rademacher"))
    blocks = np.array_split(np.concatenate(graph.matchings()), heads)
    size = len(blocks[0])
    key_dim = size if key_dim is None else check_count("key_dim", key_dim)

    if key_dim >= size:
        ends = torch.eye(size, key_dim, dtype=embeddings.dtype).expand(heads, -1, -1)
    else:
        ends = _signatures(signatures, (heads, size, key_dim), seed).to(embeddings.dtype)
    ends = ends.to(embeddings.device)  # (heads, block, key_dim)
    weights = [
        _block_vectors(embeddings, [block[:, side] for block in blocks], decorrelation).mT @ ends
        for side in (0, 1)  # sources make W_Q, targets W_K
    ]
    return KeyQueryChannel(*weights, threshold=0.5)


def one_hot_channel(
    graph: RelationalGraph,
    *,
    key_dim: int,
    signatures: str = "rademacher",
    seed: int | None = None,
    dtype=torch.float64,
) -> KeyQueryChannel:
    """One head for one-hot embeddings: query i and the keys related to it share a signature.

    W_Q has row r_i for query i, W_K the sum of the signatures of its queries for
    each key. With "rademacher" signatures and a permutation of m vertices, key_dim
    at least 8 ln(m² / 2δ) makes the margin at least 1/2 with probability 1 - δ.
    With "circle", key_dim = 2 and equal angles, the margin is 1 - cos(2π/m), for
    any m: the logarithm buys margin, not existence.

    Parameters
    ----------
    graph : RelationalGraph
        For "circle", one in which no key has two queries.
    key_dim : int
        2 for "circle".
    seed : int
        Of the Rademacher signatures.

    Returns
    -------
    KeyQueryChannel
        One head on d_model = m; the threshold is 1/2, for "circle" the midpoint.
    """
    if not isinstance(graph, RelationalGraph) or graph.num_edges == 0:
        refuse("graph", "a RelationalGraph with at least one edge", graph)
    m, key_dim = graph.num_vertices, check_count("key_dim", key_dim)
    if dtype not in FLOATS:
        refuse("dtype", "torch.float32 or torch.float64", dtype)
    threshold = 0.5
    if check_choice("signatures", signatures, ("rademacher", "circle")) == "circle":
        if key_dim != 2:
            refuse("key_dim", "2 for signatures on a circle", key_dim)
        if graph.in_degrees.max() > 1:
            refuse("graph", "one where no key has two queries, for a circle", repr(graph))
        angles = torch.arange(m, dtype=torch.float64) * (2 * torch.pi / m)
        rows = torch.stack([angles.cos(), angles.sin()], dim=1)
        threshold = (1 + np.cos(2 * np.pi / max(m, 2))) / 2
    else:
        rows = _signatures("rademacher", (m, key_dim), seed)
    keys = torch.zeros_like(rows)
    sources, targets = torch.from_numpy(graph.edges.copy()).T
    keys.index_add_(0, targets, rows[sources])
    return KeyQueryChannel(rows.to(dtype)[None], keys.to(dtype)[None], threshold)


def _block_vectors(embeddings: Tensor, ends: list[np.ndarray], decorrelation: str) -> Tensor:
    """One vector for each edge's end in each block, shape (heads, block, d_model); 0 as padding."""
    heads, size = len(ends), len(ends[0])
    # Each block's distinct vertices: a vertex twice in a block has one dual vector, used twice.
    vertices = torch.full((heads, size), -1)
    place = torch.full((heads, size), -1)
    for head, block in enumerate(ends):
        distinct, where = np.unique(block, return_inverse=True)
        vertices[head, : len(distinct)] = torch.from_numpy(distinct)
        place[head, : len(block)] = torch.from_numpy(where)
    padded = torch.cat([embeddings, torch.zeros_like(embeddings[:1])])  # row -1 is zero
    rows = padded[vertices.to(embeddings.device)]  # (heads, block, d_model)
    if decorrelation == "pinv":
        duals = torch.linalg.pinv(rows).mT
    elif decorrelation == "ridge":
        eye = torch.eye(size, dtype=rows.dtype, device=rows.device)
        duals = torch.linalg.solve(rows @ rows.mT + _RIDGE * eye, rows)
    else:
        duals = rows
    answer = (duals * rows).sum(dim=-1, keepdim=True)  # to the vertex itself; 0 for padding
    duals = torch.where(answer > 0, duals / answer, 0) if decorrelation != "none" else duals
    chosen = duals.gather(1, place.clamp(min=0).to(rows.device)[..., None].expand_as(duals))
    return chosen * (place >= 0).to(rows)[..., None]


def _signatures(kind: str, shape: tuple[int, ...], seed: int | None) -> Float[Tensor, "..."]:
    """Unit signatures in float64, the last two axes (edges, key_dim)."""
    if seed is None:
        refuse("seed", "given when key_dim is below the block size (random signatures)", seed)
    rng = np.random.default_rng(check_count("seed", seed, least=0))
    if kind == "rademacher":
        return torch.from_numpy(2.0 * rng.integers(2, size=shape) - 1) / shape[-1] ** 0.5
    frame = torch.from_numpy(rng.standard_normal(shape))
    for _ in range(_FRAME_ROUNDS):  # orthonormal columns, unit rows, and again: both in the limit
        frame, _ = torch.linalg.qr(frame)
        lengths = frame.norm(dim=-1, keepdim=True)
        frame = frame / lengths
        if lengths.amax() < 1.01 * lengths.amin():
            break
    return frame
