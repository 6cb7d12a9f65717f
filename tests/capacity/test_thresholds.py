import re

import numpy as np
import pytest
import torch

from manyheads.capacity import gaussian_embeddings, permutation_graph, train_channel
from manyheads.capacity.thresholds import bootstrap_interval, capacity_threshold

GRAPHS = [permutation_graph(24, seed=seed) for seed in range(3)]
X = torch.stack([gaussian_embeddings(24, 12, seed=seed) for seed in range(3)])


def test_the_least_width_succeeds_and_the_one_below_fails():
    found = capacity_threshold(GRAPHS, X, heads=2, most=6, steps=200, seed=7)
    for run, budget in enumerate(found.total_key_dim):
        key_dim = int(budget) // 2
        tried = found.tried.query("run == @run").set_index("key_dim")
        assert tried.loc[key_dim, "succeeded"]
        assert key_dim == 1 or not tried.loc[key_dim - 1, "succeeded"]
        alone = train_channel([GRAPHS[run]], X[run], heads=2, key_dim=key_dim, steps=200,
                              seed=7 + run)
        assert alone.certificates[0].recovers_every_context, "another run in company"
    assert found.median == np.median(found.total_key_dim)
    assert found.interval[0] <= found.median <= found.interval[1]
    assert (found.tried["total_key_dim"] == 2 * found.tried["key_dim"]).all()


def test_what_is_out_of_reach_is_infinite():
    found = capacity_threshold(GRAPHS, X, heads=1, most=1, steps=20)
    assert np.isinf(found.total_key_dim).all() and found.median == np.inf
    assert found.tried["key_dim"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(("recovery", "objective"), [("rows", "softmax"), ("f1", "threshold")])
def test_a_lower_level_needs_no_more(recovery, objective):
    budgets = [capacity_threshold(GRAPHS, X, heads=2, most=8, steps=150, recovery=recovery,
                                  level=level, objective=objective).total_key_dim
               for level in (0.3, 1.0)]
    assert (budgets[0] <= budgets[1]).all() and (budgets[0] < budgets[1]).any()


def test_the_bootstrap_covers_the_mean_and_is_the_same_again():
    draws = np.random.default_rng(0).normal(3, 1, size=200)
    low, high = bootstrap_interval(draws, np.mean)
    half = 1.96 * draws.std() / 200**0.5
    assert low == pytest.approx(draws.mean() - half, abs=0.03)
    assert high == pytest.approx(draws.mean() + half, abs=0.03)
    assert (low, high) == bootstrap_interval(draws, np.mean)


def test_an_infinite_run_stays_in_the_interval():
    assert bootstrap_interval(np.array([4.0, np.inf]), np.median) == (4.0, np.inf)


@pytest.mark.parametrize(("change", "message"), [
    ({"recovery": "all"}, "`recovery` must be .* got 'all'"),
    ({"level": 1.5}, "`level` must be .* got 1.5"),
    ({"most": 0}, "`most` must be .* got 0"),
    ({"heads": 0}, "`heads` must be .* got 0"),
    ({"progress": 1}, "`progress` must be .* got 1"),
    ({"objective": "hinge"}, "`objective` must be .* got 'hinge'"),
    ({"graphs": 3}, "`graphs` must be a non-empty list"),
    ({"graphs": []}, "`graphs` must be a non-empty list"),
    ({"embeddings": X[:2]}, "`embeddings` must be"),
])
def test_bad_input_is_named(change, message):
    given = {"graphs": GRAPHS, "embeddings": X, "heads": 1, "most": 2} | change
    with pytest.raises(ValueError) as error:
        capacity_threshold(given.pop("graphs"), given.pop("embeddings"), **given)
    assert re.search(message, str(error.value)), str(error.value)


def test_bad_input_to_the_bootstrap_is_named():
    with pytest.raises(ValueError, match="`values` must be at least one number"):
        bootstrap_interval(np.array([]), np.mean)
