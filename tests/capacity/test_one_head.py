"""One head of any width: against linear programming, closed cases and exact fractions."""

import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from manyheads.capacity import (
    KeyQueryChannel,
    RelationalGraph,
    certify,
    gaussian_embeddings,
    one_hot_embeddings,
    permutation_graph,
    rademacher_embeddings,
    random_graph,
    regular_graph,
)
from manyheads.capacity.dual_ray import check_dual_ray, refutes
from manyheads.capacity.one_head import OneHead, single_head_feasible

CRITERIA = ("global", "row")
NUMBERS = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)


def by_linear_program(graph, embeddings, criterion):
    """The whole question as one linear program: True, False, or None if HiGHS gives up."""
    edges, x = graph.adjacency(), embeddings.double().numpy()
    rows, targets = [], []
    for i in range(graph.num_vertices):
        if criterion == "row" and (edges[i].all() or not edges[i].any()):
            continue
        for j in range(graph.num_vertices):
            sign = 1 if edges[i, j] else -1
            threshold = np.zeros(graph.num_vertices)
            threshold[i if criterion == "row" else 0] = -1
            rows.append(-sign * np.append(np.outer(x[i], x[j]), threshold))
            targets.append(-1.0)
    if not rows:
        return True
    answer = linprog(np.zeros(len(rows[0])), A_ub=np.array(rows), b_ub=targets, bounds=(None, None))
    return {0: True, 2: False}.get(answer.status)


def assert_proved(answer, graph, embeddings, criterion):
    """The proof that the answer carries, checked without the solver."""
    assert answer.feasible is not None
    if answer.feasible:
        assert answer.ray is None
        certificate = certify(answer.channel, graph, embeddings)
        beyond = 2 * certificate.error_bound
        assert (certificate.margin if criterion == "global" else certificate.row_margin) > beyond
    else:
        assert answer.channel is None
        assert check_dual_ray(graph, embeddings, answer.ray, criterion=criterion)


def decide(graph, embeddings, criterion="global"):
    answer = single_head_feasible(graph, embeddings, criterion=criterion)
    assert_proved(answer, graph, embeddings, criterion)
    return bool(answer)


@st.composite
def cases(draw):
    m, d = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    pairs = [(i, j) for i in range(m) for j in range(m)]
    few = st.lists(st.sampled_from(pairs), min_size=1, max_size=m * m - 1, unique=True)
    if draw(st.booleans()):
        x = gaussian_embeddings(m, d, seed=draw(st.integers(0, 99)), dtype=torch.float64)
    else:
        entries = st.lists(st.integers(-2, 2), min_size=m * d, max_size=m * d)
        x = torch.tensor(draw(entries), dtype=torch.float64).view(m, d)
    return RelationalGraph(m, draw(few)), x


@settings(deadline=None, max_examples=150)
@given(cases(), st.sampled_from(CRITERIA))
def test_agrees_with_the_whole_linear_program(case, criterion):
    graph, x = case
    answer = single_head_feasible(graph, x, criterion=criterion)
    assert_proved(answer, graph, x, criterion)
    assert answer.feasible == by_linear_program(graph, x, criterion)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("m", [12, 14, 16])
def test_agrees_with_the_whole_linear_program_at_the_transition(m, criterion):
    for seed in range(6):
        graph = permutation_graph(m, seed=seed)
        x = gaussian_embeddings(m, 6, seed=seed, dtype=torch.float64)
        assert decide(graph, x, criterion) == by_linear_program(graph, x, criterion)


@settings(deadline=None, max_examples=60)
@given(cases(), st.data())
def test_feasible_stays_feasible_where_less_is_asked(case, data):
    graph, x = case
    rows, whole = decide(graph, x, "row"), decide(graph, x)
    assert rows or not whole
    context = data.draw(st.permutations(range(graph.num_vertices)))[
        : data.draw(st.integers(1, graph.num_vertices))]
    part = graph.restricted_to(context)
    if 0 < part.num_edges < part.num_vertices**2:
        for criterion, owed in zip(CRITERIA, (whole, rows), strict=True):
            assert decide(part, x[context], criterion) or not owed


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("m", [18, 22, 26])
def test_names_and_coordinates_do_not_matter(m, criterion):
    graph, rng = permutation_graph(m, seed=1), np.random.default_rng(0)
    x = gaussian_embeddings(m, 8, seed=1, dtype=torch.float64)
    answer = decide(graph, x, criterion)
    order = rng.permutation(m)
    renamed = RelationalGraph(m, order[graph.edges])
    assert decide(renamed, x[np.argsort(order)], criterion) == answer
    turn = torch.from_numpy(np.linalg.qr(rng.standard_normal((8, 8)))[0])
    stretch = torch.from_numpy(rng.standard_normal((8, 8)))  # any basis will do
    assert decide(graph, x @ turn, criterion) == answer
    assert decide(graph, x @ stretch, criterion) == answer
    assert decide(graph, 1e-60 * x, criterion) == answer


