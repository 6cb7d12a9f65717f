import math

import pytest
import torch

from manyheads.capacity.objectives import OBJECTIVES

OWED = torch.tensor([[[True, False, False], [False, False, True], [False, False, False]]])
SCORES = torch.tensor([[[2.0, 0.5, -1.0], [0.0, 1.0, 1.5], [0.25, -2.0, 0.0]]], dtype=torch.float64)
THETA = torch.tensor([0.75], dtype=torch.float64)


def softplus(x):
    return math.log1p(math.exp(x))


def logsumexp(*values):
    return math.log(sum(map(math.exp, values)))


def by_hand(objective):
    s, edges = SCORES[0].tolist(), [(0, 0), (1, 2)]
    others = {(i, j): s[i][j] for i in range(3) for j in range(3) if (i, j) not in edges}
    if objective == "margin":
        every = logsumexp(*others.values())
        rows = {i: logsumexp(*(x for (row, _), x in others.items() if row == i)) for i in (0, 1)}
        return sum(softplus(every - s[i][j]) + softplus(rows[i] - s[i][j]) for i, j in edges) / 2
    if objective == "softmax":
        return sum(logsumexp(*s[i]) - s[i][j] for i, j in edges) / 2
    return (sum(softplus(0.75 - s[i][j]) for i, j in edges) / 2
            + sum(softplus(x - 0.75) for x in others.values()) / len(others))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_loss_is_its_formula(objective):
    loss = OBJECTIVES[objective](SCORES, OWED, THETA)
    assert loss.shape == (1,) and loss.item() == pytest.approx(by_hand(objective), rel=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_runs_do_not_see_each_other(objective):
    both = torch.cat([SCORES, SCORES.flip(1)]), torch.cat([OWED, OWED.flip(1)])
    together = OBJECTIVES[objective](*both, THETA.expand(2))
    alone = [OBJECTIVES[objective](scores[None], owed[None], THETA) for scores, owed in zip(*both)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("objective", "shift", "same"), [
    ("margin", torch.full((3, 1), 5.0), True), ("softmax", torch.tensor([[5.0], [1.0], [0.0]]), True),
    ("margin", torch.tensor([[5.0], [1.0], [0.0]]), False),
    ("threshold", torch.full((3, 1), 5.0), False),
])
def test_what_a_loss_cannot_see(objective, shift, same):
    """Margins do not see a common shift, softmax not even one for each row."""
    before, after = (OBJECTIVES[objective](s, OWED, THETA).item() for s in (SCORES, SCORES + shift))
    assert (before == pytest.approx(after, rel=1e-9)) is same
