"""Best head weights: against grids, exact values and finite differences; never below a head."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from manyheads.synergy import HeadSystem, expected_hitting_times, minimax_fidelity
from manyheads.synergy._objectives import Fidelities, HittingTimes
from manyheads.synergy.weights import best_weights
from tests.synergy.examples import EXAMPLE_2, fractions, random_attention, systems

F64 = torch.float64
SMALLEST = HeadSystem.from_edges(4, [[(0, 2), (1, 3), (2, 3)], [(0, 3), (1, 2), (2, 3)]])


def graphs(num_nodes):
    """Every DAG in causal order in which all nodes but the last send something on."""
    choices = []
    for j in range(num_nodes - 1):
        later = range(j + 1, num_nodes)
        choices.append([targets for size in range(1, num_nodes - j)
                        for targets in itertools.combinations(later, size)])
    return [[(j, i) for j, targets in enumerate(choice) for i in targets]
            for choice in itertools.product(*choices)]


def value(system, objective, **options):
    """What the library says of a system's present weights, written out again."""
    if objective == "fidelity":
        return minimax_fidelity(system.diffusion_matrix(), options.get("horizon", 16))
    walk = system.walk_matrix(normalize=options.get("normalize", "before"))
    if objective == "progress":
        return (1 - walk.diagonal(dim1=-2, dim2=-1))[..., :-1].amin(-1)
    times = expected_hitting_times(walk)
    return times.mean(-1) if options.get("average") else times.amax(-1)


@pytest.mark.parametrize("objective", ["hitting_time", "fidelity"])
def test_no_grid_is_better_on_any_pair_of_four_nodes(objective):
    first = torch.arange(65, dtype=F64) / 64
    grid = torch.stack([first, 1 - first], -1)
    pairs = list(itertools.combinations(graphs(4), 2))
    assert len(pairs) == 210
    gains = 0
    for pair in pairs:
        system = HeadSystem.from_edges(4, pair)
        best = best_weights(system, objective)
        on_grid = value(system.mixed_with(grid), objective)
        assert best.value.item() == pytest.approx(
            value(system.mixed_with(best.weights), objective).item(), rel=1e-13)
        if objective == "hitting_time":
            assert best.value <= on_grid.min() + 1e-12 and best.head_value == on_grid[[0, -1]].min()
        else:
            assert best.value >= on_grid.max() - 1e-12 and best.head_value == on_grid[[0, -1]].max()
        gains += (best.gain > 1).item()
    assert gains == {"hitting_time": 35, "fidelity": 50}[objective]


@pytest.mark.parametrize("options", [
    {"objective": "hitting_time"}, {"objective": "hitting_time", "average": True},
    {"objective": "hitting_time", "normalize": "after"}, {"objective": "fidelity", "horizon": 9}])
def test_no_grid_is_better_with_three_heads(options):
    steps = torch.tensor([(a, b, 24 - a - b) for a in range(25) for b in range(25 - a)])
    for seed in range(6):
        system = HeadSystem.from_attention(random_attention(3, 6, 6, seed=seed))
        best = best_weights(system, **options)
        on_grid = value(system.mixed_with(steps.double() / 24), **options)
        sign = 1 if options["objective"] == "hitting_time" else -1
        assert sign * (best.value - (sign * on_grid).min() * sign) <= 1e-9


