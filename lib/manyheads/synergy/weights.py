"""Best head weights: the mixture that is fastest, clearest, or surest to move on.

Neither the hitting time nor the fidelity is convex or concave in the weights, so a
local search starts from several places, and every single head takes part in the
comparison. Both are the worst of several smooth functions, one a node, and are
optimised as that: least s with f_j(weights) <= s, by sequential quadratic
programming on logarithms, with derivatives from adjoint equations. The progress
min_j p_j is the value of a matrix game: a linear program, solved for good.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import linprog, minimize
from torch import Tensor

from manyheads._checks import check_bool, check_choice, check_count, refuse
from manyheads.synergy._objectives import Fidelities, HittingTimes
from manyheads.synergy.diffusion import minimax_fidelity
from manyheads.synergy.heads import HeadSystem
from manyheads.synergy.walks import expected_hitting_times

__all__ = ["BestWeights", "best_weights"]

OBJECTIVES = ("hitting_time", "fidelity", "progress")

# Of two heads the whole segment is looked at, of more a sample of the simplex.
SEGMENT, SAMPLE = 32, 32
# Searches run from the best places at least this far apart (in l1), and as many.
APART, SEARCHES = 0.3, 4
# Functions that take part in a search: the worst at its start, more if they turn worst.
WORKING, ROUNDS = 24, 6
# A search keeps off the faces, where a time may be infinite; its end is tried there too.
OFF_FACE, ON_FACE = 1e-10, 1e-6
# Accuracy of a logarithm in the searches, and in the last one, from the best of their ends.
COARSE, FINE = 1e-9, 1e-14
# A mixture must be better than the best head by more than rounding to be preferred.
TIE = 1e-9


@dataclass(frozen=True)
class BestWeights:
    """What `best_weights` found; batch axes (...) are those of the system's flows."""

    objective: str
    weights: Float[Tensor, "... heads"]  # the mixture
    value: Float[Tensor, "..."]  # its hitting time, fidelity or progress
    head: Int[Tensor, "..."]  # the best head alone, the first of equals
    head_value: Float[Tensor, "..."]

    @property
    def gain(self) -> Float[Tensor, "..."]:
        """How many times better than the best head alone, at least 1."""
        better, worse = self.value, self.head_value
        if self.objective == "hitting_time":
            better, worse = worse, better
        return torch.where(better == worse, torch.ones_like(better), better / worse)


