"""The key-query channel: h heads that score every pair of vertices.

Head a gives S_a(i, j) = <x_i W_Q^a, x_j W_K^a>; the pair (i, j) is reported
when max_a S_a(i, j) exceeds a threshold. Source: Adler, arXiv 2509.22840.
"""

__all__ = ["KeyQueryChannel", "best_score_tiles"]

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_number, check_tensor, refuse
from manyheads.capacity.graphs import RelationalGraph, check_context

# A tile of scores stays near the processor's cache while all heads pass over it.
_TILE_ROWS, _TILE_COLUMNS = 4096, 256
_PROJECTED_ROWS = 1024


@dataclass(frozen=True, eq=False)
class KeyQueryChannel:
    """h heads of key_dim d_k on d_model-dimensional embeddings, and one threshold.

    Parameters
    ----------
    query_weights, key_weights : (heads, d_model, key_dim) tensors
        W_Q^a and W_K^a; float32 or float64, the same dtype and device.
    threshold : float
        θ: a pair is reported when its best score over the heads is larger.

    Raises
    ------
    ValueError
        If the two weights differ in shape, dtype or device, are empty or not
        finite, or the threshold is not a finite number.

    Examples
    --------
    One head that stores the edge 0 -> 1 between two orthogonal embeddings:

    >>> eye = torch.eye(2)
    >>> channel = KeyQueryChannel(eye[:1, :, None], eye[1:, :, None], threshold=0.5)
    >>> channel.recover(eye).edges.tolist()
    [[0, 1]]
    """

    query_weights: Float[Tensor, "heads d_model key_dim"]
    key_weights: Float[Tensor, "heads d_model key_dim"]
    threshold: float

    def __post_init__(self):
        shape = "heads d_model key_dim"
        check_tensor("query_weights", self.query_weights, shape)
        check_tensor("key_weights", self.key_weights, shape, like=self.query_weights)
        if self.key_weights.shape != self.query_weights.shape:
            allowed = f"of the shape of query_weights, {tuple(self.query_weights.shape)}"
            refuse("key_weights", allowed, self.key_weights)
        check_number("threshold", self.threshold)

    @property
    def heads(self) -> int:
        return self.query_weights.shape[0]

    @property
    def d_model(self) -> int:
        return self.query_weights.shape[1]

    @property
    def key_dim(self) -> int:
        return self.query_weights.shape[2]

    @property
    def total_key_dim(self) -> int:
        """D_K = heads · key_dim, the budget."""
        return self.heads * self.key_dim

    @property
    def num_parameters(self) -> int:
        """Entries of all W_Q and W_K, 2 · d_model · D_K; the threshold is not counted."""
        return self.query_weights.numel() + self.key_weights.numel()

    def scores(
        self, embeddings: Float[Tensor, "m d_model"], rows=None
    ) -> Float[Tensor, "heads rows m"]:
        """Every head's scores of the queries `rows` (all, when left out) with all keys.

        Holds heads · rows · m numbers: for many vertices pass few rows.
        """
        self.check_embeddings(embeddings)
        chosen = embeddings
        if rows is not None:
            chosen = embeddings[check_context(rows, len(embeddings), "rows")]
        queries = chosen @ self.query_weights  # (heads, rows, key_dim)
        keys = embeddings @ self.key_weights  # (heads, m, key_dim)
        return queries @ keys.mT

    def recover(self, embeddings: Float[Tensor, "m d_model"], context=None) -> RelationalGraph:
        """The graph that the channel reports on a context.

        Parameters
        ----------
        embeddings : (m, d_model) tensor
        context : sequence of distinct vertices, optional
            All vertices when left out. Vertex k of the result is `context[k]`.

        Returns
        -------
        RelationalGraph
            On the context's own vertices, labelled by them. To be compared
            with `graph.restricted_to(context)`.
        """
        self.check_embeddings(embeddings)
        labels = check_context(range(len(embeddings)) if context is None else context,
                               len(embeddings))
        edges = [
            torch.nonzero(best > self.threshold).cpu() + torch.tensor([rows.start, columns.start])
            for rows, columns, best in best_score_tiles(self, embeddings[labels])
        ]
        return RelationalGraph(len(labels), torch.cat(edges).numpy(), labels.tolist())

    def attention(
        self, embeddings: Float[Tensor, "m d_model"], context, inverse_temperature: float
    ) -> Float[Tensor, "heads context context"]:
        """Softmax of inverse_temperature · scores over the keys of a context; rows sum to 1."""
        beta = check_number("inverse_temperature", inverse_temperature, least=0)
        self.check_embeddings(embeddings)
        inside = embeddings[check_context(context, len(embeddings))]
        return (beta * self.scores(inside)).softmax(dim=-1)

    def check_embeddings(self, embeddings: Tensor) -> None:
        """Refuse embeddings that this channel cannot read."""
        check_tensor("embeddings", embeddings, "m d_model", like=self.query_weights)
        if embeddings.shape[1] != self.d_model:
            refuse("embeddings", f"of width d_model = {self.d_model}, as the weights are",
                   embeddings)


def best_score_tiles(
    channel: KeyQueryChannel, embeddings: Float[Tensor, "m d_model"]
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Walk over max_a S_a in tiles: (rows, columns, scores), row block by row block.

    The scores of a tile are a buffer, overwritten by the next one: the caller
    may change them and must not keep them. Memory is that of the keys,
    m · D_K numbers, and a few tiles, never heads · m · m.
    """
    embeddings = embeddings.detach()  # buffers are reused, so no gradient can pass
    m = len(embeddings)
    height, width = min(m, _TILE_ROWS), min(m, _TILE_COLUMNS)
    keys = _project(embeddings, channel.key_weights.detach())
    buffers = embeddings.new_empty(2, height * width)
    for top in range(0, m, height):
        rows = slice(top, min(top + height, m))
        queries = _project(embeddings[rows], channel.query_weights.detach())
        for left in range(0, m, width):
            columns = slice(left, min(left + width, m))
            shape = rows.stop - top, columns.stop - left
            best, head = (buffer[: shape[0] * shape[1]].view(shape) for buffer in buffers)
            torch.mm(queries[0], keys[0, columns].T, out=best)
            for a in range(1, channel.heads):
                torch.mm(queries[a], keys[a, columns].T, out=head)
                torch.maximum(best, head, out=best)
            yield rows, columns, best


def _project(
    embeddings: Float[Tensor, "m d_model"], weights: Float[Tensor, "heads d_model key_dim"]
) -> Float[Tensor, "heads m key_dim"]:
    """Queries or keys of all heads, each head's contiguous, made without a second copy."""
    heads, d_model, key_dim = weights.shape
    side_by_side = weights.permute(1, 0, 2).reshape(d_model, heads * key_dim)
    out = embeddings.new_empty(heads, len(embeddings), key_dim)
    for top in range(0, len(embeddings), _PROJECTED_ROWS):
        block = embeddings[top : top + _PROJECTED_ROWS] @ side_by_side  # (rows, D_K): one product
        out[:, top : top + len(block)] = block.view(-1, heads, key_dim).transpose(0, 1)
    return out
