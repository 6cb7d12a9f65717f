"""From thresholds to softmax: what a channel's attention pays in the worst context.

A query sees a set of l keys. Its attention over them depends on the set, so
"right in every context" is no longer one comparison of scores; but for each
query and head the worst set of l keys can be written down, and with it the
inverse temperatures β for which attention above 1/2 means "related".
"""

__all__ = ["attention_with_sink", "margin_and_spread", "softmax_window"]

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_count, check_number
from manyheads.capacity.certificates import check_case
from manyheads.capacity.channel import KeyQueryChannel
from manyheads.capacity.graphs import RelationalGraph, check_context

_CHUNK = 2**21  # scores held at a time, in all heads
_STEPS = 100  # Newton's, at most; it takes about ten


def margin_and_spread(
    channel: KeyQueryChannel, graph: RelationalGraph, embeddings: Float[Tensor, "m d_model"]
) -> tuple[float, float]:
    """The two numbers that bound attention in every context: γ and δ.

    γ is the least, over edges (i, j), of the best head's S_a(i, j) minus the
    highest score that the *same head* gives i with another key. δ is the largest,
    over heads and queries i, of the highest score with a key not related to i
    minus the lowest score with any key.

    Time O(m² D_K); at most about 2^21 scores are held at a time.

    Raises
    ------
    ValueError
        As `certify`.

    Examples
    --------
    >>> x = torch.eye(4)
    >>> channel = KeyQueryChannel(x[:1, :, None], x[1:2, :, None], threshold=0.5)
    >>> margin_and_spread(channel, RelationalGraph(4, [(0, 1)]), x)
    (1.0, 0.0)

    References
    ----------
    Adler, arXiv 2509.22840, treats softmax; γ and δ are ours.
    """
    edges = _edge_scores(channel, graph, embeddings)
    margin = min((own - others.amax(-1)).amax(0).min().item() for own, others in edges)
    rows = _top_and_others(channel, graph, embeddings)
    spread = max((top - others.amin(-1)).max().item() for top, others in rows)
    return margin, spread


def softmax_window(
    channel: KeyQueryChannel,
    graph: RelationalGraph,
    embeddings: Float[Tensor, "m d_model"],
    *,
    size: int,
) -> tuple[float, float]:
    """The inverse temperatures at which attention above 1/2 is right for all sets of `size` keys.

    For low < β <= high, and for no other β: each edge has a head that gives it
    more than 1/2 whichever keys it is shown with, and no head ever gives more
    than 1/2 to a key that is not related to the query. Empty when low >= high.

    Parameters
    ----------
    channel : KeyQueryChannel
    graph : RelationalGraph
    embeddings : (m, d_model) tensor
    size : int
        How many keys a query sees, from 2 to m.

    Returns
    -------
    low, high : float
        low is infinite when some edge has no head that scores it above the query's
        other keys; high is infinite when no unrelated key can ever come out alone.

    Raises
    ------
    ValueError
        As `certify`, or if `size` is out of range.

    Examples
    --------
    Against two other keys the edge needs exp(β) > 2:

    >>> x = torch.eye(4)
    >>> channel = KeyQueryChannel(x[:1, :, None], x[1:2, :, None], threshold=0.5)
    >>> low, high = softmax_window(channel, RelationalGraph(4, [(0, 1)]), x, size=3)
    >>> round(low, 3), high
    (0.693, inf)

    References
    ----------
    Ours. An edge is worst off with the size - 1 highest of the other scores, an
    unrelated key best off as the highest one among the lowest.
    """
    check_case(channel, graph, embeddings)
    size = check_count("size", size, least=2, most=len(embeddings))
    low, high = 0.0, math.inf
    for own, others in _edge_scores(channel, graph, embeddings):
        rivals = others.topk(size - 1, dim=-1).values  # (heads, edges, size - 1)
        low = max(low, _balance(own[..., None] - rivals).amin(0).max().item())
    for top, others in _top_and_others(channel, graph, embeddings):
        rivals = others.topk(size - 1, dim=-1, largest=False).values
        high = min(high, _balance(top[..., None] - rivals).min().item())
    return low, high


