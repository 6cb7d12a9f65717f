"""Certificates against a square matrix product, in time and in memory.

`measure()` returns rows for `make bench`. Throughputs are taken alternately in
one process; memory is the growth of the peak of a process of its own.
"""

import subprocess
import sys
import time

import numpy as np
import torch

from manyheads.capacity import (
    KeyQueryChannel,
    certify,
    gaussian_embeddings,
    permutation_graph,
)

THREADS = 2
D_MODEL, HEADS, KEY_DIM = 256, 32, 16
SQUARE = 2048
MEGABYTES = 128


def measure(repeats: int = 5) -> list[dict]:
    """The benchmark's rows: name, ratio, bound and direction ("at least" or "at most")."""
    return [throughput(8192, repeats), *(memory(vertices) for vertices in (8192, 32768))]


def throughput(vertices: int, repeats: int) -> dict:
    """Useful floating-point operations a second, over those of one matrix product."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    channel, graph, embeddings = problem(vertices)
    matrix = torch.randn(SQUARE, SQUARE, generator=torch.Generator().manual_seed(0))
    best = {"certify": 0.0, "matmul": 0.0}
    for _ in range(repeats):
        for _ in range(3):
            best["matmul"] = max(best["matmul"], rate(lambda: matrix @ matrix, 2 * SQUARE**3))
        work = 2 * vertices**2 * HEADS * KEY_DIM
        best["certify"] = max(
            best["certify"], rate(lambda: certify(channel, graph, embeddings), work)
        )
    torch.set_num_threads(before)
    return {"name": f"certify {vertices} vertices / {SQUARE}-cube product (throughput)",
            "ratio": best["certify"] / best["matmul"], "bound": 0.5, "direction": "at least"}


def memory(vertices: int) -> dict:
    """Peak memory beyond the inputs, over the allowance."""
    grown = subprocess.run([sys.executable, __file__, str(vertices)], check=True,
                           capture_output=True, text=True).stdout
    return {"name": f"certify {vertices} vertices: memory beyond inputs / {MEGABYTES} MB",
            "ratio": int(grown) / (MEGABYTES * 10**6), "bound": 1, "direction": "at most"}


def problem(vertices: int):
    """A random channel, permutation and embeddings, all float32."""
    weights = np.random.default_rng(0).standard_normal((2, HEADS, D_MODEL, KEY_DIM))
    query, key = torch.from_numpy(weights).float()
    embeddings = gaussian_embeddings(vertices, D_MODEL, seed=0)
    return KeyQueryChannel(query, key, 50.0), permutation_graph(vertices, seed=0), embeddings


def rate(job, operations: int) -> float:
    start = time.perf_counter()
    job()
    return operations / (time.perf_counter() - start)


def peak_growth(vertices: int) -> int:
    """Bytes by which certifying raises this process's peak memory (Linux)."""

    def status(field):
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))

    certify(*problem(256))  # what a first call loads is not this call's memory
    inputs = problem(vertices)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts again from the present size
    before = status("VmRSS:")
    certify(*inputs)
    return status("VmHWM:") - before


if __name__ == "__main__":
    print(peak_growth(int(sys.argv[1])))
