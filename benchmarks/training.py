"""Training our Transformer against a plain loop over torch.nn.MultiheadAttention.

`measure()` returns rows for `make bench`: times as ratios, taken in one process with one
thread, the two sides in turns; memory as the growth of the peak of a process that does
nothing else. The plain model has the same sizes, parts and dropout, and the usual loop.
"""

import math
import os
import subprocess
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from manyheads.synergy import Transformer, copy_task, train

SMALL = dict(length=32, vocabulary=64, layers=2)
PAPER = dict(length=100, vocabulary=256, layers=4)  # of Sáez de Ocáriz Borde 2025
BATCH, ROUNDS = 50, 5


class Plain(nn.Module):
    """The same architecture from torch's own parts."""

    def __init__(self, *, length, vocabulary, layers, heads, d_model=64, mlp_dim=128, dropout=0.1):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, d_model), nn.Embedding(length, d_model)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "attention": nn.MultiheadAttention(d_model, heads, dropout, batch_first=True),
            "before": nn.RMSNorm(d_model), "between": nn.RMSNorm(d_model),
            "mlp": nn.Sequential(nn.Linear(d_model, mlp_dim), nn.ReLU(), nn.Dropout(dropout),
                                 nn.Linear(mlp_dim, d_model)),
        }) for _ in range(layers))
        self.out = nn.Linear(d_model, vocabulary)
        self.register_buffer("future", torch.full((length, length), -math.inf).triu(1))

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            y = block["before"](x)
            x = x + block["attention"](y, y, y, attn_mask=self.future, is_causal=True,
                                       need_weights=False)[0]
            x = x + block["mlp"](block["between"](x))
        return self.out(x)


def train_plain(model, task, epochs):
    """What one writes down first."""
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(task.inputs)).split(BATCH):
            logits = model(task.inputs[rows])
            loss = cross_entropy(logits.flatten(0, 1), task.targets[rows].flatten())
            adam.zero_grad()
            loss.backward()
            adam.step()
            loss.item()


def measure() -> list[dict]:
    """The benchmark's rows: name, ratio, bound and direction ("at least" or "at most")."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = [throughput(name, size, heads, steps) for name, size, heads, steps in
            (("small", SMALL, 1, 10), ("small", SMALL, 16, 10), ("paper's size", PAPER, 1, 2),
             ("paper's size", PAPER, 16, 2))]
    torch.set_num_threads(before)
    return rows + [memory(heads) for heads in (1, 16)]


def throughput(name, size, heads, steps) -> dict:
    """Sequences a second of ours over those of the plain loop, the median of five turns."""
    ours, plain, task = both(size, heads, steps)
    ratios = []
    for _ in range(ROUNDS + 1):
        mine = timed(lambda: train(ours, task, epochs=1, batch=BATCH, seed=0, progress=False))
        theirs = timed(lambda: train_plain(plain, task, epochs=1))
        ratios.append(theirs / mine)
    return {"name": f"training, {name}, heads {heads}: ours / MultiheadAttention (throughput)",
            "ratio": float(np.median(ratios[1:])), "bound": 1, "direction": "at least"}


def memory(heads) -> dict:
    """Peak growth of two steps of ours over that of the plain loop."""
    # A freed block goes back at once, so that the peak is of what is in use.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "100000"}
    ours, plain = (int(subprocess.run(
        [sys.executable, __file__, side, str(heads)], env=environment, check=True,
        capture_output=True, text=True).stdout) for side in ("ours", "plain"))
    return {"name": f"training, paper's size, heads {heads}: ours / MultiheadAttention (memory)",
            "ratio": ours / plain, "bound": 1, "direction": "at most"}


def peak(side, heads) -> int:
    """Bytes by which two steps raise this process's peak memory (Linux)."""
    torch.set_num_threads(1)
    ours, plain, task = both(PAPER, heads, steps=2)
    run = {"ours": lambda task: train(ours, task, epochs=1, batch=BATCH, seed=0, progress=False),
           "plain": lambda task: train_plain(plain, task, epochs=1)}[side]
    # What torch loads on first use is not these steps' memory.
    run(copy_task(1, length=PAPER["length"], vocabulary=2, seed=0))
    before = status("VmRSS:")
    run(task)
    return status("VmHWM:") - before


def status(field) -> int:
    """A memory field of this process, in bytes."""
    line = next(line for line in open("/proc/self/status") if line.startswith(field))
    return int(line.split()[1]) * 1024


def both(size, heads, steps):
    """The two models, in the same precision, and a task of that many steps."""
    ours, plain = Transformer(heads=heads, seed=0, **size), Plain(heads=heads, **size)
    counts = [sum(p.numel() for p in model.parameters()) for model in (ours, plain)]
    assert counts[0] == counts[1]
    task = copy_task(steps * BATCH, length=size["length"], vocabulary=size["vocabulary"], seed=0)
    return ours, plain, task


def timed(job) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(peak(sys.argv[1], int(sys.argv[2])))
