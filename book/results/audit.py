"""The published measures of trained Transformers beside those of the paper's definitions.

    python book/results/audit.py

writes audit.parquet beside this file: the small configuration of
trained_transformers.py. Finished cells are kept in _build/results: stopped and
started again, it goes on where it was.
"""

from pathlib import Path

import torch

from manyheads import sweep, synergy
from manyheads.synergy.proxies import mean_capped_time

HERE = Path(__file__).resolve().parent
TASKS = {"copy": synergy.copy_task, "cycle": synergy.cycle_task}
SIZE = dict(length=32, vocabulary=64)
CAP, HORIZON, SEQUENCES = 100, 100, 50


def published_and_defined(task, heads, seed, epochs):
    """Train one model; for each layer, means over fresh sequences of every definition."""
    torch.manual_seed(seed)
    model = synergy.Transformer(heads=heads, layers=2, seed=seed, **SIZE)
    synergy.train(model, TASKS[task](1000, seed=seed, **SIZE), epochs=epochs, batch=50,
                  seed=seed, progress=False)
    fresh = TASKS[task](SEQUENCES, seed=10**6 + seed, **SIZE)
    accuracy = synergy.accuracy(model, fresh)
    with torch.no_grad():
        attention = model.double().eval().attention(fresh.inputs)  # (layers, sequences, h, T, T)
    layers = [side_by_side(layer, synergy.head_weights(model, index))
              for index, layer in enumerate(attention)]
    return {"accuracy": accuracy} | {name: [layer[name] for layer in layers] for name in layers[0]}


def side_by_side(attention, weights):
    """Of one layer's attention (sequences, heads, T, T): means, hitting times' medians."""
    mixed = synergy.HeadSystem.from_attention(attention, weights)
    alone = synergy.HeadSystem.from_attention(attention.unsqueeze(2))  # (sequences, heads, 1, …)
    walk, diffusion = mixed.walk_matrix(), mixed.diffusion_matrix()
    times = synergy.expected_hitting_times(walk).mean(-1)
    fidelity = synergy.minimax_fidelity(diffusion, HORIZON)
    with_sink = synergy.published_fidelity_proxy(attention, weights, HORIZON)
    best = synergy.minimax_fidelity(alone.diffusion_matrix(), HORIZON).amax(-1)
    best_with_sink = synergy.published_fidelity_proxy(attention.unsqueeze(2), None, HORIZON).amax(-1)
    fastest = synergy.expected_hitting_times(alone.walk_matrix()).mean(-1).amin(-1)
    columns = {
        "proxy": synergy.published_mixing_proxy(attention, weights, CAP).mean(),
        "capped": mean_capped_time(walk, CAP).mean(), "uncapped": times.median(),
        "fidelity": fidelity.mean(), "fidelity_with_sink": with_sink.mean(),
        "beats_best": (fidelity > best * (1 + 1e-9)).double().mean(),
        "beats_best_with_sink": (with_sink > best_with_sink * (1 + 1e-9)).double().mean(),
        "faster_than_best": (times < fastest * (1 - 1e-9)).double().mean(),
    }
    return {name: value.item() for name, value in columns.items()}


def full_grid():
    """About five minutes on one core."""
    return sweep.product(task=[*TASKS], heads=[1, 4, 16], seed=range(2), epochs=[20])


if __name__ == "__main__":
    torch.set_num_threads(1)
    frame = sweep.run(published_and_defined, full_grid(), engine="processes",
                      cache=HERE.parents[1] / "_build" / "results")
    sweep.save(frame, HERE / "audit.parquet", command="python book/results/audit.py")