def attention_with_sink(
    channel: KeyQueryChannel,
    embeddings: Float[Tensor, "m d_model"],
    context,
    inverse_temperature: float,
) -> Float[Tensor, "heads context keys"]:
    """Attention over a context's keys and one null key that scores the channel's threshold.

    Returns
    -------
    (heads, l, l + 1) tensor
        Rows sum to 1; the last column is the null key, the attention sink. A key
        has more weight than it exactly if its score is above the threshold.

    Raises
    ------
    ValueError
        If the embeddings do not fit, a vertex of the context is not there or
        stands twice, or β is negative.

    References
    ----------
    Ours.
    """
    beta = check_number("inverse_temperature", inverse_temperature, least=0)
    channel.check_embeddings(embeddings)
    scores = channel.scores(embeddings[check_context(context, len(embeddings))])
    sink = scores.new_full((*scores.shape[:2], 1), channel.threshold)
    return (beta * torch.cat([scores, sink], dim=-1)).softmax(dim=-1)


def _balance(ahead: Float[Tensor, "... rivals"]) -> Float[Tensor, "..."]:
    """The β > 0 at which a key has weight 1/2: Σ exp(-β ahead) = 1; infinite if none.

    `ahead` is by how much the key scores above each rival. If all are positive
    the logarithm of the sum is convex and decreasing in β, from ln(rivals), so
    Newton's steps from 0 approach its one zero from below.
    """
    wins = (ahead > 0).all(dim=-1)
    ahead = torch.where(wins[..., None], ahead, 1)
    beta = ahead.new_zeros(wins.shape)
    for _ in range(_STEPS):
        terms = torch.exp(-beta[..., None] * ahead)
        total = terms.sum(dim=-1)
        step = total.log() * total / (terms * ahead).sum(dim=-1)
        beta = beta + step
        if not (step > 1e-12 * beta).any():
            break
    return torch.where(wins, beta, math.inf)


def _edge_scores(channel, graph, embeddings) -> Iterator[tuple[Tensor, Tensor]]:
    """Of some edges: own scores (heads, edges), and those of the query's other keys."""
    check_case(channel, graph, embeddings)
    m, edges = len(embeddings), torch.from_numpy(graph.edges.copy())
    for chunk in edges.split(max(1, _CHUNK // (channel.heads * m))):
        sources, place = chunk[:, 0].unique(return_inverse=True)
        scores = channel.scores(embeddings, sources.numpy())[:, place.to(embeddings.device)]
        at = torch.arange(len(chunk), device=embeddings.device)
        target = chunk[:, 1].to(embeddings.device)
        yield scores[:, at, target], _without(scores, target.expand(channel.heads, -1))


def _top_and_others(channel, graph, embeddings) -> Iterator[tuple[Tensor, Tensor]]:
    """Of some queries: highest unrelated score (heads, rows), and those of all other keys."""
    check_case(channel, graph, embeddings)
    m = len(embeddings)
    free = torch.nonzero(torch.from_numpy(graph.out_degrees.copy()) < m)[:, 0]
    for rows in free.split(max(1, _CHUNK // (channel.heads * m))):
        scores = channel.scores(embeddings, rows.numpy())
        related = torch.zeros(len(rows), m, dtype=torch.bool)
        for row, query in enumerate(rows.tolist()):
            first, last = graph.edges[:, 0].searchsorted([query, query + 1])
            related[row, graph.edges[first:last, 1].copy()] = True
        top = scores.masked_fill(related.to(scores.device), -math.inf).max(dim=-1)
        yield top.values, _without(scores, top.indices)


def _without(scores: Float[Tensor, "heads rows m"], key: Tensor) -> Float[Tensor, "heads rows n"]:
    """The scores of all keys but one in each row, n = m - 1."""
    keep = torch.ones_like(scores, dtype=torch.bool).scatter_(-1, key[..., None], False)
    return scores[keep].view(*scores.shape[:2], -1)
