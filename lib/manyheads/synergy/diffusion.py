"""Diffusion matrices: how clearly the last token still hears every other one.

A diffusion matrix D is row-stochastic and lower triangular: after a step node i
holds the average sum_j D[i, j] x[j] of what it receives. The entry (D^t)[sink, j]
is how much of node j's signal the sink holds after t steps.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_bool, check_count, refuse
from manyheads.synergy._causal import check_causal, check_stochastic
from manyheads.synergy.heads import HeadSystem

__all__ = ["cross_head_paths", "minimax_fidelity", "node_fidelities"]

# The most entries that `cross_head_paths` returns, and steps: two heads pass the
# one before the other.
MOST_PATHS, MOST_STEPS = 10**7, 23


def node_fidelities(diffusion: Float[Tensor, "*batch n n"],
                    horizon: int) -> Float[Tensor, "*batch n"]:
    """The fidelity of every node: max over t = 1..horizon of (D^t)[sink, node].

    Parameters
    ----------
    diffusion
        Row-stochastic, lower triangular, shape (..., n, n).
    horizon
        The last step looked at. A node d edges from the sink has fidelity 0
        before step d, so use at least n - 1; sources approach a limit.

    Returns
    -------
    Tensor
        Shape (..., n), in [0, 1].

    Raises
    ------
    ValueError
        If `diffusion` is not a finite, non-negative, lower triangular float tensor
        whose rows sum to 1, or `horizon` is not a whole number >= 1.

    Examples
    --------
    >>> node_fidelities(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), horizon=3)
    tensor([0.8750, 0.5000])
    """
    _check_diffusion(diffusion)
    horizon = check_count("horizon", horizon)
    signal = best = diffusion[..., -1:, :]
    for _ in range(horizon - 1):
        signal = signal @ diffusion
        best = torch.maximum(best, signal)
    return best.squeeze(-2)


def minimax_fidelity(diffusion: Float[Tensor, "*batch n n"], horizon: int, *,
                     include_sink: bool = False) -> Float[Tensor, "*batch"]:
    """The fidelity of the node that the sink hears worst.

    Parameters
    ----------
    diffusion, horizon
        As in `node_fidelities`.
    include_sink
        Whether the sink's own fidelity D[sink, sink] takes part in the minimum.

    Returns
    -------
    Tensor
        Shape (...).

    Raises
    ------
    ValueError
        As in `node_fidelities`; if `include_sink` is not a bool; for one node
        without `include_sink`, where there is nothing to take the minimum of.

    Examples
    --------
    >>> minimax_fidelity(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), horizon=3)
    tensor(0.8750)
    """
    check_bool("include_sink", include_sink)
    fidelities = node_fidelities(diffusion, horizon)
    if not include_sink:
        fidelities = fidelities[..., :-1]
    if fidelities.shape[-1] == 0:
        refuse("diffusion", "of at least two nodes unless include_sink=True", diffusion)
    return fidelities.amin(-1)


def cross_head_paths(system: HeadSystem, steps: int) -> Float[Tensor, "..."]:
    """What every sequence of heads contributes to the layer's signal at the sink.

    Parameters
    ----------
    system
        H heads on n nodes with their weights.
    steps
        The length t of the sequences, at least 1.

    Returns
    -------
    Tensor
        Shape (..., H, ..., H, n) with t head axes in time order: the entry
        [a_1, ..., a_t, j] is the product of the weights of a_1..a_t times
        (D^{a_t} ... D^{a_1})[sink, j], where a_1 acts first. The sum over the head
        axes is (D^t)[sink, j] of the mixture; the entries with equal heads are the
        paths that one head has alone.

    Raises
    ------
    ValueError
        If `system` is no HeadSystem, `steps` is not a whole number from 1 to 23,
        or the result would have more than ten million entries.

    Examples
    --------
    Only head 0 then head 1 carries node 0 to node 2 through node 1:

    >>> system = HeadSystem.from_edges(3, [[(0, 1)], [(1, 2)]])
    >>> cross_head_paths(system, 2)[..., 0]
    tensor([[0.0000, 0.0625],
            [0.0000, 0.0000]], dtype=torch.float64)
    """
    if not isinstance(system, HeadSystem):
        refuse("system", "a HeadSystem", system)
    steps = check_count("steps", steps, most=MOST_STEPS)
    heads, nodes = system.heads, system.num_nodes
    batch = torch.broadcast_shapes(system.flows.shape[:-3], system.weights.shape[:-1])
    size = batch.numel() * heads**steps * nodes
    if size > MOST_PATHS:
        refuse("steps", f"few enough for {MOST_PATHS:,} entries (batch x heads**steps x nodes)",
               f"{steps} steps of {heads} heads, {size:,} entries")
    each = torch.stack([system.head(head).diffusion_matrix() for head in range(heads)], -3)
    each = (each * system.weights[..., None, None]).expand(batch + (heads, nodes, nodes))
    # Rows e_sink D^{a_t} ... are extended on the right, by an earlier head each time.
    paths = each[..., -1, :]
    for _ in range(steps - 1):
        paths = (paths.unsqueeze(-3) @ each).flatten(-3, -2)
    return paths.unflatten(-2, (heads,) * steps)


def _check_diffusion(diffusion):
    """Refuse what is not a diffusion matrix."""
    row_sums, _ = check_causal("diffusion", diffusion)
    check_stochastic("diffusion", diffusion, row_sums, "row",
                     "HeadSystem(...).diffusion_matrix() makes one of any heads")
