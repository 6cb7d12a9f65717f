"""Head systems: from edges, attention and networkx; their matrices and mixtures."""

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads.synergy import HeadSystem
from tests.synergy.examples import EXAMPLE_2, random_attention, systems

R = sympy.Rational


def matrices(system):
    return (system.walk_matrix(), system.walk_matrix(normalize="after"), system.diffusion_matrix())


def assert_same(system, other):
    for mine, others in zip(matrices(system), matrices(other), strict=True):
        torch.testing.assert_close(mine, others, rtol=1e-13, atol=1e-15)


class TestFromEdges:
    def test_example_2(self):
        system = HeadSystem.from_edges(4, EXAMPLE_2)
        assert (system.heads, system.num_nodes, system.labels) == (2, 4, (0, 1, 2, 3))
        assert system.weights.tolist() == [0.5, 0.5]
        # Rows receive, columns send, self-loops are there.
        assert system.flows[0].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
        assert system.head(0).walk_matrix(exact=True) == sympy.Matrix(
            [[R(1, 2), 0, 0, 0], [R(1, 2), R(1, 2), 0, 0], [0, R(1, 2), R(1, 2), 0],
             [0, 0, R(1, 2), 1]])
        assert system.head(1).diffusion_matrix(exact=True) == sympy.Matrix(
            [[1, 0, 0, 0], [0, 1, 0, 0], [R(1, 3), R(1, 3), R(1, 3), 0],
             [0, R(1, 3), R(1, 3), R(1, 3)]])
        half = R(1, 2)
        assert system.diffusion_matrix(exact=True) == (
            half * system.head(0).diffusion_matrix(exact=True)
            + half * system.head(1).diffusion_matrix(exact=True))

    @pytest.mark.parametrize("edges", [
        [[0, 1], [1, 2]], ((0, 1), (1, 2)), np.array([[0, 1], [1, 2]]),
        torch.tensor([[0, 1], [1, 2]])])
    def test_edges_of_any_kind(self, edges):
        assert_same(HeadSystem.from_edges(3, [edges]), HeadSystem.from_edges(3, [[(0, 1), (1, 2)]]))

    def test_a_head_without_edges_and_one_node(self):
        assert HeadSystem.from_edges(3, [[]]).walk_matrix().tolist() == torch.eye(3).tolist()
        assert HeadSystem.from_edges(1, [[]]).diffusion_matrix().tolist() == [[1]]


class TestFromAttention:
    def test_before_and_after(self):
        attention, weights = random_attention(3, 6, 6), torch.tensor([0.5, 0.3, 0.2]).double()
        system = HeadSystem.from_attention(attention, weights)
        scale = weights[:, None, None]
        before = (scale * attention / attention.sum(-2, keepdim=True)).sum(0)
        mixed = (scale * attention).sum(0)
        torch.testing.assert_close(system.walk_matrix(), before)
        torch.testing.assert_close(system.walk_matrix(normalize="after"),
                                   mixed / mixed.sum(-2, keepdim=True))
        torch.testing.assert_close(system.diffusion_matrix(), mixed)

    @pytest.mark.parametrize("n", [5, 128, 129, 300])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_sizes_types_and_batches(self, n, dtype):
        attention = random_attention(2, 3, n, n, dtype=dtype)
        system = HeadSystem.from_attention(attention)
        for each, axis in zip(matrices(system), (-2, -2, -1), strict=True):
            assert each.dtype == dtype and each.shape == (2, n, n)
            torch.testing.assert_close(each.sum(axis), torch.ones(2, n, dtype=dtype))
        for at in range(2):
            alone = HeadSystem.from_attention(attention[at])
            for mine, others in zip(matrices(system), matrices(alone), strict=True):
                torch.testing.assert_close(mine[at], others)

    def test_the_attention_is_not_copied(self):
        attention = random_attention(2, 5, 5)
        assert HeadSystem.from_attention(attention).flows is attention

    def test_a_token_that_nobody_attends_keeps_its_walks(self):
        attention = torch.tensor([[[1.0, 0, 0], [1, 0, 0], [1, 0, 0]]])
        third = pytest.approx(1 / 3)
        assert HeadSystem.from_attention(attention).walk_matrix().tolist() == [
            [third, 0, 0], [third, 1, 0], [third, 0, 1]]

    def test_float32_softmax_cast_up_is_accepted(self):
        HeadSystem.from_attention(random_attention(4, 300, 300, dtype=torch.float32).double())


class TestFlows:
    def test_weighted_chain(self):
        """Flows may be a walk: the weighted 3-node chain whose mixture gains without bound."""
        fast, slow = 0.99, 0.01
        flows = torch.tensor([[[1 - a, 0, 0], [a, 1 - b, 0], [0, b, 1]]
                              for a, b in ((fast, slow), (slow, fast))], dtype=torch.float64)
        walk = HeadSystem(flows).walk_matrix()
        torch.testing.assert_close(walk, flows.mean(0))

    @given(systems())
    def test_exact_equals_float(self, system):
        pairs = zip(matrices(system), (
            system.walk_matrix(exact=True), system.walk_matrix(normalize="after", exact=True),
            system.diffusion_matrix(exact=True)), (0, 0, 1), strict=True)
        for numeric, exact, axis in pairs:
            assert np.allclose(np.array(exact, dtype=float), numeric.numpy(), rtol=1e-14, atol=0)
            ones = sympy.ones(1, system.num_nodes)
            assert (ones * (exact.T if axis else exact)) == ones

    def test_exact_weights(self):
        edges = [[(0, 1)], []]
        for weights in ([R(1, 3), R(2, 3)], [Fraction(1, 3), Fraction(2, 3)]):
            walk = HeadSystem.from_edges(2, edges, weights).walk_matrix(exact=True)
            assert walk[1, 0] == R(1, 6)
        # A float is its binary digits, and the columns still sum to one exactly.
        walk = HeadSystem.from_edges(2, edges, [0.1, 0.9]).walk_matrix(exact=True)
        assert walk[0, 0] + walk[1, 0] == 1 and abs(walk[1, 0] - R(1, 20)) < 1e-16
        assert HeadSystem.from_edges(2, edges, torch.tensor([0.25, 0.75]).double()) \
            .walk_matrix(exact=True)[1, 0] == R(1, 8)
        assert HeadSystem.from_edges(2, edges, [1, 0]).walk_matrix(exact=True)[1, 0] == R(1, 2)


