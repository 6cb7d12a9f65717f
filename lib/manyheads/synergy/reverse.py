"""The walk in reverse: from the sink back to the source, along what each node reads.

Row i of a diffusion matrix says whom node i reads. A walk that steps from a node to one
it reads, in those proportions, starts at the sink and ends in a source. Its law after t
steps is what the sink holds of every node after t layers: fidelity is about this walk.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from manyheads.synergy._causal import check_causal, check_stochastic

__all__ = ["reverse_hitting_time", "reversed_walk"]


def reversed_walk(diffusion: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """The walk matrix of the reversed walk, nodes in reverse order.

    Parameters
    ----------
    diffusion
        Row-stochastic, lower triangular, shape (..., n, n).

    Returns
    -------
    Tensor
        Shape (..., n, n), column-stochastic and lower triangular, so that
        `expected_hitting_times` and `mixing_time` take it. Index 0 is the sink of the
        diffusion, the last index its first node; where that is its only source, the
        reversed walk ends there.

    Raises
    ------
    ValueError
        If `diffusion` is not a diffusion matrix.

    Examples
    --------
    >>> reversed_walk(torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]))
    tensor([[0.5000, 0.0000, 0.0000],
            [0.3000, 0.5000, 0.0000],
            [0.2000, 0.5000, 1.0000]])
    """
    _check_diffusion(diffusion)
    return diffusion.mT.flip(-1, -2)


def reverse_hitting_time(diffusion: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    """Expected number of steps of the reversed walk from the sink to a source.

    A source is a node that reads only itself; there may be several.

    Parameters
    ----------
    diffusion
        Row-stochastic, lower triangular, shape (..., n, n).

    Returns
    -------
    Tensor
        Shape (...), in steps; 0 where the sink is itself a source.

    Raises
    ------
    ValueError
        If `diffusion` is not a diffusion matrix.

    Notes
    -----
    With s sources, (n - s) times the minimax fidelity is at most this time (ours; chapter
    "Minimax fidelity").

    Examples
    --------
    On a line of n nodes every step back takes two on average:

    >>> line = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    >>> reverse_hitting_time(line)
    tensor(4.)
    """
    _check_diffusion(diffusion)
    back = diffusion.tril(-1)
    progress = back.sum(-1)
    source = progress == 0
    # (progress_i - back) x = 1 at every node but sources, where x = 0.
    matrix = -back
    matrix.diagonal(dim1=-2, dim2=-1).copy_(progress + source)
    cost = (~source).to(diffusion).unsqueeze(-1)
    return torch.linalg.solve_triangular(matrix, cost, upper=False)[..., -1, 0]


def _check_diffusion(diffusion):
    """Refuse what is not a diffusion matrix."""
    row_sums, _ = check_causal("diffusion", diffusion)
    check_stochastic("diffusion", diffusion, row_sums, "row",
                     "HeadSystem(...).diffusion_matrix() makes one of any heads")
