"""Training a Transformer on a task: repeatable, and resumed where it was killed."""

__all__ = ["accuracy", "train"]

import hashlib
import sys
import time
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads._checks import check_bool, check_count, check_number, refuse
from manyheads.synergy.checkpoints import fill, read_tensors, write_tensors
from manyheads.synergy.tasks import Task
from manyheads.synergy.transformer import Transformer

_REPORT_EVERY = 5.0  # seconds
_ADAM = "adam."  # what Adam keeps of a parameter, in a checkpoint, stands under this and its name


@torch.no_grad()
def accuracy(model: Transformer, task: Task, *, batch: int = 50) -> float:
    """The share of a task's positions at which the largest logit is the target's.

    Parameters
    ----------
    model : Transformer
        Measured without dropout.
    task : Task
    batch : int
        Sequences at once.

    Raises
    ------
    ValueError
        If the task has tokens or lengths that the model does not.

    Examples
    --------
    >>> from manyheads.synergy import copy_task
    >>> model = Transformer(vocabulary=1, length=8, heads=1, layers=1)
    >>> accuracy(model, copy_task(3, length=8, vocabulary=1, seed=0))
    1.0
    """
    _check_fit(model, task)
    training, right = model.training, 0
    model.eval()
    for inputs, targets in zip(task.inputs.split(check_count("batch", batch)),
                               task.targets.split(batch), strict=True):
        where = model.out_proj.weight.device
        right += (model(inputs.to(where)).argmax(-1) == targets.to(where)).sum().item()
    model.train(training)
    return right / task.inputs.numel()


@torch.enable_grad()
def train(model: Transformer, task: Task, *, epochs: int = 20, batch: int = 50,
          learning_rate: float = 1e-3, seed: int, checkpoint: str | Path | None = None,
          progress: bool = True) -> pd.DataFrame:
    """Train a model in place, by Adam on the cross-entropy of every position.

    Parameters
    ----------
    model : Transformer
        Trained where it is, CPU or CUDA, and left in evaluation mode.
    task : Task
        Its sequences are taken in a new random order in each epoch.
    epochs, batch : int
        `batch` sequences a step; the last step of an epoch may have fewer.
    learning_rate : float
    seed : int
        Of the order and of dropout. On a CPU the same arguments (and number of threads)
        give the same weights, bit by bit; the global random state is left as it was.
    checkpoint : path, optional
        A safetensors file that has model, optimiser and curve after each epoch, replaced
        whole or not at all. If it is there, training goes on after its last epoch, and
        ends with the weights that it would have had without the break. `load_checkpoint`
        reads the model of it. Needs the extra `pretrained`.
    progress : bool
        Lines to stderr, at most one in five seconds: epochs done, loss, accuracy, time left.

    Returns
    -------
    DataFrame
        A row an epoch: epoch (from 1), loss and accuracy, both over the epoch's steps and
        with dropout.

    Raises
    ------
    ValueError
        If an argument is not as described, or the checkpoint is of another training: of
        other data, settings or initial weights (the number of epochs may be larger).

    Examples
    --------
    >>> from manyheads.synergy import copy_task
    >>> model = Transformer(vocabulary=4, length=8, heads=2, layers=1, d_model=16)
    >>> task = copy_task(100, length=8, vocabulary=4, seed=0)
    >>> curve = train(model, task, epochs=10, batch=10, seed=0, progress=False)
    >>> accuracy(model, copy_task(100, length=8, vocabulary=4, seed=1))
    1.0
    """
    _check_fit(model, task)
    check_count("epochs", epochs)
    check_count("seed", seed, least=0)
    report = check_bool("progress", progress)
    settings = {
        "batch": check_count("batch", batch),
        "learning_rate": check_number("learning_rate", learning_rate, least=0, strict=True),
        "seed": seed,
        "data": _digest({"inputs": task.inputs, "targets": task.targets}),
        "initial_weights": _digest(model.state_dict()),
    }
    adam = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    curve = [] if checkpoint is None else _resume(checkpoint, model, adam, settings)
    if len(curve) > epochs:
        refuse("epochs", f"at least the {len(curve)} that the checkpoint has", epochs)
    parameter = model.out_proj.weight
    inputs, targets = task.inputs.to(parameter.device), task.targets.to(parameter.device)
    first, start, last = len(curve), time.monotonic(), time.monotonic()
    devices = [parameter.device] if parameter.is_cuda else []
    model.train()
    with torch.random.fork_rng(devices=devices):
        for epoch in range(first, epochs):
            # Seed and epoch alone decide, so that no random state has to be kept.
            torch.manual_seed(seed * 10**6 + epoch)
            curve.append({"epoch": epoch + 1} | _epoch(model, adam, inputs, targets, batch))
            if checkpoint is not None:
                _keep(checkpoint, model, adam, settings, curve)
            if report and (time.monotonic() - last > _REPORT_EVERY or epoch + 1 == epochs):
                last = time.monotonic()
                left = (last - start) / (epoch + 1 - first) * (epochs - epoch - 1)
                row = curve[-1]
                print(f"epoch {epoch + 1} of {epochs}, loss {row['loss']:.4f}, accuracy "
                      f"{row['accuracy']:.4f}, {left:.0f} s left", file=sys.stderr, flush=True)
    model.eval()
    return pd.DataFrame(curve)