class TestMixtures:
    @given(systems(), st.randoms())
    def test_order_of_heads_does_not_matter(self, system, random):
        order = random.sample(range(system.heads), system.heads)
        weights = [system.weights.tolist()[a] for a in order]
        assert_same(HeadSystem(system.flows[order], weights), system)

    @given(systems())
    def test_splitting_a_head_does_not_matter(self, system):
        flows = torch.cat([system.flows, system.flows[:1]])
        half = system.weights[:1] / 2
        assert_same(HeadSystem(flows, torch.cat([half, system.weights[1:], half])), system)

    @given(systems())
    def test_walk_is_the_mixture_of_the_heads_walks(self, system):
        walks = [system.head(a).walk_matrix() for a in range(system.heads)]
        mixed = sum(w * walk for w, walk in zip(system.weights, walks, strict=True))
        torch.testing.assert_close(system.walk_matrix(), mixed, rtol=1e-13, atol=1e-15)

    def test_mixed_with_and_batches_of_weights(self):
        system = HeadSystem.from_attention(random_attention(3, 5, 5))
        weights = torch.rand(4, 2, 3, dtype=torch.float64)
        weights = weights / weights.sum(-1, keepdim=True)
        together = matrices(system.mixed_with(weights))
        alone = matrices(system.mixed_with(weights[3, 1]))
        for many, one in zip(together, alone, strict=True):
            assert many.shape == (4, 2, 5, 5)
            torch.testing.assert_close(many[3, 1], one)
        assert_same(system.mixed_with([0, 1, 0]), system.head(1))

    def test_repr(self):
        system = HeadSystem.from_edges(2, [[], []], [0.123456789, 1 - 0.123456789])
        assert repr(system) == "HeadSystem(heads=2, num_nodes=2, weights=[0.1235, 0.8765])"
        batched = HeadSystem.from_attention(random_attention(7, 2, 5, 5))
        assert repr(batched) == "HeadSystem(heads=2, num_nodes=5, batch=(7,), weights=[1/2, 1/2])"


class TestNetworkx:
    def test_labels_and_order(self):
        one = nx.DiGraph([("u", "v"), ("v", "w"), ("w", "τ")])
        two = nx.DiGraph([("u", "w"), ("v", "w"), ("v", "τ"), ("w", "τ")])
        system = HeadSystem.from_networkx([one, two])
        assert system.labels == ("u", "v", "w", "τ")
        assert_same(system, HeadSystem.from_edges(4, EXAMPLE_2))
        assert system.head(1).labels == system.mixed_with([1, 0]).labels == system.labels

    def test_any_labels_in_any_order(self):
        graph = nx.DiGraph([(("late", 2), "sink"), (3.5, ("late", 2)), (frozenset({1}), 3.5)])
        system = HeadSystem.from_networkx([graph])
        assert system.labels == (frozenset({1}), 3.5, ("late", 2), "sink")
        assert_same(system, HeadSystem.from_edges(4, [[(0, 1), (1, 2), (2, 3)]]))

    def test_there_and_back(self):
        for system in (HeadSystem.from_edges(4, EXAMPLE_2, [Fraction(1, 3), Fraction(2, 3)]),
                       HeadSystem.from_attention(random_attention(2, 5, 5))):
            graphs = system.to_networkx()
            assert [set(graph) for graph in graphs] == [set(system.labels)] * 2
            back = HeadSystem.from_networkx(
                graphs, [graph.graph["head_weight"] for graph in graphs])
            assert back.labels == system.labels
            assert torch.equal(back.flows, system.flows)

    def test_weights_and_self_loops(self):
        graph = nx.DiGraph([("a", "b")])
        graph.add_edge("a", "a", weight=3)
        flows = HeadSystem.from_networkx([graph]).flows
        assert flows.tolist() == [[[3, 0], [1, 1]]]


@pytest.mark.parametrize("gap", [88.5, 90.0, 100.0, 104.0])
@pytest.mark.parametrize("normalize", ["before", "after"])
def test_a_token_that_is_hardly_read_keeps_its_walk(gap, normalize):
    scores = torch.tensor([[[0.0, 0, 0], [0, 0, 0], [gap, 0, 0]]])
    future = torch.ones(3, 3, dtype=torch.bool).triu(1)
    attention = scores.masked_fill(future, -torch.inf).softmax(-1)
    walk = HeadSystem.from_attention(attention).walk_matrix(normalize=normalize)
    torch.testing.assert_close(walk.sum(-2), torch.ones(3))
