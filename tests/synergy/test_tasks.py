"""The tasks, and the ceiling of a causal model on them."""

from fractions import Fraction
from itertools import product

import pytest
import torch

from manyheads.synergy.tasks import copy_task, cycle_task


def test_targets():
    copy = copy_task(50, length=9, vocabulary=12, seed=3)
    cycle = cycle_task(50, length=9, vocabulary=12, seed=3)
    assert torch.equal(copy.inputs, copy.targets) and torch.equal(copy.inputs, cycle.inputs)
    assert copy.inputs.data_ptr() != copy.targets.data_ptr()
    assert torch.equal(cycle.targets[:, 1:], cycle.inputs[:, :-1])
    assert torch.equal(cycle.targets[:, 0], cycle.inputs[:, -1])
    assert copy.inputs.dtype == torch.int64 and copy.vocabulary == 12


def test_seed_decides_and_tokens_are_uniform():
    first = copy_task(4000, length=10, vocabulary=5, seed=0).inputs
    assert torch.equal(first, copy_task(4000, length=10, vocabulary=5, seed=0).inputs)
    assert not torch.equal(first, copy_task(4000, length=10, vocabulary=5, seed=1).inputs)
    counts = first.flatten().bincount(minlength=5)
    assert (counts - 8000).abs().max() < 5 * (40000 * 0.2 * 0.8) ** 0.5


@pytest.mark.parametrize("make", [copy_task, cycle_task])
@pytest.mark.parametrize("length, vocabulary", [(2, 2), (2, 5), (3, 2), (3, 3)])
def test_ceiling_is_the_best_causal_guess(make, length, vocabulary):
    """Over all sequences, each position guesses the target most frequent after its prefix."""
    right = Fraction(0)
    inputs = torch.tensor(list(product(range(vocabulary), repeat=length)))
    shift = 0 if make is copy_task else 1
    targets = inputs.roll(shift, dims=1)
    for place in range(length):
        after = {}
        for row, target in zip(inputs[:, :place + 1].tolist(), targets[:, place].tolist()):
            after.setdefault(tuple(row), []).append(target)
        right += sum(max(map(guesses.count, guesses)) for guesses in after.values())
    best = right / inputs.numel()
    assert abs(make(1, length=length, vocabulary=vocabulary, seed=0).ceiling - best) < 1e-12


@pytest.mark.parametrize("make", [copy_task, cycle_task])
@pytest.mark.parametrize("changes, message", [
    (dict(sequences=0), "`sequences` must be a whole number at least 1"),
    (dict(length=1.5), "`length` must be a whole number"),
    (dict(vocabulary=True), "`vocabulary` must be a whole number"),
    (dict(seed=-1), "`seed` must be a whole number at least 0"),
])
def test_bad_input(make, changes, message):
    with pytest.raises(ValueError, match=message):
        make(**dict(sequences=2, length=3, vocabulary=4, seed=0) | changes)


def test_bad_input_a_roll_of_one_token():
    with pytest.raises(ValueError, match="`length` must be a whole number at least 2; got 1"):
        cycle_task(2, length=1, vocabulary=4, seed=0)
