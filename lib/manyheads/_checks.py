"""Refusing bad input at the door: one wording, one exception type."""

import math
import numbers

import numpy as np
import torch

FLOATS = (torch.float32, torch.float64)


def describe(value) -> str:
    """A short description of `value` for an error message."""
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"a {value.dtype} array of shape {value.shape}"
    text = " ".join(repr(value).split())
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def refuse(argument: str, allowed: str, given) -> None:
    """Raise the ValueError that names the argument, what is allowed, what was given.

    `given` is quoted as it stands when it is a string, else described.
    """
    given = given if isinstance(given, str) else describe(given)
    raise ValueError(f"`{argument}` must be {allowed}; got {given}")


def check_count(argument: str, value, *, least: int = 1, most: int | None = None) -> int:
    """`value` as an int, refused unless it is a whole number in [least, most]."""
    span = f"at least {least}" if most is None else f"from {least} to {most}"
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        refuse(argument, f"a whole number {span}", describe(value))
    return int(value)


def check_number(argument: str, value, *, least=-math.inf, most=math.inf, strict=False) -> float:
    """`value` as a float, refused unless finite and within (strict) or on the limits."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    inside = real and (least < value < most if strict else least <= value <= most)
    if not inside or not math.isfinite(value):
        edge = ("(", ")") if strict else ("[", "]")
        refuse(argument, f"a finite number in {edge[0]}{least}, {most}{edge[1]}", describe(value))
    return float(value)


def check_bool(argument: str, value) -> bool:
    """`value`, refused unless it is True or False."""
    if not isinstance(value, bool):
        refuse(argument, "True or False", describe(value))
    return value


def check_choice(argument: str, value, allowed: tuple[str, ...]) -> str:
    """`value`, refused unless it is one of `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        refuse(argument, "one of " + ", ".join(map(repr, allowed)), describe(value))
    return value


def check_tensor(argument: str, value, shape: str, *, like: torch.Tensor | None = None,
                 finite: bool = True) -> torch.Tensor:
    """`value`, refused unless it is a finite float tensor of the named shape.

    `shape` names the axes in words, `"heads d_model key_dim"`; a leading `...`
    allows any number of batch axes. No axis may be empty. With `like`, dtype
    and device must equal those of that tensor. `finite=False` leaves the
    entries to a caller who reads them anyway.
    """
    if not isinstance(value, torch.Tensor) or value.dtype not in FLOATS:
        refuse(argument, "a float32 or float64 torch.Tensor", describe(value))
    axes = shape.split()
    named = [axis for axis in axes if axis != "..."]
    if value.ndim < len(named) or (value.ndim > len(named) and "..." not in axes):
        refuse(argument, f"of shape ({', '.join(axes)})", describe(value))
    if 0 in value.shape:
        refuse(argument, "without an empty axis", describe(value))
    if like is not None and (value.dtype, value.device) != (like.dtype, like.device):
        refuse(argument, f"{like.dtype} on {like.device}, as the other tensors are",
               f"{value.dtype} on {value.device}")
    # One reduction decides: a sum is finite unless an entry is not, or it overflows.
    if finite and not torch.isfinite(value.sum()) and not torch.isfinite(value).all():
        bad = value[~torch.isfinite(value)][0].item()
        refuse(argument, "finite everywhere", f"an entry {bad}")
    return value