def _epoch(model, adam, inputs, targets, batch) -> dict:
    """One pass over the sequences."""
    losses, right = [], []
    for rows in torch.randperm(len(inputs)).to(inputs.device).split(batch):
        logits, wanted = model(inputs[rows]).flatten(0, 1), targets[rows].flatten()
        loss = cross_entropy(logits, wanted)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.detach() * len(rows))
        right.append((logits.detach().argmax(-1) == wanted).sum())
    return {"loss": (sum(losses) / len(inputs)).item(),
            "accuracy": (sum(right) / targets.numel()).item()}


def _keep(checkpoint, model, adam, settings, curve) -> None:
    tensors = dict(model.state_dict())
    for name, parameter in model.named_parameters():
        tensors |= {f"{_ADAM}{kind}.{name}": value for kind, value in adam.state[parameter].items()}
    write_tensors(checkpoint, tensors, {"config": model.config, "settings": settings,
                                        "curve": curve})


def _resume(checkpoint, model, adam, settings) -> list[dict]:
    """Set model and optimiser to what the checkpoint has, if it is there; its curve."""
    if not isinstance(checkpoint, str | Path):
        refuse("checkpoint", "a path", checkpoint)
    if not Path(checkpoint).exists():
        return []
    tensors, about = read_tensors(checkpoint)
    found = {"config": about.get("config"), **(about.get("settings") or {})}
    for name, value in {"config": model.config, **settings}.items():
        if found.get(name) != value:
            refuse("checkpoint", f"of this training, with {name} {value}",
                   f"{Path(checkpoint).name}, with {found.get(name)}")
    fill(model, {name: value for name, value in tensors.items() if not name.startswith(_ADAM)},
         Path(checkpoint))
    for name, parameter in model.named_parameters():
        adam.state[parameter] = {
            kind: tensors[f"{_ADAM}{kind}.{name}"].to(parameter.device)
            for kind in ("step", "exp_avg", "exp_avg_sq")}
    return about["curve"]


def _check_fit(model, task) -> None:
    if not isinstance(model, Transformer):
        refuse("model", "a Transformer", model)
    if not isinstance(task, Task):
        refuse("task", "a Task, such as copy_task makes", task)
    if task.vocabulary > model.config["vocabulary"]:
        refuse("task", f"of at most {model.config['vocabulary']} tokens, as the model",
               f"{task.vocabulary}")
    if task.inputs.shape[1] > model.config["length"]:
        refuse("task", f"of sequences no longer than {model.config['length']}, as the model",
               f"length {task.inputs.shape[1]}")


def _digest(tensors: dict[str, Tensor]) -> str:
    """A hash of names and values."""
    digest = hashlib.sha256()
    for name, value in tensors.items():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
