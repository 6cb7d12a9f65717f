"""What every public function refuses, and how: a ValueError that names the argument,
what is allowed and what was given."""

import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
import torch

from manyheads.synergy import (
    HeadSystem, cross_head_paths, expected_hitting_times, hitting_time_cdf, minimax_fidelity,
    mixing_time, node_fidelities,
)
from tests.synergy.examples import random_attention

# Under jaxtyping's import hook the annotations refuse first, with another exception.
pytestmark = pytest.mark.skipif(
    hasattr(expected_hitting_times, "__wrapped__"), reason="annotations are being enforced")

F64 = torch.float64
WALK = torch.tensor([[0.5, 0.0], [0.5, 1.0]])
DIFFUSION = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
SYSTEM = HeadSystem.from_edges(2, [[(0, 1)], []])
BATCHED = HeadSystem.from_attention(random_attention(3, 2, 4, 4))
EDGES, ATTENTION, GRAPHS = (
    HeadSystem.from_edges, HeadSystem.from_attention, HeadSystem.from_networkx)


def having(tensor, index, entry, dtype=F64):
    """A copy with one entry changed."""
    tensor = tensor.to(dtype, copy=True)
    tensor[index] = entry
    return tensor


def large(entry, index):
    """A matrix of several bands with one bad entry."""
    return having(torch.eye(300), index, entry)


def graph(*edges, nodes=()):
    made = nx.DiGraph(list(edges))
    made.add_nodes_from(nodes)
    return made


ANY_WALK = {
    "hitting times": expected_hitting_times,
    "cdf": lambda walk: hitting_time_cdf(walk, 3),
    "mixing": mixing_time,
    "mixing average": lambda walk: mixing_time(walk, average=True),
}
BAD_WALKS = [
    ("list", [[0.5, 0], [0.5, 1]], r"`walk`.*torch.Tensor; got \[\[0.5.*list"),
    ("numpy", np.eye(2), r"`walk`.*torch.Tensor; got a float64 array"),
    ("integers", torch.eye(2, dtype=torch.int64),
     r"`walk`.*float32 or float64.*got a int64 tensor"),
    ("half", torch.eye(2).half(), r"`walk`.*float32 or float64.*got a float16 tensor"),
    ("vector", torch.ones(3), r"`walk`.*of shape \(..., n, n\); got.*\(3,\)"),
    ("not square", torch.ones(3, 2), r"`walk`.*square.*\(3, 2\)"),
    ("no nodes", torch.ones(0, 0), r"`walk`.*empty axis.*\(0, 0\)"),
    ("empty batch", torch.ones(0, 2, 2), r"`walk`.*empty axis.*\(0, 2, 2\)"),
    ("NaN", having(WALK, (1, 0), math.nan), r"`walk`.*finite.*nan at \[1, 0\]"),
    ("NaN ahead", having(WALK, (0, 1), math.nan), r"`walk`.*finite.*nan at \[0, 1\]"),
    ("inf", having(WALK, (1, 0), math.inf), r"`walk`.*finite.*inf at \[1, 0\]"),
    ("inf on the diagonal", having(WALK, (0, 0), math.inf), r"`walk`.*finite.*inf at \[0, 0\]"),
    ("negative", torch.tensor([[1.5, 0], [-0.5, 1]]), r"`walk`.*non-negative.*-0.5 at \[1, 0\]"),
    ("upper", having(WALK, (0, 1), 1e-30), r"`walk`.*lower triangular.*1e-30 at \[0, 1\]"),
    ("columns", DIFFUSION,
     r"`walk`.*every column summing to 1 within 0.0001.*column 0 sums to 1.5"),
    ("one of a batch", torch.stack([WALK, WALK, DIFFUSION]), r"`walk`.*column 2, 0 sums to 1.5"),
    ("tolerance", having(WALK, (1, 0), 0.50001), r"`walk`.*within 1e-06.*sums to 1.00001"),
    ("large NaN", large(math.nan, (290, 3)), r"`walk`.*finite.*\[290, 3\]"),
    ("large negative", large(-1e-9, (290, 3)), r"`walk`.*non-negative.*\[290, 3\]"),
    ("large upper", large(1e-9, (3, 290)), r"`walk`.*lower triangular.*\[3, 290\]"),
    ("large upper in band", large(1e-9, (70, 71)), r"`walk`.*lower triangular.*\[70, 71\]"),
    ("large inf", large(math.inf, (290, 3)), r"`walk`.*finite.*inf at \[290, 3\]"),
    ("large columns", large(1e-3, (290, 3)), r"`walk`.*column 3 sums to 1.001"),
]

