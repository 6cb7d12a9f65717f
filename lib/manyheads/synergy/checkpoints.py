"""Transformers on disk: our own safetensors files, and the state dicts that others published.

Neither can run code: safetensors holds numbers alone, and a state dict is read with
``weights_only=True``. What a file holds is checked tensor by tensor before it is used.
"""

__all__ = ["load_checkpoint", "load_published_checkpoint", "save_checkpoint"]

import json
import os
import re
from pathlib import Path

import torch
from torch import Tensor

from manyheads._checks import check_count, check_tensor, describe, refuse
from manyheads.synergy.transformer import Transformer

_LAYER = re.compile(r"layers\.(\d+)\.")


def load_published_checkpoint(path: str | Path, *, heads: int | None = None) -> Transformer:
    """The Transformer of a state dict in the layout of Sáez de Ocáriz Borde 2025's code.

    Sizes are read from the shapes. With E the width, every layer L has
    ``layers.L.attn.{W_q,W_k,W_v,out_proj}``, ``layers.L.mlp.{0,3}`` (the second also
    under the number 2), weights and biases, and ``layers.L.{ln1,ln2}.weight``; around
    them stand ``token_emb.weight`` (V, E), ``pos_emb.weight`` (length, E) and
    ``out_proj.{weight,bias}``.

    Parameters
    ----------
    path : path
        A file that `torch.save` wrote. It is read with ``weights_only=True``, so a file
        from elsewhere cannot run code.
    heads : int, optional
        The file does not say; a name that begins like ``4_heads_copy.pt`` does.

    Returns
    -------
    Transformer
        In evaluation mode, on the CPU, in the file's precision.

    Raises
    ------
    ValueError
        If the file is not a state dict of tensors; if tensors are missing, misshapen, of
        no or different float types, not finite, or too many (all named); if `heads` is
        neither given nor in the name, or does not divide E.
    """
    path = _existing(path)
    if heads is None:
        named = re.match(r"(\d+)_heads?_", path.name)
        if not named:
            refuse("heads", "given for a file whose name does not begin like '4_heads_'",
                   f"None for {path.name}")
        heads = int(named[1])
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for what is no file of its own
        refuse("path", "a file of tensors alone, written by torch.save(model.state_dict(), path)",
               f"{path.name}, which is not ({_first_line(error)})")
    if not isinstance(state, dict) or not state or not all(
            isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()):
        given = "other entries" if isinstance(state, dict) and state else describe(state)
        refuse("path", "a state dict, which maps names to tensors", f"{path.name}, with {given}")
    state = {name.replace(".mlp.2.", ".mlp.3."): value for name, value in state.items()}

    def size(name, axis):
        if name not in state:
            refuse("path", f"a Transformer's state dict, with {name}",
                   f"{path.name}, with {_some(state)}")
        return check_tensor(name, state[name], "out in", finite=False).shape[axis]

    layers = {int(found[1]) for name in state if (found := _LAYER.match(name))}
    config = {
        "vocabulary": size("token_emb.weight", 0),
        "length": size("pos_emb.weight", 0),
        "heads": check_count("heads", heads),
        "layers": max(len(layers), 1),
        "d_model": size("token_emb.weight", 1),
        "mlp_dim": size("layers.0.mlp.0.weight", 0),
    }
    return _filled(config, state, path)


def save_checkpoint(model: Transformer, path: str | Path) -> None:
    """Write a model and its configuration to a safetensors file.

    Parameters
    ----------
    model : Transformer
    path : path
        Replaced whole or not at all.
    """
    if not isinstance(model, Transformer):
        refuse("model", "a Transformer", model)
    write_tensors(path, model.state_dict(), {"config": model.config})


def load_checkpoint(path: str | Path) -> Transformer:
    """The model of a file that `save_checkpoint` or `train` wrote.

    Returns
    -------
    Transformer
        In evaluation mode, on the CPU, in the file's precision.

    Raises
    ------
    ValueError
        If the file is no such file; the message says what is wrong with it.
    """
    tensors, about = read_tensors(path)
    weights = {name: value for name, value in tensors.items() if not name.startswith("adam.")}
    return _filled(about.get("config"), weights, Path(path))


def write_tensors(path: str | Path, tensors: dict[str, Tensor], about: dict) -> None:
    """Tensors and what JSON can hold about them, as a safetensors file, whole or not at all."""
    from safetensors.torch import save_file  # an optional dependency

    if not isinstance(path, str | Path):
        refuse("path", "a path", path)
    part = Path(f"{path}.{os.getpid()}.part")
    try:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()},
                  part, metadata={key: json.dumps(value) for key, value in about.items()})
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict]:
    """What `write_tensors` wrote, on the CPU."""
    from safetensors import SafetensorError, safe_open

    path = _existing(path)
    try:
        with safe_open(path, framework="pt") as file:
            about = {key: json.loads(value) for key, value in (file.metadata() or {}).items()}
            return {name: file.get_tensor(name) for name in file.keys()}, about
    except (SafetensorError, ValueError, OSError) as error:
        refuse("path", "a safetensors file of this package",
               f"{path.name}, which is not ({_first_line(error)})")


def fill(model: Transformer, state: dict[str, Tensor], path: Path) -> None:
    """Put tensors into a model, refused unless they are exactly its own."""
    expected = model.state_dict()
    missing = [name for name in expected if name not in state]
    surplus = [name for name in state if name not in expected]
    for names, problem in ((missing, "without"), (surplus, "with, besides,")):
        if names:
            refuse("path", f"a Transformer's state dict of {len(expected)} tensors",
                   f"{path.name} {problem} {_some(names)}")
    like = check_tensor("token_emb.weight", state["token_emb.weight"], "...")
    for name, value in state.items():
        check_tensor(name, value, "...", like=like)
        if value.shape != expected[name].shape:
            refuse(name, f"of shape {tuple(expected[name].shape)}, as the other tensors are",
                   value)
    model.to(like.dtype).load_state_dict(state)


def _filled(config, state: dict[str, Tensor], path: Path) -> Transformer:
    try:
        model = Transformer(**config)
    except TypeError:
        refuse("path", "a checkpoint with the configuration of a Transformer",
               f"{path.name}, with {describe(config)}")
    fill(model, state, path)
    return model.eval()


def _existing(path) -> Path:
    if not isinstance(path, str | Path) or not Path(path).is_file():
        refuse("path", "the path of a checkpoint", describe(str(path)))
    return Path(path)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]


def _some(names) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
