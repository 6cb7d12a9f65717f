"""How differently heads send, or read."""

import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_choice, refuse
from manyheads.synergy.heads import HeadSystem

__all__ = ["head_diversity"]


def head_diversity(system: HeadSystem, matrix: str = "walk") -> Float[Tensor, "*batch n"]:
    """The distance between two heads at every node, averaged over pairs of heads.

    The distance is the total variation between what the two heads do at the node: where
    they send from it ("walk"), or what they read there ("diffusion"). It is the least
    probability with which two tokens that start at the node and follow a head each part
    at once. A pair of different heads counts by the product of its weights.

    Parameters
    ----------
    system
        With weights.
    matrix
        "walk": columns of the walk matrices. "diffusion": rows of the diffusion matrices.

    Returns
    -------
    Tensor
        Shape (..., n), in [0, 1]: 0 where the heads agree, 1 where they share nothing;
        0 for one head. The chapter "Together or alone" uses the mean over nodes.

    Raises
    ------
    ValueError
        If `system` is no HeadSystem or `matrix` is another name.

    Examples
    --------
    Node 0 goes half to node 1 or half to node 2, node 1 the same way in both:

    >>> head_diversity(HeadSystem.from_edges(3, [[(0, 1), (1, 2)], [(0, 2), (1, 2)]]))
    tensor([0.5000, 0.0000, 0.0000], dtype=torch.float64)
    """
    if not isinstance(system, HeadSystem):
        refuse("system", "a HeadSystem", system)
    check_choice("matrix", matrix, ("walk", "diffusion"))
    axis = -2 if matrix == "walk" else -1
    each = [getattr(system.head(head), f"{matrix}_matrix")() for head in range(system.heads)]
    total, pairs = 0, 0
    for one in range(system.heads):
        for two in range(one):
            pair = (system.weights[..., one] * system.weights[..., two]).unsqueeze(-1)
            total = total + pair * (each[one] - each[two]).abs().sum(axis) / 2
            pairs = pairs + pair
    if system.heads == 1:
        batch = torch.broadcast_shapes(each[0].shape[:-2], system.weights.shape[:-1])
        return each[0].new_zeros(batch + each[0].shape[-1:])
    return torch.where(pairs > 0, total / pairs, torch.zeros_like(total))
