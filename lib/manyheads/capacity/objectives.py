"""What training minimises: three losses of a channel's best scores.

All read the scores max_a S_a of all pairs, as the channel's own rule does, and
return one number a run, averaged over the run's edges.
"""

__all__ = ["OBJECTIVES", "margin_loss", "softmax_loss", "threshold_loss"]

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

Scores = Float[Tensor, "runs m m"]
Owed = Bool[Tensor, "runs m m"]


def margin_loss(best: Scores, owed: Owed, threshold: Float[Tensor, "runs"]) -> Tensor:
    """softplus(L - s) for every edge's score s, L the log-sum-exp of all non-edges, and of the row's.

    Both sums are soft maxima: the loss is small when every edge is above all
    non-edges, by a margin. It has no threshold of its own.
    """
    others = best.masked_fill(owed, -torch.inf)
    highest = others.flatten(1).logsumexp(dim=1)[:, None, None]
    highest_in_row = others.logsumexp(dim=2, keepdim=True)
    losses = softplus(highest - best) + softplus(highest_in_row - best)
    return _mean_over_edges(losses, owed)


def threshold_loss(best: Scores, owed: Owed, threshold: Float[Tensor, "runs"]) -> Tensor:
    """Binary cross-entropy of every pair's score above a threshold that is learnt too.

    Edges weigh as much as non-edges: a factor #non-edges / #edges, which for
    permutations is m - 1.
    """
    above = best - threshold[:, None, None]
    missed = _mean_over_edges(softplus(-above), owed)
    return missed + _mean_over_edges(softplus(above), ~owed)


def softmax_loss(best: Scores, owed: Owed, threshold: Float[Tensor, "runs"]) -> Tensor:
    """Cross-entropy of the edges under the softmax over each query's keys.

    Only the order of the scores within a row counts: what it can teach is the
    row margin, and no threshold fits all rows.
    """
    return _mean_over_edges(best.logsumexp(dim=2, keepdim=True) - best, owed)


OBJECTIVES = {"margin": margin_loss, "threshold": threshold_loss, "softmax": softmax_loss}


def _mean_over_edges(losses: Scores, owed: Owed) -> Tensor:
    return torch.where(owed, losses, 0).sum(dim=(1, 2)) / owed.sum(dim=(1, 2))
