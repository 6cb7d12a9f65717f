"""When can a mixture win? Walls that no mixture passes, and slopes at given weights.

*Free choice*: at every node, and for signals at every step, the better head is taken.
A mixture tosses a coin instead, so it does no better, whatever its weights: what free
choice cannot reach, no mixture can (necessary). *Slopes*: how times and fidelities
change as weight moves to another head. At the best head alone, if all that is worst
gets better towards another head, a little of that head helps (sufficient).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_count, refuse
from manyheads.synergy.heads import HeadSystem
from manyheads.synergy.walks import expected_hitting_times

__all__ = [
    "fidelity_slopes",
    "free_choice_fidelities",
    "free_choice_hitting_times",
    "hitting_time_slopes",
]

# Signals this close to the largest (relatively) share its place: rounding decides nothing.
TIE = {torch.float32: 1e-5, torch.float64: 1e-12}


def free_choice_hitting_times(system: HeadSystem) -> Float[Tensor, "*batch n"]:
    """Expected steps to the sink if every node sends by the head that is best for it.

    h_j = min_a (1 + sum_{i>j} W^a_ij h_i) / sum_{i>j} W^a_ij, from the last node
    backwards. No mixture, of any weights, has a shorter time from any node.

    Parameters
    ----------
    system
        Its weights do not matter, also where they are 0.

    Returns
    -------
    Tensor
        Shape (..., n), in steps; inf where no choice leads to the sink.

    Raises
    ------
    ValueError
        If `system` is no HeadSystem.

    Examples
    --------
    Alone both heads need 4 steps from their worst start, mixed 3, and by choice 2:

    >>> system = HeadSystem.from_edges(4, [[(0, 2), (1, 3), (2, 3)], [(0, 3), (1, 2), (2, 3)]])
    >>> free_choice_hitting_times(system)
    tensor([2., 2., 2., 0.], dtype=torch.float64)
    """
    walks = _each(system, "walk_matrix")
    times = [walks.new_zeros(walks.shape[:-3])]  # from the last node to the first
    for node in reversed(range(system.num_nodes - 1)):
        onward, later = walks[..., node + 1:, node], torch.stack(times[::-1], -1)
        progress = onward.sum(-1)
        # No move, no wait for it: 0 * inf must not arise.
        waited = torch.where(onward > 0, onward * later.unsqueeze(-2), 0).sum(-1)
        times.append(((1 + waited) / progress).amin(-1))
    return torch.stack(times[::-1], -1)


def free_choice_fidelities(system: HeadSystem, horizon: int) -> Float[Tensor, "*batch n"]:
    """The fidelity of every node if each node reads, at each step, by the best head for it.

    For every target j: V_0 = e_j, V_t = max_a D^a V_{t-1} entry by entry, and the answer
    is max_t V_t[sink]. No mixture, of any weights, has a larger fidelity of any node.

    Parameters
    ----------
    system
        Its weights do not matter, also where they are 0.
    horizon
        The last step looked at, as in `node_fidelities`.

    Returns
    -------
    Tensor
        Shape (..., n), in [0, 1].

    Raises
    ------
    ValueError
        If `system` is no HeadSystem or `horizon` is not a whole number >= 1.

    Examples
    --------
    A relay: only one head after the other carries node 0 to the sink.

    >>> system = HeadSystem.from_edges(3, [[(0, 1)], [(1, 2)]])
    >>> free_choice_fidelities(system, 2)[0]
    tensor(0.2500, dtype=torch.float64)
    """
    rows = _each(system, "diffusion_matrix")
    horizon = check_count("horizon", horizon)
    nodes = system.num_nodes
    best = rows.new_zeros(rows.shape[:-3] + (nodes,))
    held = torch.eye(nodes, dtype=rows.dtype, device=rows.device).expand(best.shape + (nodes,))
    for _ in range(horizon):
        held = (rows @ held.unsqueeze(-3)).amax(-3)
        best = torch.maximum(best, held[..., -1, :])
    return best


def hitting_time_slopes(system: HeadSystem) -> Float[Tensor, "*batch heads n"]:
    """Derivatives of the hitting times as weight moves to each head.

    Along weights + s (e_a - weights), at s = 0.

    Parameters
    ----------
    system
        With weights at which every node reaches the sink.

    Returns
    -------
    Tensor
        Shape (..., heads, n): a negative entry [a, j] says that more of head a makes
        node j faster.

    Raises
    ------
    ValueError
        If `system` is no HeadSystem, or a node never reaches the sink.

    Examples
    --------
    >>> system = HeadSystem.from_edges(
    ...     4, [[(0, 2), (1, 3), (2, 3)], [(0, 3), (1, 2), (2, 3)]], weights=[1, 0])
    >>> hitting_time_slopes(system)[1]
    tensor([-2.,  2.,  0.,  0.], dtype=torch.float64)
    """
    each = _each(system, "walk_matrix")
    walk = system.walk_matrix()
    times = expected_hitting_times(walk)
    if not torch.isfinite(times).all():
        refuse("system", "one in which every node reaches the sink", system)
    # (1 - W^T) dh = (W^a - W)^T h, the sink's row being that of the identity.
    cost = ((each - walk.unsqueeze(-3)) * times[..., None, :, None]).sum(-2)
    matrix = -walk.tril(-1).mT
    progress = walk.tril(-1).sum(-2)
    progress[..., -1] = 1
    matrix.diagonal(dim1=-2, dim2=-1).copy_(progress)
    return torch.linalg.solve_triangular(matrix, cost.mT, upper=True).mT


def fidelity_slopes(system: HeadSystem, horizon: int) -> Float[Tensor, "*batch heads n"]:
    """Right derivatives of the node fidelities as weight moves to each head.

    Along weights + s (e_a - weights), at s = 0, of max over t = 1..horizon of the signal
    at the sink; of several best steps the one that gains most.

    Parameters
    ----------
    system
        With weights.
    horizon
        As in `node_fidelities`. The signal of a source rises for ever; if it is none in
        head a, the slope falls below every bound as the horizon grows.

    Returns
    -------
    Tensor
        Shape (..., heads, n).

    Raises
    ------
    ValueError
        If `system` is no HeadSystem or `horizon` is not a whole number >= 1.

    Examples
    --------
    >>> system = HeadSystem.from_edges(3, [[(0, 1), (1, 2)], [(0, 2), (1, 2)]], weights=[1, 0])
    >>> fidelity_slopes(system, 60)[1, 2].round(decimals=4)
    tensor(-0.1667, dtype=torch.float64)
    """
    each = _each(system, "diffusion_matrix")
    horizon = check_count("horizon", horizon)
    rows = system.diffusion_matrix().unsqueeze(-3)
    change = each - rows
    signal = rows[..., -1:, :].expand(each[..., -1:, :].shape)
    slope = change[..., -1:, :]
    best, best_slope = signal, slope
    for _ in range(horizon - 1):
        signal, slope = signal @ rows, slope @ rows + signal @ change
        tie = (signal - best).abs() <= TIE[signal.dtype] * best
        best_slope = torch.where(tie, torch.maximum(best_slope, slope),
                                 torch.where(signal > best, slope, best_slope))
        best = torch.maximum(best, signal)
    return best_slope.squeeze(-2)


def _each(system, matrix: str) -> Tensor:
    """The walk or diffusion matrices of the heads alone, shape (..., heads, n, n)."""
    if not isinstance(system, HeadSystem):
        refuse("system", "a HeadSystem", system)
    each = torch.stack([getattr(system.head(head), matrix)() for head in range(system.heads)], -3)
    batch = torch.broadcast_shapes(each.shape[:-3], system.weights.shape[:-1])
    return each.expand(batch + each.shape[-3:])