def best_weights(system: HeadSystem, objective: str = "hitting_time", *, average: bool = False,
                 normalize: str = "before", horizon: int | None = None,
                 seed: int = 0) -> BestWeights:
    """The head weights with the best value found, never worse than the best head.

    Parameters
    ----------
    system
        H heads on n nodes. Their present weights do not matter; of a batch every
        member is solved on its own.
    objective
        "hitting_time": least expected hitting time of the sink from its worst start.
        "fidelity": largest minimax fidelity, the sink left out. "progress": largest
        p(weights) = min_j sum_a weights_a p_j^a over the nodes j but the sink, with
        p_j^a = 1 - W^a_jj.
    average
        Hitting time from the mean over all n starts, the sink among them.
    normalize
        As in `HeadSystem.walk_matrix`, for the hitting time.
    horizon
        Last step of the fidelity, as in `minimax_fidelity`. Default: 4 n.
    seed
        Of the starting points sampled for three and more heads.

    Returns
    -------
    BestWeights
        In the dtype and on the device of the system. For "progress" the value is
        the maximum. For the others it is a local optimum, the best of several
        searches. The best head alone is returned unless a mixture is better by more
        than 1e-9 of the value. Where no weights let every node reach the sink the
        hitting time is inf (the fidelity 0), with all weight on head 0.

    Raises
    ------
    ValueError
        If an argument is not as described; for the fidelity or the progress of one
        node; for an `average`, a `normalize` or a `horizon` that the objective has
        no use for.

    Notes
    -----
    A float64 copy of the flows is held. A search step costs two triangular solves
    for hitting times; for fidelities twice as many products with the mixture as it
    takes until the weakest signal can rise no more.

    Examples
    --------
    The smallest pair of graphs that mixes faster than both (THEORY S3): 4, 4 and 3.

    >>> system = HeadSystem.from_edges(4, [[(0, 2), (1, 3), (2, 3)], [(0, 3), (1, 2), (2, 3)]])
    >>> best = best_weights(system)
    >>> best.weights.round(decimals=6), round(best.value.item(), 9), best.head_value
    (tensor([0.5000, 0.5000], dtype=torch.float64), 3.0, tensor(4., dtype=torch.float64))
    """
    if not isinstance(system, HeadSystem):
        refuse("system", "a HeadSystem", system)
    check_choice("objective", objective, OBJECTIVES)
    check_bool("average", average)
    check_choice("normalize", normalize, ("before", "after"))
    fast = objective == "hitting_time"
    for name, given, default, used in (("average", average, False, fast),
                                       ("normalize", normalize, "before", fast),
                                       ("horizon", horizon, None, objective == "fidelity")):
        if given != default and not used:
            refuse(name, f"left out for the objective {objective!r}", given)
    horizon = 4 * system.num_nodes if horizon is None else check_count("horizon", horizon)
    seed = check_count("seed", seed, least=0)
    if not fast and system.num_nodes == 1:
        refuse("system", f"of at least two nodes for the {objective}", system)

    flows = system.flows.detach()
    batch, nodes = flows.shape[:-3], system.num_nodes
    parts = [_solve(part, objective, average, normalize, horizon, seed)
             for part in flows.double().reshape(-1, system.heads, nodes, nodes)]
    weights, value, head, head_value = (torch.stack(field) for field in zip(*parts, strict=True))
    return BestWeights(objective, weights.to(flows).reshape(batch + (system.heads,)),
                       value.to(flows).reshape(batch), head.reshape(batch),
                       head_value.to(flows).reshape(batch))


def _solve(flows: Tensor, objective: str, average: bool, normalize: str, horizon: int, seed: int):
    """Weights, value, best head and its value of one system (heads, n, n) in float64."""
    system, heads = HeadSystem(flows), len(flows)
    sign = 1 if objective == "hitting_time" else -1

    def value(weights):
        """What the library says of weights (k, heads)."""
        mixed = system.mixed_with(weights)
        if objective == "fidelity":
            return minimax_fidelity(mixed.diffusion_matrix(), horizon)
        walk = mixed.walk_matrix(normalize=normalize)
        if objective == "progress":
            return walk.tril(-1).sum(-2)[..., :-1].amin(-1)
        times = expected_hitting_times(walk)
        return times.mean(-1) if average else times.amax(-1)

    each = torch.eye(heads, dtype=flows.dtype, device=flows.device)
    alone = value(each)
    head = (sign * alone).argmin()
    found = each[head], alone[head]
    if heads > 1 and system.num_nodes > 1:
        walks = _each(system, "walk_matrix")
        game = _game(walks)
        if objective == "progress":
            tried = game[None]
        elif objective == "fidelity":
            tried = _search(Fidelities(_each(system, "diffusion_matrix"), horizon), game, seed)
        else:
            heads_flows = walks if normalize == "before" else flows.cpu().numpy()
            tried = _search(HittingTimes(heads_flows, average), game, seed)
        if len(tried):
            tried = torch.from_numpy(tried).to(flows)
            values = value(tried)
            best = (sign * values).argmin()
            # With infinite or zero values on both sides nothing is gained.
            if sign * (values[best] - alone[head]) < -TIE * min(values[best], alone[head]):
                found = tried[best], values[best]
    return *found, head, alone[head]


def _each(system: HeadSystem, matrix: str) -> np.ndarray:
    """The walk or diffusion matrices of the heads alone, shape (heads, n, n)."""
    return np.stack([getattr(system.head(head), matrix)().cpu().numpy()
                     for head in range(system.heads)])