class TestKnownAnswers:
    def test_the_smallest_mixture_that_is_faster(self):
        best = best_weights(SMALLEST)
        assert best.value.item() == pytest.approx(3, rel=1e-12)
        assert best.weights.tolist() == pytest.approx([0.5, 0.5], abs=1e-6)
        assert (best.head, best.head_value) == (0, 4)
        assert best.gain.item() == pytest.approx(4 / 3, rel=1e-12)

    def test_three_nodes_gain_nothing(self):
        for pair in itertools.combinations(graphs(3), 2):
            best = best_weights(HeadSystem.from_edges(3, pair))
            assert best.gain == 1 and sorted(best.weights.tolist()) == [0, 1]

    @pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-9])
    def test_unbounded_gain(self, delta):
        """Progress (1-d, d) and (d, 1-d): 1/d + 1/(1-d) alone, 4 together."""
        flows = torch.tensor([[[1 - a, 0, 0], [a, 1 - b, 0], [0, b, 1]]
                              for a, b in ((1 - delta, delta), (delta, 1 - delta))], dtype=F64)
        best = best_weights(HeadSystem(flows))
        assert best.value.item() == pytest.approx(4, rel=1e-9)
        assert best.head_value.item() == pytest.approx(1 / delta + 1 / (1 - delta), rel=1e-6)
        progress = best_weights(HeadSystem(flows), "progress")
        assert progress.value.item() == pytest.approx(0.5, rel=1e-9)
        assert progress.head_value.item() == pytest.approx(delta, rel=1e-6)

    def test_example_2_has_more_than_equal_weights_give(self):
        system = HeadSystem.from_edges(4, EXAMPLE_2)
        best = best_weights(system, "fidelity", horizon=20)
        assert best.value > 5 / 12 and best.head_value == 3 / 8

    def test_heads_that_need_each_other(self):
        relay = HeadSystem.from_edges(3, [[(0, 1)], [(1, 2)]])
        for objective, expected in (("hitting_time", 8), ("progress", 0.25)):
            best = best_weights(relay, objective)
            assert best.value.item() == pytest.approx(expected, rel=1e-9)
            assert best.gain == math.inf
        assert best_weights(relay, "fidelity").gain == math.inf

    def test_progress_is_the_value_of_the_game(self):
        """Against every crossing of two lines, in rationals; and never below a head."""
        for pair in itertools.combinations(graphs(4), 2):
            system = HeadSystem.from_edges(4, pair)
            lines = []
            for head in range(2):
                walk = fractions(system.head(head).walk_matrix(exact=True))
                lines.append([1 - walk[j][j] for j in range(3)])
            crossings = {Fraction(0), Fraction(1)}
            for (a, b), (c, d) in itertools.combinations(zip(*lines, strict=True), 2):
                if a - b != c - d:
                    crossings.add((d - b) / (a - b - c + d))
            exact = max(min(x * a + (1 - x) * b for a, b in zip(*lines, strict=True))
                        for x in crossings if 0 <= x <= 1)
            assert best_weights(system, "progress").value.item() == pytest.approx(
                float(exact), rel=1e-9)

    def test_progress_far_below_the_tolerance_of_a_linear_program(self):
        flows = torch.eye(4, dtype=F64).repeat(2, 1, 1)
        flows[0, 1, 0], flows[0, 2, 1], flows[0, 3, 2] = 3e-11, 1e-11, 0.5
        flows[1, 1, 0], flows[1, 2, 1], flows[1, 3, 2] = 1e-11, 3e-11, 0.9
        assert best_weights(HeadSystem(flows), "progress").value.item() == pytest.approx(
            2e-11, rel=1e-6)