@pytest.mark.parametrize("criterion", CRITERIA)
def test_independent_embeddings_store_every_graph(criterion):
    for seed in range(10):
        graph = random_graph(12, 1 + 14 * seed, seed=seed)
        assert decide(graph, one_hot_embeddings(12), criterion)
        x = gaussian_embeddings(12, 16, seed=seed, dtype=torch.float64)
        assert decide(graph, x, criterion)
    # More than the 64 dimensions of a Newton step, but none is needed.
    assert decide(permutation_graph(150, seed=0), one_hot_embeddings(150), criterion)


def test_numbers_by_hand():
    # Scores are M x_i x_j: of the products 1, 2, 3, 2, 4, 6, 3, 6, 9 the edges must be on top
    # or at the bottom.
    for edges, owed in [([(2, 2)], True), ([(2, 2), (1, 2), (2, 1)], True), ([(0, 0)], True),
                        ([(1, 1)], False), ([(2, 2), (0, 0)], False), ([(1, 2)], False)]:
        assert decide(RelationalGraph(3, edges), NUMBERS) == owed, edges
    # In a row, the edges must be the largest keys or, for M < 0, the smallest; in all rows alike.
    for edges, owed in [([(0, 2), (1, 2), (2, 2)], True), ([(0, 0), (1, 0)], True),
                        ([(0, 2), (1, 0)], False), ([(0, 1)], False), ([(1, 2), (2, 2)], True)]:
        assert decide(RelationalGraph(3, edges), NUMBERS, "row") == owed, edges


def test_vertices_that_look_the_same_are_related_alike():
    x = gaussian_embeddings(5, 5, seed=0, dtype=torch.float64)
    x[4] = x[3]
    assert decide(RelationalGraph(5, [(0, 3), (0, 4), (3, 1), (4, 1)]), x)
    for criterion in CRITERIA:
        assert not decide(RelationalGraph(5, [(0, 3)]), x, criterion)
    # As a query, only a common threshold or a common row tells them apart.
    assert not decide(RelationalGraph(5, [(3, 0)]), x)
    assert decide(RelationalGraph(5, [(3, 0)]), x, "row")  # the other has no key to find
    assert not decide(RelationalGraph(5, [(3, 0), (4, 1)]), x, "row")


def test_a_query_with_nothing_to_tell_apart_asks_nothing():
    every_key = RelationalGraph(3, [(1, 0), (1, 1), (1, 2)])
    assert decide(every_key, NUMBERS, "row")
    assert not decide(RelationalGraph(3, [(1, 1), (2, 0), (2, 1), (2, 2)]), NUMBERS, "row")


def test_the_origin_and_float32():
    graph, zeros = RelationalGraph(3, [(0, 1)]), torch.zeros(3, 2)
    assert not decide(graph, zeros) and not decide(graph, zeros, "row")
    channel = single_head_feasible(permutation_graph(16, seed=0),
                                   gaussian_embeddings(16, 8, seed=0)).channel
    assert channel.query_weights.dtype == torch.float32
    assert (channel.heads, channel.key_dim) == (1, 8)
    flat = rademacher_embeddings(9, 3, seed=0)  # 9 vertices on 8 points
    assert not decide(permutation_graph(9, seed=0), flat)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_head_has_margin_one(criterion):
    graph = regular_graph(12, 2, seed=0)
    x = gaussian_embeddings(12, 8, seed=0, dtype=torch.float64)
    certificate = certify(single_head_feasible(graph, x, criterion=criterion).channel, graph, x)
    margin = certificate.margin if criterion == "global" else certificate.row_margin
    assert margin == pytest.approx(1, abs=1e-9)


def ray_case(m=24, d=8, criterion="global"):
    graph = permutation_graph(m, seed=0)
    x = gaussian_embeddings(m, d, seed=0, dtype=torch.float64)
    return graph, x, single_head_feasible(graph, x, criterion=criterion).ray


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_ray_that_is_tampered_with_is_refused(criterion):
    graph, x, ray = ray_case(criterion=criterion)
    assert check_dual_ray(graph, x, ray, criterion=criterion)
    assert check_dual_ray(graph, x, 1e-3 * ray, criterion=criterion)
    edge, other = tuple(graph.edges[0]), np.unravel_index(ray.argmax(), ray.shape)
    for place, value in [(edge, 0.0), (edge, 1.01 * ray[edge]), (other, -ray[other])]:
        changed = ray.copy()
        changed[place] = value
        assert not check_dual_ray(graph, x, changed, criterion=criterion)
    noise = np.random.default_rng(0).random(ray.shape)
    assert not check_dual_ray(graph, x, ray * (1 + 1e-2 * noise), criterion=criterion)
    assert not check_dual_ray(graph, x, noise, criterion=criterion)
    assert not check_dual_ray(graph, x, 0 * ray, criterion=criterion)
    assert not check_dual_ray(graph, x.flip(0), ray, criterion=criterion)
    assert not check_dual_ray(graph, x, np.full_like(ray, 1e300), criterion=criterion)