def _game(walks: np.ndarray) -> np.ndarray:
    """Weights with the largest least progress: the maximin strategy of a matrix game."""
    progress = np.tril(walks, -1).sum(-2)[:, :-1].T  # (nodes, heads)
    nodes, heads = progress.shape
    # The value lies between this over `heads` (equal weights) and this.
    scale = progress.max(-1).min()
    if scale == 0:
        return np.full(heads, 1 / heads)
    answer = linprog(np.append(np.zeros(heads), -1.0),
                     A_ub=np.column_stack([-progress / scale, np.ones(nodes)]),
                     b_ub=np.zeros(nodes), A_eq=[[1.0] * heads + [0.0]], b_eq=[1.0],
                     bounds=[(0, None)] * heads + [(None, None)], method="highs")
    weights = answer.x[:-1].clip(min=0)
    return weights / weights.sum()


def _search(functions, game: np.ndarray, seed: int) -> np.ndarray:
    """Candidates (k, heads): where searches from several starts began and ended."""
    starts = _starts(game, seed)
    worst = np.array([functions.values(start).max() for start in starts])
    if not np.isfinite(worst).any():
        return starts[:0]
    chosen = []
    for at in np.argsort(worst, kind="stable"):
        far = all(abs(starts[at] - other).sum() > APART for other in chosen)
        if far and np.isfinite(worst[at]) and len(chosen) < SEARCHES:
            chosen.append(starts[at])
    ends = [_descend(functions, start, COARSE) for start in chosen]
    ends.append(_descend(functions, min(ends, key=lambda end: functions.values(end).max()), FINE))
    on_face = [np.where(end < ON_FACE, 0, end) for end in ends]
    tried = np.array(chosen + ends + on_face)
    return tried / tried.sum(-1, keepdims=True)


def _starts(game: np.ndarray, seed: int) -> np.ndarray:
    """Places inside the simplex: the middle, the game's, near each head, and a sample."""
    heads = len(game)
    uniform = np.full((1, heads), 1 / heads)
    if heads == 2:
        first = np.arange(1, SEGMENT) / SEGMENT
        sample = np.column_stack([first, 1 - first])
    else:
        # Weight on few heads, on several, on all.
        draw = np.random.default_rng(seed)
        sample = np.concatenate([draw.dirichlet(np.full(heads, 2.0**power), SAMPLE // 4)
                                 for power in (-3, -2, -1, 0)])
    places = np.concatenate([uniform, game[None], np.eye(heads), sample])
    return 0.95 * places + 0.05 * uniform


def _descend(functions, weights: np.ndarray, accuracy: float) -> np.ndarray:
    """A local minimum of the largest of the functions, from `weights`."""
    heads = len(weights)
    values = functions.values(weights)
    working = np.argsort(-values, kind="stable")[:WORKING]
    for _ in range(ROUNDS):
        level = max(values[working])

        @_remember
        def at(point, working=working):
            return functions.at(point[:-1], working)

        answer = minimize(
            lambda point: point[-1], np.append(weights, level), method="SLSQP",
            jac=lambda point: np.append(np.zeros(heads), 1.0),
            bounds=[(OFF_FACE, 1)] * heads + [(None, None)],
            constraints=[
                {"type": "eq", "fun": lambda point: point[:-1].sum() - 1,
                 "jac": lambda point: np.append(np.ones(heads), 0.0)},
                {"type": "ineq", "fun": lambda point: point[-1] - at(point)[0],
                 "jac": lambda point: np.column_stack([-at(point)[1](), np.ones(len(working))])},
            ],
            options={"ftol": accuracy, "maxiter": 50})
        end = answer.x[:-1].clip(OFF_FACE, 1)
        end = end / end.sum()
        values = functions.values(end)
        if not np.isfinite(values).all():
            break
        weights, new = end, values.argmax()
        if new in working:
            break
        working = np.append(working, new)
    return weights


def _remember(function):
    """`function` of an array, with its last answer kept."""
    last = [None, None]

    def remembering(point):
        if last[0] is None or not np.array_equal(last[0], point):
            last[:] = point.copy(), function(point)
        return last[1]

    return remembering