class TestProperties:
    @settings(deadline=None, max_examples=40)
    @given(systems(max_nodes=5))
    def test_never_worse_than_a_head_or_equal_weights(self, system):
        for objective in ("hitting_time", "fidelity", "progress"):
            if system.num_nodes == 1 and objective != "hitting_time":
                continue
            best = best_weights(system, objective, **(
                {"horizon": 16} if objective == "fidelity" else {}))
            equal = value(system.mixed_with(None), objective)
            alone = [value(system.head(a), objective).item() for a in range(system.heads)]
            sign = 1 if objective == "hitting_time" else -1
            assert best.head_value.item() == pytest.approx(alone[best.head.item()], rel=1e-12)
            assert sign * best.head_value.item() == pytest.approx(
                min(sign * x for x in alone), rel=1e-12)
            assert sign * best.value <= sign * best.head_value
            # A mixture within 1e-9 of the best head is not preferred to it.
            assert sign * best.value.item() <= sign * equal.item() + 1e-8 * abs(equal.item()) or (
                best.value == equal)
            assert best.gain >= 1
            assert best.weights.sum().item() == pytest.approx(1) and best.weights.min() >= 0

    @pytest.mark.parametrize("objective", ["hitting_time", "fidelity", "progress"])
    def test_batch_equals_loop_and_float32_is_close(self, objective):
        attention = random_attention(2, 3, 4, 7, 7)
        together = best_weights(HeadSystem.from_attention(attention), objective)
        assert together.weights.shape == (2, 3, 4) and together.head.dtype == torch.int64
        for a, b in itertools.product(range(2), range(3)):
            alone = best_weights(HeadSystem.from_attention(attention[a, b]), objective)
            for field in ("weights", "value", "head", "head_value", "gain"):
                assert torch.equal(getattr(together, field)[a, b], getattr(alone, field))
        single = best_weights(HeadSystem.from_attention(attention.float()), objective)
        assert single.weights.dtype == single.value.dtype == torch.float32
        assert single.value.tolist() == [pytest.approx(row, rel=1e-5)
                                         for row in together.value.tolist()]
        HeadSystem.from_attention(attention.float()).mixed_with(single.weights)

    @pytest.mark.parametrize("objective", ["hitting_time", "fidelity", "progress"])
    def test_order_and_copies_of_heads_do_not_matter(self, objective):
        attention = random_attention(3, 6, 6)
        best = best_weights(HeadSystem.from_attention(attention), objective).value.item()
        for order in ([2, 0, 1], [0, 1, 2, 2]):
            other = best_weights(HeadSystem.from_attention(attention[order]), objective)
            assert other.value.item() == pytest.approx(best, rel=1e-7)

    def test_equal_heads_give_one_of_them(self):
        attention = random_attention(1, 5, 5).expand(3, 5, 5)
        assert best_weights(HeadSystem.from_attention(attention)).weights.tolist() == [1, 0, 0]

    def test_one_head_and_one_node(self):
        for objective in ("hitting_time", "fidelity", "progress"):
            best = best_weights(SMALLEST.head(0), objective)
            assert best.weights.tolist() == [1] and best.gain == 1
        assert best_weights(HeadSystem.from_edges(1, [[], []])).value == 0

    def test_a_sink_out_of_reach(self):
        system = HeadSystem.from_edges(4, [[(0, 1), (1, 3)], [(0, 3), (1, 3)]])
        for options, worst in (({}, math.inf), ({"average": True}, math.inf),
                               ({"objective": "fidelity"}, 0), ({"objective": "progress"}, 0)):
            best = best_weights(system, **options)
            assert best.value == worst and best.weights.tolist() == [1, 0] and best.gain == 1

    def test_a_horizon_shorter_than_the_way(self):
        system = HeadSystem.from_edges(4, [[(0, 1), (1, 2), (2, 3)]] * 2)
        assert best_weights(system, "fidelity", horizon=2).value == 0
        assert best_weights(system, "fidelity", horizon=3).value == 1 / 8

    def test_frozen_and_the_system_is_left_alone(self):
        attention = random_attention(3, 5, 5).requires_grad_()
        before = attention.detach().clone()
        best = best_weights(HeadSystem.from_attention(attention))
        assert torch.equal(attention, before) and not best.value.requires_grad
        with pytest.raises(dataclasses.FrozenInstanceError):
            best.value = 0


@pytest.mark.parametrize("make", [
    lambda a: HittingTimes(HeadSystem(a).flows.numpy(), average=False),
    lambda a: HittingTimes(a.numpy(), average=True),
    lambda a: Fidelities(a.numpy(), horizon=20)])
def test_derivatives(make):
    """Against central differences; flows need not be normalised for hitting times."""
    functions = make(random_attention(3, 7, 7))
    weights, working = np.array([0.2, 0.5, 0.3]), np.arange(len(functions.values(np.full(3, 1/3))))
    values, derivatives = functions.at(weights, working)
    np.testing.assert_allclose(values, functions.values(weights), rtol=1e-12)
    for head, row in enumerate(1e-6 * np.eye(3)):
        slope = (functions.at(weights + row, working)[0]
                 - functions.at(weights - row, working)[0]) / 2e-6
        np.testing.assert_allclose(derivatives()[:, head], slope, rtol=1e-6, atol=1e-8)


@pytest.mark.skipif(hasattr(best_weights, "__wrapped__"), reason="annotations are being enforced")
@pytest.mark.parametrize(("call", "message"), [
    (lambda: best_weights(torch.eye(2)), r"`system`.*a HeadSystem; got"),
    (lambda: best_weights(SMALLEST, "speed"), r"`objective`.*'hitting_time', 'fidelity'.*'speed'"),
    (lambda: best_weights(SMALLEST, average=1), r"`average`.*True or False"),
    (lambda: best_weights(SMALLEST, normalize="never"), r"`normalize`.*'before', 'after'"),
    (lambda: best_weights(SMALLEST, "fidelity", average=True), r"`average`.*left out"),
    (lambda: best_weights(SMALLEST, "progress", normalize="after"), r"`normalize`.*left out"),
    (lambda: best_weights(SMALLEST, horizon=9), r"`horizon`.*left out.*hitting_time"),
    (lambda: best_weights(SMALLEST, "fidelity", horizon=0), r"`horizon`.*at least 1"),
    (lambda: best_weights(SMALLEST, seed=-1), r"`seed`.*at least 0"),
    (lambda: best_weights(HeadSystem.from_edges(1, [[]]), "fidelity"), r"`system`.*two nodes"),
])
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
