"""What the head weights are optimised for: logarithms, one a node, with derivatives.

An objective has `values(weights)`, all its functions at weights (heads,), to be
minimised in their maximum, and `at(weights, working)`, the functions named by
`working` and a function that returns their derivatives (len(working), heads). NumPy,
float64.
"""

import numpy as np
from scipy.linalg.lapack import dtrtrs

__all__ = ["Fidelities", "HittingTimes"]


class HittingTimes:
    """log h_j for every start j but the sink, or log of their mean over all n starts.

    A h = c with A_jj = sum_{i>j} F_ij, A_ji = -F_ij and c = 1 for walks, or the column
    sums of flows that are normalised after mixing. Both are linear in the weights, so
    dh/dweight_a = A^{-1} (c^a - A^a h): read off by a second solve, with A transposed.
    """

    def __init__(self, flows: np.ndarray, average: bool):
        below = np.tril(flows, -1)[:, :, :-1]
        self.cost = flows.sum(-2)[:, :-1]
        self.matrices = -below[:, :-1].swapaxes(-1, -2).copy()
        diagonal = np.arange(self.cost.shape[-1])
        self.matrices[:, diagonal, diagonal] = below.sum(-2)
        self.readout = (np.full((1, len(diagonal)), 1 / (len(diagonal) + 1)) if average
                        else np.eye(len(diagonal)))

    def _times(self, weights):
        """The mixture A, transposed and so lower triangular, and the times h."""
        matrix = np.tensordot(weights, self.matrices, 1).T
        times, singular = dtrtrs(matrix, weights @ self.cost, lower=1, trans=1)
        return matrix, np.full_like(times, np.inf) if singular else times

    def values(self, weights):
        with np.errstate(invalid="ignore"):
            return np.log(self.readout @ self._times(weights)[1])

    def at(self, weights, working):
        matrix, times = self._times(weights)
        readout = self.readout[working]
        read = readout @ times

        def derivatives():
            adjoint, _ = dtrtrs(matrix, readout.T, lower=1, trans=0)
            return ((self.cost - self.matrices @ times) @ adjoint).T / read[:, None]

        with np.errstate(invalid="ignore"):
            return np.log(read), derivatives


class Fidelities:
    """-log phi_j for every node j but the sink.

    After t steps the sink's signal of j, (D^t)_{sink j}, can never exceed the sum of its
    signals of j and later nodes: no node is followed longer than that allows, nor one
    whose fidelity is already twice the least.
    """

    def __init__(self, matrices: np.ndarray, horizon: int):
        self.matrices, self.horizon = matrices, horizon

    def _follow(self, weights, working=None):
        """The mixture, the signals (steps + 1, n), each node's best and when it was."""
        mixture = np.tensordot(weights, self.matrices, 1)
        rows = [np.eye(len(mixture))[-1]]
        best, when = np.zeros(len(mixture) - 1), np.zeros(len(mixture) - 1, dtype=int)
        for step in range(1, self.horizon + 1):
            rows.append(rows[-1] @ mixture)
            better = rows[-1][:-1] > best
            best, when = np.where(better, rows[-1][:-1], best), np.where(better, step, when)
            settled = best >= rows[-1][::-1].cumsum()[:0:-1]
            if (settled | (best > 2 * best.min()))[... if working is None else working].all():
                break
        return mixture, rows, best, when

    def values(self, weights):
        with np.errstate(divide="ignore"):
            return -np.log(self._follow(weights)[2])

    def at(self, weights, working):
        mixture, rows, best, when = self._follow(weights, working)
        best, when = best[working], when[working]

        def derivatives():
            adjoint = np.zeros((len(mixture), len(working)))
            slopes = np.zeros((len(weights), len(working)))
            for step in range(when.max(), 0, -1):
                adjoint[working, np.arange(len(working))] += when == step
                slopes += (rows[step - 1] @ self.matrices) @ adjoint
                adjoint = mixture @ adjoint
            return -(slopes / best).T

        with np.errstate(divide="ignore"):
            return -np.log(best), derivatives
