"""What the public code of Sáez de Ocáriz Borde 2025 estimates, without sampling.

That code (``proxies.py`` at commit 0de5787e of haitzsaezdeocariz/beyondparallelism)
measures attention in two ways. Its mixing time is a Monte-Carlo mean over walks
whose next node is drawn with the *columns* of the mixed attention, which do not
sum to one; its fidelity is exact but counts the sink among the nodes. Here is the
limit of the one, and the other, so that they can be laid beside the quantities
of `walks` and `diffusion`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_count
from manyheads.synergy.diffusion import minimax_fidelity
from manyheads.synergy.heads import HeadSystem

__all__ = ["published_fidelity_proxy", "published_mixing_proxy", "published_transitions"]


def published_transitions(attention: Float[Tensor, "*batch heads n n"],
                          weights=None) -> Float[Tensor, "*batch n n"]:
    """The walk that the published sampler takes, as a walk matrix.

    With C the mixture of the heads' attention and c_i the sum of the entries
    C[0, j], ..., C[i, j], cut off at 1, a walker at node j draws r uniformly from
    [0, 1) and goes to the first node i with c_i >= r, that is with probability
    c_i - c_(i-1); where no node has it, to the last one. So what a column lacks
    of 1 is a jump to the sink, and what it has beyond 1 is cut off at its end.

    Parameters
    ----------
    attention
        Shape (..., heads, n, n), lower triangular, every row summing to 1.
    weights
        Shape (..., heads) or a list, non-negative, summing to 1; default: all equal.

    Returns
    -------
    Tensor
        Shape (..., n, n), lower triangular: entry [i, j] is the probability of a
        step from j to i, and every column sums to 1.

    Raises
    ------
    ValueError
        If `attention` or `weights` are not as described.

    Examples
    --------
    Node 0 is read with 1 + 1/2 + 1/3 by three nodes, node 1 with 1/2 + 1/3:

    >>> uniform = torch.ones(1, 3, 3).tril() / torch.tensor([[1.0], [2.0], [3.0]])
    >>> published_transitions(uniform)
    tensor([[1.0000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.0000],
            [0.0000, 0.5000, 1.0000]])
    """
    mixture = HeadSystem.from_attention(attention, weights).diffusion_matrix()
    reached = mixture.cumsum(-2).clamp(max=1)
    steps = torch.diff(reached, dim=-2, prepend=torch.zeros_like(reached[..., :1, :]))
    steps[..., -1, :] += 1 - reached[..., -1, :]
    steps[..., -1] = 0
    steps[..., -1, -1] = 1  # the sampler stops at the sink
    return steps


def published_mixing_proxy(attention: Float[Tensor, "*batch heads n n"], weights=None,
                           max_steps: int = 100) -> Float[Tensor, "*batch"]:
    """The mean that the published Monte-Carlo mixing time estimates.

    The expectation of min(T, max_steps), T the time at which the walk of
    `published_transitions` first stands on the sink, averaged over all n starts
    (the sink's own T is 0): the sum of P(T > t) over t < max_steps.

    Parameters
    ----------
    attention, weights
        As in `published_transitions`.
    max_steps
        The sampler's cap on the length of a walk.

    Returns
    -------
    Tensor
        Shape (...), in steps.

    Raises
    ------
    ValueError
        As in `published_transitions`; if `max_steps` is not a whole number >= 1.

    Examples
    --------
    >>> uniform = torch.ones(1, 2, 2).tril() / torch.tensor([[1.0], [2.0]])
    >>> published_mixing_proxy(uniform)  # from node 0 the walk never moves on
    tensor(50.)
    """
    walk = published_transitions(attention, weights)
    return mean_capped_time(walk, max_steps)


def mean_capped_time(walk: Float[Tensor, "*batch n n"], max_steps: int) -> Float[Tensor, "*batch"]:
    """The mean over all starts of E min(T, max_steps) for a walk matrix, shape (...).

    Examples
    --------
    >>> mean_capped_time(torch.tensor([[0.5, 0.0], [0.5, 1.0]]), max_steps=3)
    tensor(0.8750)
    """
    max_steps = check_count("max_steps", max_steps)
    survival = walk.new_ones(walk.shape[:-2] + (1, walk.shape[-1]))
    survival[..., -1] = 0
    total = torch.zeros_like(survival)
    for _ in range(max_steps):
        total = total + survival
        survival = survival @ walk
    return total.mean((-1, -2))


def published_fidelity_proxy(attention: Float[Tensor, "*batch heads n n"], weights=None,
                             horizon: int = 100) -> Float[Tensor, "*batch"]:
    """The published minimax fidelity: `minimax_fidelity` with the sink among the nodes.

    The public code gives it in percent; here it is a share, from 0 to 1.

    Parameters
    ----------
    attention, weights
        As in `published_transitions`.
    horizon
        The last step looked at.

    Returns
    -------
    Tensor
        Shape (...).

    Raises
    ------
    ValueError
        As in `published_transitions`; if `horizon` is not a whole number >= 1.

    Examples
    --------
    >>> uniform = torch.ones(1, 3, 3).tril() / torch.tensor([[1.0], [2.0], [3.0]])
    >>> published_fidelity_proxy(uniform)
    tensor(0.3333)
    """
    mixture = HeadSystem.from_attention(attention, weights).diffusion_matrix()
    return minimax_fidelity(mixture, horizon, include_sink=True)
