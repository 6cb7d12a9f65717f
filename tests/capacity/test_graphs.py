import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.capacity import (
    RelationalGraph,
    permutation_graph,
    power_law_graph,
    random_graph,
    regular_graph,
    sample_contexts,
)


@st.composite
def graphs(draw, most=12):
    m = draw(st.integers(1, most))
    pairs = [(i, j) for i in range(m) for j in range(m)]
    return RelationalGraph(m, draw(st.lists(st.sampled_from(pairs), unique=True)))


def test_edges_are_sorted_and_read_only():
    graph = RelationalGraph(3, [(2, 0), (0, 2), (0, 1)])
    assert graph.edges.tolist() == [[0, 1], [0, 2], [2, 0]]
    with pytest.raises(ValueError):
        graph.edges[0, 0] = 1


@given(graphs())
def test_degrees_and_edges_agree_with_the_adjacency(graph):
    matrix = graph.adjacency()
    assert matrix.sum() == graph.num_edges
    assert np.array_equal(matrix.sum(axis=1), graph.out_degrees)
    assert np.array_equal(matrix.sum(axis=0), graph.in_degrees)
    assert np.array_equal(np.argwhere(matrix), graph.edges)


@given(graphs(), st.data())
def test_restriction_keeps_exactly_the_relations_inside_the_context(graph, data):
    vertices = st.sampled_from(range(graph.num_vertices))
    context = data.draw(st.lists(vertices, min_size=1, unique=True))
    inside = graph.restricted_to(context)
    assert inside.labels == tuple(context)
    assert np.array_equal(inside.adjacency(), graph.adjacency()[np.ix_(context, context)])


def assert_matchings(graph):
    matchings = graph.matchings()
    largest = max(graph.out_degrees.max(), graph.in_degrees.max()) if graph.num_edges else 0
    assert len(matchings) == largest
    for matching in matchings:
        assert len(np.unique(matching[:, 0])) == len(matching) == len(np.unique(matching[:, 1]))
    if matchings:
        assert RelationalGraph(graph.num_vertices, np.concatenate(matchings)) == RelationalGraph(
            graph.num_vertices, graph.edges
        )


@given(graphs())
def test_matchings_are_as_few_as_the_largest_degree(graph):
    assert_matchings(graph)


def test_matchings_of_two_hundred_random_graphs():
    rng = np.random.default_rng(0)
    for seed in range(200):
        m = int(rng.integers(2, 60))
        assert_matchings(random_graph(m, int(rng.integers(1, m * m + 1)), seed=seed))


@pytest.mark.parametrize("seed", range(4))
def test_matchings_of_larger_graphs(seed):
    assert_matchings(permutation_graph(500, seed=seed))
    assert_matchings(regular_graph(200, 7, seed=seed))
    assert_matchings(random_graph(150, 3000, seed=seed))
    assert_matchings(power_law_graph(300, 2000, exponent=2.2, seed=seed))
    assert_matchings(random_graph(2000, 100_000, seed=seed))


@given(graphs())
def test_networkx_round_trip(graph):
    again = RelationalGraph.from_networkx(graph.to_networkx())
    assert again == graph and again.labels == graph.labels


def test_networkx_labels_of_any_kind_are_kept():
    original = nx.DiGraph([("paris", ("fr", 1)), (("fr", 1), 3.5), (3.5, "paris")])
    graph = RelationalGraph.from_networkx(original)
    assert set(graph.labels) == {"paris", ("fr", 1), 3.5}
    assert nx.utils.graphs_equal(graph.to_networkx(), original)


def test_equality_looks_at_vertices_and_edges_not_at_names():
    graph = RelationalGraph(3, [(0, 1)])
    assert graph == RelationalGraph(3, np.array([[0, 1]], dtype=np.int32))
    assert hash(graph) == hash(RelationalGraph(3, [(0, 1)]))
    assert graph != RelationalGraph(4, [(0, 1)])
    assert graph != RelationalGraph(3, [(1, 0)])
    assert graph == RelationalGraph(3, [(0, 1)], labels="abc")
    assert graph != "a graph"


def test_permutation_graph_is_a_permutation_and_every_one_occurs():
    graph = permutation_graph(50, seed=3)
    assert set(graph.out_degrees) == {1} == set(graph.in_degrees)
    assert len({permutation_graph(3, seed=seed) for seed in range(100)}) == 6


@settings(deadline=None)
@given(st.integers(1, 30), st.data())
def test_regular_graph_has_its_degree_everywhere(m, data):
    degree = data.draw(st.integers(1, m))
    graph = regular_graph(m, degree, seed=1)
    assert set(graph.out_degrees) == {degree} == set(graph.in_degrees)


def test_random_graph_has_its_edges_spread_evenly():
    graph = random_graph(100, 5000, seed=0)
    assert graph.num_edges == 5000
    # A hypergeometric row count: mean 50, standard deviation sqrt(50 * 0.5) = 5.
    assert abs(graph.out_degrees - 50).max() < 5 * 5


def test_power_law_graph_has_hubs_and_an_even_exponent_has_none():
    hubs = power_law_graph(400, 2000, exponent=2.0, seed=0)
    flat = power_law_graph(400, 2000, exponent=1000.0, seed=0)
    assert hubs.num_edges == flat.num_edges == 2000
    assert hubs.in_degrees.max() > 10 * flat.in_degrees.max() / 3
    assert power_law_graph(5, 25, exponent=2.5, seed=0).num_edges == 25


def test_generators_repeat_for_a_seed_and_differ_between_seeds():
    for make in (
        lambda seed: permutation_graph(40, seed=seed),
        lambda seed: regular_graph(40, 3, seed=seed),
        lambda seed: random_graph(40, 90, seed=seed),
        lambda seed: power_law_graph(40, 90, exponent=2.5, seed=seed),
    ):
        assert make(7) == make(7)
        assert make(7) != make(8)


def test_sampled_contexts_are_distinct_vertices():
    contexts = sample_contexts(20, 6, 50, seed=0)
    assert contexts.shape == (50, 6)
    assert all(len(set(context)) == 6 for context in contexts.tolist())
    assert contexts.min() >= 0 and contexts.max() < 20