def test_a_ray_proves_nothing_of_a_feasible_graph():
    """No multipliers at all may pass where a head exists."""
    graph = permutation_graph(16, seed=0)
    x = gaussian_embeddings(16, 8, seed=0, dtype=torch.float64)
    assert decide(graph, x)
    rng = np.random.default_rng(0)
    for _ in range(50):
        sparse = rng.random((16, 16)) ** 4 * (rng.random((16, 16)) < rng.random())
        assert not check_dual_ray(graph, x, sparse)
    # Nor may the ray of one graph pass for another, or of rows for all pairs.
    graph, x, ray = ray_case()
    assert not check_dual_ray(permutation_graph(24, seed=1), x, ray)
    assert not check_dual_ray(graph, x, ray, criterion="row")


@settings(deadline=None, max_examples=40)
@given(cases(), st.sampled_from(CRITERIA))
def test_a_ray_rules_out_each_head_by_exact_arithmetic(case, criterion):
    """For any head, the multipliers weigh its exact margins to (nearly) nothing: one is <= 0."""
    graph, x = case
    answer = single_head_feasible(graph, x, criterion=criterion)
    if answer:
        return
    matrix = np.random.default_rng(0).integers(-9, 10, (x.shape[1],) * 2)
    exact = np.vectorize(Fraction, otypes=[object])
    scores = exact(x.numpy()) @ exact(matrix.astype(float)) @ exact(x.numpy()).T
    signs = np.where(graph.adjacency(), 1, -1) * exact(answer.ray)
    balance = [signs.sum()] if criterion == "global" else signs.sum(axis=1)
    assert max(map(abs, balance)) < 1e-8 * answer.ray.sum()
    assert abs((signs * scores).sum()) < 1e-8 * answer.ray.sum() * (1 + max(map(abs, scores.flat)))


def test_few_pairs_are_corrected_in_fractions():
    """A third is no float: the multipliers sum to zero only after correction."""
    x = np.array([[1.0], [1 / 3]])
    signs = np.array([[-1.0, 1.0], [1.0, -1.0]])
    assert refutes(np.array([[0.5, 1.0], [1.0, 1.5]]), signs, x, False)
    assert not refutes(np.array([[0.5, 0.5], [0.0, 0.0]]), signs, x, False)
    x = np.array([[1.0], [1 / 3], [1 / 3]])
    signs = np.array([[0.0, 1.0, -1.0], [0.0, 0, 0], [0.0, 0, 0]])
    assert refutes(np.array([[0.0, 0.7, 0.7], [0.0, 0, 0], [0.0, 0, 0]]), signs, x, False)
    assert refutes(np.array([[0.0, 0.7, 0.7 + 1e-9], [0.0, 0, 0], [0.0, 0, 0]]), signs, x, False)
    x[2] = np.nextafter(1 / 3, 1)
    assert not refutes(np.array([[0.0, 0.7, 0.7], [0.0, 0, 0], [0.0, 0, 0]]), signs, x, False)


def test_free_pairs_are_not_asked_for():
    graph = permutation_graph(28, seed=0)
    x = gaussian_embeddings(28, 8, seed=0, dtype=torch.float64)
    assert not decide(graph, x)
    heads = []
    for own, rest in [(graph.edges[:17], graph.edges[17:]), (graph.edges[17:], graph.edges[:17])]:
        free = RelationalGraph(28, rest)
        answer = single_head_feasible(graph, x, free=free)
        if answer:
            heads.append(answer.channel)
        else:
            assert check_dual_ray(graph, x, answer.ray, free=free)
            assert not check_dual_ray(RelationalGraph(28, own), x, answer.ray * 0)
    single = RelationalGraph(28, graph.edges[1:])
    head = single_head_feasible(graph, x, free=single)
    scores = head.channel.scores(x)[0]
    above = scores > head.channel.threshold
    assert above[tuple(graph.edges[0])]
    assert not above[~torch.from_numpy(graph.adjacency())].any()


