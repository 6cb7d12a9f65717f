"""The report on a model's attention against the model's own forward pass.

`measure()` returns rows for `make bench`: times as ratios, medians in turns, one
thread. The report solves 544 triangular systems of 100 tokens (8 sequences, 4 layers,
16 heads and their mixture) in double precision, squares matrices for as many mixing
times, and takes 100 steps for as many signals; the forward pass of so small a model
does less arithmetic than that. So the ratio is above 1, and what is bounded is how far.
"""

import statistics
import time

import torch

from manyheads import synergy

SEQUENCES, ROUNDS = 8, 5


def measure() -> list[dict]:
    """The benchmark's rows: name, ratio, bound and direction ("at least" or "at most")."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    model = synergy.Transformer(vocabulary=256, length=100, heads=16, seed=0).eval()
    tokens = synergy.copy_task(SEQUENCES, seed=0).inputs
    with torch.no_grad():
        attention = model.attention(tokens)
        hitting = synergy.HeadSystem.from_attention(attention).walk_matrix()
        jobs = {"forward": lambda: model(tokens),
                "report": lambda: synergy.attention_report(attention),
                "times": lambda: synergy.expected_hitting_times(hitting)}
        seconds = {name: [] for name in jobs}
        for _ in range(ROUNDS):
            for name, job in jobs.items():
                start = time.perf_counter()
                job()
                seconds[name].append(time.perf_counter() - start)
    torch.set_num_threads(before)
    forward, report, times = (statistics.median(seconds[name]) for name in jobs)
    size = "4 layers, 16 heads, 100 tokens, 8 sequences"
    return [
        {"name": f"hitting times of all mixtures / forward pass, {size}",
         "ratio": times / forward, "bound": 0.3, "direction": "at most"},
        {"name": f"whole report, every head / forward pass, {size}",
         "ratio": report / forward, "bound": 150, "direction": "at most"},
    ]
