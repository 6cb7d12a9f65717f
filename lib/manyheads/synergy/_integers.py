"""Walks and signals of many small graphs at once, in integers.

A mixture of two graphs is kept as integer numerators and, for each line that sums to
one, a denominator. Nothing is rounded: hitting times fit into int64 (`pairs` says up
to which size), laws and signals grow with the steps and are Python integers.
A value comes as a pair (numerators, denominators).
"""

import numpy as np


def mixtures(graphs, first, second, weights, axis):
    """Numerators (k, n, n) and line denominators (k, n) of mixed pairs of 0/1 graphs.

    `axis` is -2 for walks (columns sum to one), -1 for diffusions (rows do).
    """
    sums = graphs.sum(axis, keepdims=True)
    one, two = weights
    numerators = (one * graphs[first] * sums[second] + two * graphs[second] * sums[first])
    return numerators, ((one + two) * sums[first] * sums[second]).squeeze(axis)


def hitting_times(numerators, denominators):
    """Expected steps to the sink: numerators (k, n), one denominator for each k."""
    times, scale = np.zeros_like(denominators), np.ones_like(denominators[:, 0])
    for node in reversed(range(times.shape[-1] - 1)):
        onward = numerators[:, node + 1:, node]
        progress = onward.sum(-1)
        time = denominators[:, node] * scale + (onward * times[:, node + 1:]).sum(-1)
        times *= progress[:, None]
        times[:, node] = time
        scale = scale * progress
    return times, scale


def mixing_times(numerators, denominators, epsilon):
    """Least t with P_j(T > t) <= epsilon (a Fraction) for every start j: shape (k,)."""
    walks, scale = _common(numerators, denominators[:, None, :])
    survival = np.ones(scale.shape + (1, walks.shape[-1]), dtype=object)
    survival[..., -1] = 0
    total = np.ones_like(scale)
    times, active = np.zeros(len(scale), dtype=np.int64), np.arange(len(scale))
    while len(active):
        late = survival.max((-1, -2)) * epsilon.denominator > epsilon.numerator * total
        active, walks, scale = active[late], walks[late], scale[late]
        survival, total = survival[late] @ walks, total[late] * scale
        times[active] += 1
    return times


def least_fidelities(numerators, denominators):
    """Minimax fidelity over all steps, limits included: numerators (k,), denominators (k,).

    The signal of a source rises towards its limit. That of another node j cannot pass
    what the sink, after t steps, has yet to pass back to j: its mass on the nodes
    j, j + 1, ... that are no sources. Where that is no more than the largest signal so
    far, the search ends.
    """
    rows, scale = _common(numerators, denominators[:, :, None])
    source = rows.diagonal(axis1=-2, axis2=-1) == scale[:, None]
    limits, over = _limits(rows, scale, source)
    best, total = np.zeros_like(rows[:, -1]), np.ones_like(scale)
    least, under = least_ratio(np.where(source, limits, over[:, None])[:, :-1],
                               np.broadcast_to(over[:, None], limits[:, :-1].shape))
    active = np.arange(len(scale))
    signal = np.zeros_like(best)[:, None, :]
    signal[..., -1] = 1
    while len(active):
        signal = signal @ rows
        total = total * scale
        best = np.maximum(best * scale[:, None], signal[:, 0])
        left = np.where(source, 0, signal[:, 0])[:, ::-1].cumsum(-1)[:, ::-1]
        done = (source | (left <= best))[:, :-1].all(-1)
        # A source's entry is 1 here: its limit is in `least` already.
        found = np.where(source, total[:, None], best)[done, :-1].min(-1)
        ended = active[done]
        least[ended], under[ended] = least_ratio(
            np.stack([least[ended], found], -1), np.stack([under[ended], total[done]], -1))
        active, rows, scale, source, best, total, signal = (
            each[~done] for each in (active, rows, scale, source, best, total, signal))
    return least, under


def least_ratio(numerators, denominators):
    """The least of the fractions along the last axis, as numerator and denominator."""
    at = np.zeros(len(numerators), dtype=np.int64)
    rows = np.arange(len(numerators))
    for column in range(1, numerators.shape[-1]):
        less = (numerators[:, column] * denominators[rows, at]
                < numerators[rows, at] * denominators[:, column])
        at[less] = column
    return numerators[rows, at], denominators[rows, at]


def _common(numerators, denominators):
    """Numerators, as Python integers, over one denominator for each k."""
    scale = np.lcm.reduce(denominators.reshape(len(denominators), -1), axis=-1)
    return (numerators * (scale[:, None, None] // denominators)).astype(object), \
        scale.astype(object)


def _limits(rows, scale, source):
    """What the sink holds of every source in the end: numerators (k, n), denominators (k,)."""
    nodes = rows.shape[-1]
    held = np.zeros(rows.shape, dtype=object)  # of node i, what it holds of source j
    over = np.ones_like(scale)
    for node in range(nodes):
        passed_on = np.where(source[:, node], 1, scale - rows[:, node, node])
        gained = (rows[:, node, :node, None] * held[:, :node]).sum(-2) if node else held[:, 0]
        held *= passed_on[:, None, None]
        held[:, node] = np.where(source[:, node, None], 0, gained)
        over = over * passed_on
        held[:, node, node] = np.where(source[:, node], over, 0)
    return held[:, -1], over