def test_heads_of_their_own_edges_are_one_channel():
    """Blocks that are feasible with the other edges free make a channel of that many heads."""
    m, heads = 24, []
    graph = permutation_graph(m, seed=0)
    x = gaussian_embeddings(m, 8, seed=0, dtype=torch.float64)
    for block in np.array_split(graph.edges, 4):
        rest = [edge for edge in graph.edges.tolist() if edge not in block.tolist()]
        heads.append(single_head_feasible(graph, x, free=RelationalGraph(m, rest)).channel)
    assert min(head.threshold for head in heads) > 0
    joint = KeyQueryChannel(torch.cat([head.query_weights / head.threshold for head in heads]),
                            torch.cat([head.key_weights for head in heads]), 1.0)
    assert certify(joint, graph, x).recovers_every_context


def test_undecided_is_no_answer():
    nearly = torch.eye(4)
    nearly[3] = nearly[2] + 1e-12 * torch.ones(4)
    nearly = nearly.double()
    nearly[3] = nearly[2]
    nearly[3, 0] = 1e-13  # told apart by less than float64 scores can be trusted
    answer = single_head_feasible(RelationalGraph(4, [(0, 3), (3, 2)]), nearly)
    if answer.feasible is None:
        with pytest.raises(ValueError, match="decided to be read as True or False"):
            bool(answer)
    with pytest.raises(ValueError, match="decided .* got OneHead"):
        bool(OneHead(None))
    assert not OneHead(False) and OneHead(True)
    assert replace(OneHead(True), steps=3).steps == 3


def test_decides_large_graphs():
    graph = permutation_graph(160, seed=0)
    x = gaussian_embeddings(160, 24, seed=0, dtype=torch.float64)
    for criterion in CRITERIA:
        assert not decide(graph, x, criterion)
    part = permutation_graph(90, seed=0)
    assert decide(part, x[:90]) and decide(part, x[:90], "row")


GRAPH = RelationalGraph(3, [(0, 1)])
WIDE = torch.randn(70, 66, generator=torch.Generator().manual_seed(0))
TABLE = [
    (lambda: single_head_feasible([(0, 1)], NUMBERS), r"`graph` .* RelationalGraph; got \[\(0, 1\)\]"),
    (lambda: single_head_feasible(GRAPH, NUMBERS[:2]), r"`graph` .* 2 vertices .* num_vertices=3"),
    (lambda: single_head_feasible(RelationalGraph(3, []), NUMBERS), r"`graph` .* num_edges=0"),
    (lambda: single_head_feasible(GRAPH, NUMBERS.numpy()), r"`embeddings` .* torch.Tensor; got"),
    (lambda: single_head_feasible(GRAPH, NUMBERS * float("nan")), r"`embeddings` .* entry nan"),
    (lambda: single_head_feasible(GRAPH, NUMBERS[:, 0]), r"`embeddings` .* \(m, d_model\)"),
    (lambda: single_head_feasible(GRAPH, NUMBERS, criterion="rows"), r"`criterion` .* got 'rows'"),
    (lambda: single_head_feasible(GRAPH, NUMBERS, free=GRAPH), r"`free` .* one of the edges"),
    (lambda: single_head_feasible(GRAPH, NUMBERS, free=[(0, 1)]), r"`free` .* on 3 vertices"),
    (lambda: single_head_feasible(GRAPH, NUMBERS, free=RelationalGraph(2, [])),
     r"`free` .* on 3 vertices; got .*num_vertices=2"),
    (lambda: single_head_feasible(permutation_graph(70, seed=0), WIDE),
     r"`embeddings` .* at most 64 dimensions.*; got 70 in 66"),
    (lambda: single_head_feasible(GRAPH, 1e-200 * NUMBERS), r"`embeddings` .* 1e-150 and 1e150"),
    (lambda: single_head_feasible(GRAPH, 1e-310 * NUMBERS**3), r"`embeddings` .* in size"),
    (lambda: check_dual_ray(GRAPH, NUMBERS, np.ones((2, 2))), r"`ray` .* shape \(3, 3\); got .* \(2, 2\)"),
    (lambda: check_dual_ray(GRAPH, NUMBERS, np.ones((3, 3), int)), r"`ray` .* float64 .* got a int64"),
    (lambda: check_dual_ray(GRAPH, NUMBERS, [[1.0] * 3] * 3), r"`ray` .* float64"),
    (lambda: check_dual_ray(GRAPH, NUMBERS, np.full((3, 3), np.nan)), r"`ray` .* entry nan"),
    (lambda: check_dual_ray(GRAPH, NUMBERS, np.ones((3, 3)), criterion=None), r"`criterion`"),
]


@pytest.mark.parametrize(("call", "message"), TABLE, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_input_is_named(call, message, pytestconfig):
    if pytestconfig.getoption("jaxtyping_packages", None):
        pytest.skip("annotations that are enforced refuse first")
    with pytest.raises(ValueError) as error:
        call()
    assert re.search(message.replace(" .* ", ".*"), str(error.value)), str(error.value)
