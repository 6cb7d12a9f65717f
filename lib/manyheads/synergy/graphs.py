"""Graphs to compare with: the line, the full causal graph, random ones; closed forms.

From a node with k nodes after it, the hitting time of the sink is a sum of independent
geometric variables. On the line there are k of them with success 1/2. On the full causal
graph it is 1 + X_1 + ... + X_k, where X_r counts the failures before a success of
probability r/(r + 1); and so it is, with other probabilities, in every walk in which all
nodes rate their later nodes alike.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import sympy
import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_count, check_number, check_tensor, refuse
from manyheads._formulas import value
from manyheads.synergy.heads import HeadSystem

__all__ = [
    "HITTING_LAWS",
    "SYMBOLS",
    "HittingLaw",
    "full_graph",
    "line_graph",
    "random_graphs",
    "separable_moments",
]

SYMBOLS = SimpleNamespace(
    k=sympy.Symbol("k", integer=True, positive=True),  # nodes after the start
    t=sympy.Symbol("t", integer=True, nonnegative=True),  # steps
    z=sympy.Symbol("z"),  # of the generating function
)
_k, _t, _z = SYMBOLS.k, SYMBOLS.t, SYMBOLS.z
_r = sympy.Symbol("r", integer=True, nonnegative=True)


@dataclass(frozen=True)
class HittingLaw:
    """The hitting time T of the sink from a node with k >= 1 nodes after it, in `SYMBOLS`."""

    mean: sympy.Expr
    variance: sympy.Expr
    survival: sympy.Expr  # P(T > t)
    generating_function: sympy.Expr  # E z^T

    def moments(self, following: int) -> tuple[float, float]:
        """Mean and variance from a node with `following` nodes after it, at least 1.

        Examples
        --------
        >>> HITTING_LAWS["line"].moments(5)
        (10.0, 10.0)
        """
        following = check_count("following", following)
        mean, variance = (value(moment.rewrite(sympy.polygamma), {_k: following})
                          for moment in (self.mean, self.variance))
        return mean, variance


HITTING_LAWS = {
    "line": HittingLaw(
        mean=2 * _k, variance=2 * _k,
        survival=sympy.Sum(sympy.binomial(_t, _r), (_r, 0, _k - 1)) / 2**_t,
        generating_function=(_z / (2 - _z))**_k),
    "full": HittingLaw(
        mean=1 + sympy.harmonic(_k),
        variance=sympy.harmonic(_k) + sympy.harmonic(_k, 2),
        survival=sympy.Sum((-1)**(_r + 1) * sympy.binomial(_k, _r) * (_r + 1)**(-_t),
                           (_r, 1, _k)),
        generating_function=_z * sympy.Product(_r / (_r + 1 - _z), (_r, 1, _k))),
}


def line_graph(num_nodes: int, *, progress: int | float = 0.5) -> HeadSystem:
    """One head that sends every node's information to the next node, float64.

    Parameters
    ----------
    num_nodes
        At least 1.
    progress
        The flow of an edge, in (0, 1]; that of a self-loop is the rest to 1 (of the
        sink: 1). With 1/2 the walk is that of the unweighted line.

    Examples
    --------
    >>> line_graph(3).walk_matrix()[:, 0]
    tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    num_nodes = check_count("num_nodes", num_nodes)
    progress = check_number("progress", progress, least=0, most=1)
    if progress == 0:
        refuse("progress", "more than 0", progress)
    flows = torch.full((num_nodes,), 1 - progress, dtype=torch.float64).diag()
    flows.diagonal(-1).fill_(progress)
    flows[-1, -1] = 1
    return HeadSystem(flows[None])


def full_graph(num_nodes: int) -> HeadSystem:
    """One head with an edge from every node to every later one, float64.

    Its walk is that of uniform causal attention whose columns are counted, not weighed.

    Examples
    --------
    >>> full_graph(3).walk_matrix()[:, 0]
    tensor([0.3333, 0.3333, 0.3333], dtype=torch.float64)
    """
    num_nodes = check_count("num_nodes", num_nodes)
    return HeadSystem(torch.ones(1, num_nodes, num_nodes, dtype=torch.float64).tril())


def random_graphs(num_nodes: int, count: int, *, heads: int = 1, density: int | float = 0.5,
                  weighted: bool = False, seed: int) -> HeadSystem:
    """A batch of head systems on random graphs from which every node reaches the sink.

    Parameters
    ----------
    num_nodes, count, heads
        Nodes of a graph, at least 2; systems in the batch; heads of a system.
    density
        Probability of an edge, in [0, 1], given that every node keeps at least one:
        a node without any gets one to a later node, all equally likely.
    weighted
        Give every edge and self-loop a flow spread over three orders of magnitude
        (10 to a power uniform in [-3, 0]), else 1.
    seed
        Of the generator.

    Returns
    -------
    HeadSystem
        Flows (count, heads, num_nodes, num_nodes), float64.

    Examples
    --------
    >>> random_graphs(5, 100, seed=0)
    HeadSystem(heads=1, num_nodes=5, batch=(100,), weights=[1])
    """
    num_nodes = check_count("num_nodes", num_nodes, least=2)
    count, heads = check_count("count", count), check_count("heads", heads)
    density = check_number("density", density, least=0, most=1)
    generator = torch.Generator().manual_seed(check_count("seed", seed, least=0))
    shape = (count, heads, num_nodes, num_nodes)
    draws = torch.rand(shape, generator=generator, dtype=torch.float64).tril(-1)
    # A column's largest draw is an edge in any case: of equal draws it is uniform.
    edges = ((draws > 1 - density) | (draws == draws.amax(-2, keepdim=True))) & (draws > 0)
    flows = (edges | torch.eye(num_nodes, dtype=torch.bool)).double()
    if weighted:
        flows *= 10**(-3 * torch.rand(shape, generator=generator, dtype=torch.float64))
    return HeadSystem(flows)


def separable_moments(
    pull: Float[Tensor, "*batch n"],
) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n"]]:
    """Mean and variance of the hitting times of a walk that goes from j to i >= j like pull_i.

    W_ij = pull_i / S_j with S_j the sum of pull_i over i >= j. So walks attention whose
    scores are q_i + k_j, with pull_i = 1 / sum_{j <= i} exp(k_j), and the full causal
    graph, with equal pulls.

    Parameters
    ----------
    pull
        Shape (..., n), positive.

    Returns
    -------
    tuple of Tensor
        Both of shape (..., n): 1 + sum over j <= i < n of pull_i / S_{i+1}, and the sum
        of pull_i S_i / S_{i+1}^2; 0 at the sink.

    Raises
    ------
    ValueError
        If `pull` is not a finite, positive float tensor.

    Notes
    -----
    Ours (chapter "How fast do heads mix?"): the numbers of steps spent at the nodes after
    j are independent, as records are.

    Examples
    --------
    >>> separable_moments(torch.ones(4, dtype=torch.float64))[0]
    tensor([2.8333, 2.5000, 2.0000, 0.0000], dtype=torch.float64)
    """
    check_tensor("pull", pull, "... n")
    if pull.detach().amin().item() <= 0:
        refuse("pull", "positive", f"an entry {pull.amin().item():g}")
    after = pull.flip(-1).cumsum(-1).flip(-1)
    ratio = pull[..., :-1] / after[..., 1:]  # mean steps at a node, if the walk starts before
    mean, variance = ((each.flip(-1).cumsum(-1).flip(-1))
                      for each in (ratio, ratio * (1 + ratio)))
    rest = torch.zeros_like(pull[..., :1])
    return torch.cat([mean + 1, rest], -1), torch.cat([variance, rest], -1)