ANY_DIFFUSION = {
    "fidelities": lambda diffusion: node_fidelities(diffusion, 3),
    "minimax": lambda diffusion: minimax_fidelity(diffusion, 3),
}
BAD_DIFFUSIONS = [
    ("string", "diffusion", r"`diffusion`.*torch.Tensor; got 'diffusion'"),
    ("vector", torch.ones(3), r"`diffusion`.*of shape \(..., n, n\)"),
    ("not square", torch.ones(3, 2), r"`diffusion`.*square"),
    ("NaN", having(DIFFUSION, (1, 0), math.nan), r"`diffusion`.*finite.*nan"),
    ("inf", having(DIFFUSION, (1, 0), math.inf), r"`diffusion`.*finite.*inf"),
    ("negative", torch.tensor([[1.0, 0], [-0.5, 1.5]]), r"`diffusion`.*non-negative.*-0.5"),
    ("upper", having(DIFFUSION, (0, 1), 0.1), r"`diffusion`.*lower triangular.*0.1"),
    ("rows", WALK, r"`diffusion`.*every row summing to 1.*row 0 sums to 0.5"),
]

BAD_CALLS = [
    # attention
    ("attention list", lambda: ATTENTION([[1.0]]), r"`attention`.*torch.Tensor.*list"),
    ("attention without heads", lambda: ATTENTION(DIFFUSION),
     r"`attention`.*\(..., heads, n, n\).*\(2, 2\)"),
    ("attention not square", lambda: ATTENTION(torch.ones(1, 2, 3)), r"`attention`.*square"),
    ("attention of no heads", lambda: ATTENTION(torch.ones(0, 2, 2)), r"`attention`.*empty axis"),
    ("attention of integers", lambda: ATTENTION(torch.eye(2).int()[None]), r"`attention`.*int32"),
    ("attention not causal", lambda: ATTENTION(torch.full((1, 2, 2), 0.5)),
     r"`attention`.*lower triangular.*0.5 at \[0, 0, 1\]"),
    ("attention rows", lambda: ATTENTION(0.9 * DIFFUSION[None]),
     r"`attention`.*row summing to 1.*attention.sum\(-1, keepdim=True\).*row 0, 0 sums to 0.9"),
    ("attention NaN", lambda: ATTENTION(having(DIFFUSION, (1, 1), math.nan)[None]),
     r"`attention`.*finite.*nan at \[0, 1, 1\]"),
    ("attention negative", lambda: ATTENTION(torch.tensor([[[1.0, 0], [1.5, -0.5]]])),
     r"`attention`.*non-negative.*-0.5"),
    ("large attention", lambda: ATTENTION(large(1e-9, (3, 290))[None]),
     r"`attention`.*lower triangular.*\[0, 3, 290\]"),
    # flows and labels
    ("flows inf", lambda: HeadSystem(having(WALK, (1, 0), math.inf)[None]),
     r"`flows`.*finite.*inf"),
    ("flows overflow", lambda: HeadSystem(torch.full((1, 2, 1), 3e38).tril() * torch.eye(2)
                                          + torch.tensor([[0, 0], [3e38, 0]])),
     r"`flows`.*columns to be summed"),
    ("labels twice", lambda: HeadSystem(WALK[None], labels="aa"), r"`labels`.*2 different names"),
    ("labels unhashable", lambda: HeadSystem(WALK[None], labels=[[], 1]), r"`labels`.*2 different"),
    ("labels number", lambda: HeadSystem(WALK[None], labels=2),
     r"`labels`.*2 different.*2 \(int\)"),
    ("labels few", lambda: HeadSystem(WALK[None], labels="a"), r"`labels`.*2 different names"),
    # weights
    ("weights too few", lambda: EDGES(2, [[], []], [1.0]), r"`weights`.*one per head, 2.*got 1"),
    ("weights empty", lambda: EDGES(2, [[], []], []), r"`weights`.*one per head, 2.*got 0"),
    ("weights negative", lambda: EDGES(2, [[], []], [1.5, -0.5]), r"`weights`.*\[0, inf\].*-0.5"),
    ("weights not one", lambda: EDGES(2, [[], []], [1, 1]),
     r"`weights`.*divide by their sum.*to 2"),
    ("weights NaN", lambda: EDGES(2, [[], []], [math.nan, 1]), r"`weights`.*finite.*nan"),
    ("weights inf", lambda: EDGES(2, [[], []], [math.inf, 1]), r"`weights`.*finite.*inf"),
    ("weights strings", lambda: EDGES(2, [[], []], ["0.5", "0.5"]), r"`weights`.*number.*'0.5'"),
    ("weights one string", lambda: EDGES(2, [[], []], "ab"), r"`weights`.*tensor.*'ab'"),
    ("weights numpy", lambda: EDGES(2, [[], []], np.array([0.5, 0.5])),
     r"`weights`.*list of numbers or a tensor; got a float64 array"),
    ("weights bools", lambda: EDGES(2, [[], []], [True, False]), r"`weights`.*number.*bool"),
    ("weights other dtype", lambda: SYSTEM.mixed_with(torch.tensor([0.5, 0.5])),
     r"`weights`.*float64.*float32"),
    ("weights other device", lambda: SYSTEM.mixed_with(torch.ones(2, dtype=F64, device="meta")),
     r"`weights`.*cpu.*meta"),
    ("weights scalar", lambda: SYSTEM.mixed_with(torch.tensor(1.0, dtype=F64)),
     r"`weights`.*\(..., heads\)"),
    ("weights tensor negative", lambda: SYSTEM.mixed_with(torch.tensor([2.0, -1.0], dtype=F64)),
     r"`weights`.*non-negative.*-1"),
    ("weights tensor NaN", lambda: SYSTEM.mixed_with(torch.tensor([math.nan, 1.0], dtype=F64)),
     r"`weights`.*finite.*nan"),
    ("weights batch", lambda: BATCHED.mixed_with(torch.full((2, 2), 0.5, dtype=F64)),
     r"`weights`.*broadcast with \(3,\).*\(2, 2\)"),
    ("weights fractions", lambda: EDGES(2, [[], []], [Fraction(1, 2), Fraction(1, 3)]),
     r"`weights`.*sums to 0.833333"),
    # edges
    ("nodes zero", lambda: EDGES(0, [[]]), r"`num_nodes`.*at least 1; got 0"),
    ("nodes negative", lambda: EDGES(-3, [[]]), r"`num_nodes`.*at least 1; got -3"),
    ("nodes float", lambda: EDGES(2.0, [[]]), r"`num_nodes`.*whole.*2.0 \(float\)"),
    ("nodes bool", lambda: EDGES(True, [[]]), r"`num_nodes`.*whole.*True \(bool\)"),
    ("no heads", lambda: EDGES(2, []), r"`head_edges`.*at least one; got \[\]"),
    ("heads as a string", lambda: EDGES(2, "01"), r"`head_edges`.*list.*'01'"),
    ("heads as a number", lambda: EDGES(2, 1), r"`head_edges`.*list.*1 \(int\)"),
    ("edges not nested", lambda: EDGES(2, [(0, 1)]), r"`head_edges`.*pairs.*got 0 in head 0"),
    ("edges None", lambda: EDGES(2, [None]), r"`head_edges`.*pairs.*None"),
    ("edges strings", lambda: EDGES(2, [["01"]]), r"`head_edges`.*pairs.*'01'"),
    ("edges triple", lambda: EDGES(3, [[(0, 1, 2)]]), r"`head_edges`.*pairs.*\(0, 1, 2\)"),
    ("edges float", lambda: EDGES(2, [[(0.0, 1.0)]]), r"`head_edges`.*whole numbers.*\(0.0, 1.0\)"),
    ("edges bool", lambda: EDGES(2, [[(False, True)]]), r"`head_edges`.*whole numbers.*True"),
    ("edges outside", lambda: EDGES(2, [[], [(0, 2)]]),
     r"`head_edges`.*nodes 0 to 1; got \(0, 2\) in head 1"),
    ("edges negative", lambda: EDGES(2, [[(-1, 1)]]), r"`head_edges`.*nodes 0 to 1.*\(-1, 1\)"),
    ("edges backward", lambda: EDGES(3, [[(0, 1), (2, 1)]]), r"`head_edges`.*causal.*\(2, 1\)"),
    ("edges loop", lambda: EDGES(2, [[(1, 1)]]), r"`head_edges`.*self-loops.*\(1, 1\)"),
    ("edges twice", lambda: EDGES(2, [[(0, 1), (0, 1)]]), r"`head_edges`.*repeated.*\(0, 1\)"),
    # networkx
    ("one graph", lambda: GRAPHS(graph((0, 1))), r"`graphs`.*list"),
    ("no graphs", lambda: GRAPHS([]), r"`graphs`.*at least one"),
    ("undirected", lambda: GRAPHS([nx.Graph([(0, 1)])]), r"`graphs`.*DiGraph.*head 0"),
    ("multigraph", lambda: GRAPHS([nx.MultiDiGraph([(0, 1)])]), r"`graphs`.*DiGraph.*head 0"),
    ("not graphs", lambda: GRAPHS(["a"]), r"`graphs`.*DiGraph.*'a'"),
    ("empty graph", lambda: GRAPHS([nx.DiGraph()]), r"`graphs`.*with nodes"),
    ("other nodes", lambda: GRAPHS([graph(("a", "b")), graph(("a", "c"))]),
     r"`graphs`.*same nodes.*node '[bc]' in only one of heads 0 and 1"),
    ("cycle", lambda: GRAPHS([graph(("a", "b"), ("c", "a")), graph(("b", "c"), nodes="a")]),
     r"`graphs`.*acyclic.*the cycle 'a' -> 'b' -> 'c' -> 'a'"),
    ("two sinks", lambda: GRAPHS([graph(("a", "b"), ("a", "c"))]),
     r"`graphs`.*one sink.*2 sinks: 'b', 'c'"),
    ("edge weight", lambda: GRAPHS([nx.DiGraph([("a", "b", {"weight": -1})])]),
     r"`graphs`.*non-negative.*-1 on 'a' -> 'b' in head 0"),
    ("edge weight NaN", lambda: GRAPHS([nx.DiGraph([("a", "b", {"weight": math.nan})])]),
     r"`graphs`.*finite.*nan on"),
    # methods
    ("head outside", lambda: SYSTEM.head(2), r"`index`.*from 0 to 1; got 2"),
    ("head negative", lambda: SYSTEM.head(-1), r"`index`.*from 0 to 1; got -1"),
    ("head float", lambda: SYSTEM.head(0.0), r"`index`.*whole.*0.0"),
    ("normalize", lambda: SYSTEM.walk_matrix(normalize="during"),
     r"`normalize`.*'before', 'after'; got 'during'"),
    ("exact batch", lambda: BATCHED.walk_matrix(exact=True),
     r"`system`.*without batch.*\(3, 2, 4, 4\)"),
    ("networkx batch", lambda: BATCHED.to_networkx(), r"`system`.*without batch"),
    # numbers
    ("steps negative", lambda: hitting_time_cdf(WALK, -1), r"`steps`.*at least 0; got -1"),
    ("steps float", lambda: hitting_time_cdf(WALK, 2.0), r"`steps`.*whole.*2.0"),
    ("steps bool", lambda: hitting_time_cdf(WALK, True), r"`steps`.*whole.*True"),
    *[(f"epsilon {epsilon!r}", lambda epsilon=epsilon: mixing_time(WALK, epsilon=epsilon),
       r"`epsilon`.*\(0, 1\); got")
      for epsilon in (0, 1, 0.0, 1.0, -0.25, 1.5, math.nan, math.inf, "0.25", None, True)],
    ("average", lambda: mixing_time(WALK, average="worst"), r"`average`.*True or False.*'worst'"),
    ("average number", lambda: mixing_time(WALK, average=1), r"`average`.*True or False.*1"),
    ("horizon zero", lambda: node_fidelities(DIFFUSION, 0), r"`horizon`.*at least 1; got 0"),
    ("horizon float", lambda: minimax_fidelity(DIFFUSION, 2.5), r"`horizon`.*whole.*2.5"),
    ("horizon None", lambda: minimax_fidelity(DIFFUSION, None), r"`horizon`.*whole.*None"),
    ("include_sink", lambda: minimax_fidelity(DIFFUSION, 2, include_sink="no"),
     r"`include_sink`.*True or False.*'no'"),
    ("one node", lambda: minimax_fidelity(torch.ones(1, 1), 2),
     r"`diffusion`.*two nodes.*\(1, 1\)"),
    # paths
    ("paths of a tensor", lambda: cross_head_paths(DIFFUSION, 2), r"`system`.*HeadSystem.*float32"),
    ("paths steps zero", lambda: cross_head_paths(SYSTEM, 0), r"`steps`.*from 1 to 23; got 0"),
    ("paths steps huge", lambda: cross_head_paths(SYSTEM, 10**9), r"`steps`.*from 1 to 23"),
    ("paths too many", lambda: cross_head_paths(SYSTEM, 23),
     r"`steps`.*10,000,000 entries.*23 steps of 2 heads, 16,777,216"),
    ("paths too many in a batch", lambda: cross_head_paths(BATCHED, 20),
     r"`steps`.*10,000,000 entries.*12,582,912"),
]


def refuses(call, message):
    with pytest.raises(ValueError, match="(?s)" + message):
        call()


@pytest.mark.parametrize("name", ANY_WALK)
@pytest.mark.parametrize("walk, message", [bad[1:] for bad in BAD_WALKS],
                         ids=[bad[0] for bad in BAD_WALKS])
def test_what_is_not_a_walk_is_refused(name, walk, message):
    refuses(lambda: ANY_WALK[name](walk), message)


@pytest.mark.parametrize("name", ANY_DIFFUSION)
@pytest.mark.parametrize("diffusion, message", [bad[1:] for bad in BAD_DIFFUSIONS],
                         ids=[bad[0] for bad in BAD_DIFFUSIONS])
def test_what_is_not_a_diffusion_is_refused(name, diffusion, message):
    refuses(lambda: ANY_DIFFUSION[name](diffusion), message)


@pytest.mark.parametrize("call, message", [bad[1:] for bad in BAD_CALLS],
                         ids=[bad[0] for bad in BAD_CALLS])
def test_bad_calls_are_refused(call, message):
    refuses(call, message)
