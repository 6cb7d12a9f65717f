"""Channels written down, not trained."""

__all__ = ["block_channel"]

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_count, check_tensor, refuse
from manyheads.capacity.channel import KeyQueryChannel
from manyheads.capacity.graphs import RelationalGraph


def block_channel(
    graph: RelationalGraph, embeddings: Float[Tensor, "m d_model"], *, heads: int
) -> KeyQueryChannel:
    """Deal the edges out to the heads; a head gives each of its edges one key direction.

    For the edge e = (i, j) a head's W_Q has the column x_i and its W_K the
    column x_j, so the head scores S_a(q, k) = Σ_e <x_q, x_i> <x_k, x_j> over
    its edges e. With orthonormal embeddings that is 1 on its edges and 0
    elsewhere. The heads' blocks differ in size by at most one edge and follow
    `graph.matchings()`, so few blocks hold a vertex twice on one side.

    Parameters
    ----------
    graph : RelationalGraph
        With m' >= 1 edges, on the vertices that have embeddings.
    embeddings : (m, d_model) tensor
    heads : int
        h, from 1 (one head sums over all edges) to m' (one edge a head).

    Returns
    -------
    KeyQueryChannel
        key_dim = ceil(m' / h), threshold 1/2; D_K = m' when h divides m'.

    Raises
    ------
    ValueError
        If the graph has no edge, sizes do not match, or `heads` is outside 1..m'.

    References
    ----------
    After the construction of Adler, arXiv 2509.22840, without its signatures.
    """
    check_tensor("embeddings", embeddings, "m d_model")
    if not isinstance(graph, RelationalGraph) or graph.num_edges == 0:
        refuse("graph", "a RelationalGraph with at least one edge", graph)
    if graph.num_vertices != len(embeddings):
        refuse("graph", f"on the {len(embeddings)} vertices that have embeddings", repr(graph))
    heads = check_count("heads", heads, most=graph.num_edges)
    blocks = np.array_split(np.concatenate(graph.matchings()), heads)
    weights = embeddings.new_zeros(2, heads, embeddings.shape[1], len(blocks[0]))
    for head, block in enumerate(blocks):
        rows = embeddings[torch.from_numpy(block)]  # (edges, 2, d_model)
        weights[:, head, :, : len(block)] = rows.permute(1, 2, 0)
    return KeyQueryChannel(weights[0], weights[1], threshold=0.5)
