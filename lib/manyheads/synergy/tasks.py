"""Two tasks on random tokens: to copy, where nothing travels, and to cycle, where all do."""

__all__ = ["Task", "copy_task", "cycle_task"]

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from manyheads._checks import check_count


@dataclass(frozen=True, eq=False)
class Task:
    """Sequences and what is asked for at each of their positions.

    Attributes
    ----------
    inputs, targets : Tensor
        Shape (sequences, length), int64.
    vocabulary : int
        Tokens are 0, ..., vocabulary - 1.
    ceiling : float
        The largest accuracy, expected over fresh sequences, of any causal model.
    """

    inputs: Int[Tensor, "sequences length"]
    targets: Int[Tensor, "sequences length"]
    vocabulary: int
    ceiling: float


def copy_task(sequences: int, *, length: int = 100, vocabulary: int = 256, seed: int) -> Task:
    """Independent uniform tokens; the target at each position is the token there.

    Parameters
    ----------
    sequences, length, vocabulary : int
    seed : int
        From 0. The same seed gives both tasks the same inputs.

    Raises
    ------
    ValueError
        If an argument is not a whole number as described.

    Examples
    --------
    >>> task = copy_task(1, length=6, vocabulary=10, seed=0)
    >>> task.inputs, task.targets
    (tensor([[4, 9, 3, 0, 3, 9]]), tensor([[4, 9, 3, 0, 3, 9]]))
    """
    inputs = _inputs(sequences, length, vocabulary, seed)
    return Task(inputs, inputs.clone(), vocabulary, 1.0)


def cycle_task(sequences: int, *, length: int = 100, vocabulary: int = 256, seed: int) -> Task:
    """Independent uniform tokens; the targets are the sequence rolled right by one.

    Position t > 0 asks for the token at t - 1, and position 0 for the last one, which a
    causal model has not seen there and guesses with probability 1 / vocabulary: the
    ceiling is 1 - (1 - 1 / vocabulary) / length.

    Parameters
    ----------
    sequences, length, vocabulary : int
        `length` at least 2.
    seed : int
        From 0. The same seed gives both tasks the same inputs.

    Raises
    ------
    ValueError
        If an argument is not a whole number as described.

    Examples
    --------
    >>> task = cycle_task(1, length=6, vocabulary=10, seed=0)
    >>> task.inputs, task.targets
    (tensor([[4, 9, 3, 0, 3, 9]]), tensor([[9, 4, 9, 3, 0, 3]]))
    >>> task.ceiling
    0.85
    """
    inputs = _inputs(sequences, check_count("length", length, least=2), vocabulary, seed)
    return Task(inputs, inputs.roll(1, dims=1), vocabulary, 1 - (1 - 1 / vocabulary) / length)


def _inputs(sequences, length, vocabulary, seed) -> Tensor:
    shape = check_count("sequences", sequences), check_count("length", length)
    draw = torch.Generator().manual_seed(check_count("seed", seed, least=0))
    return torch.randint(check_count("vocabulary", vocabulary), shape, generator=draw)
