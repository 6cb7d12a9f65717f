"""Transformers trained to copy and to cycle: what their attention does, and what it stores.

    python book/results/trained_transformers.py
    FULL=1 python book/results/trained_transformers.py

The first trains the small configuration and writes trained_transformers.parquet beside
this file: five minutes on two cores. The second trains the size of Sáez de
Ocáriz Borde 2025 and writes trained_transformers_full.parquet: 1 to 4 hours a model on
one core, days in all, and minutes a model on a GPU, which is used if there is one.
Finished cells are kept in _build/results, and of a model in training the last epoch:
stopped and started again, it goes on where it was.
"""

import copy
import os
from pathlib import Path

import torch

from manyheads import capacity, sweep, synergy
from manyheads.synergy.proxies import mean_capped_time

HERE = Path(__file__).resolve().parent
KEPT = HERE.parents[1] / "_build" / "results"

TASKS = {"copy": synergy.copy_task, "cycle": synergy.cycle_task}
HEADS = (1, 4, 8, 16)
SMALL = dict(length=32, vocabulary=64, layers=2, sequences=1000, epochs=20)
PAPER = dict(length=100, vocabulary=256, layers=4, sequences=5000, epochs=200)
CAP, HORIZON = 100, 100  # steps, as in the public code
TIE = 1e-9  # relatively closer values are equal
FRESH = 10**6  # seeds from here on are of sequences that no model was trained on


def trained_transformer(task, heads, seed, length, vocabulary, layers, sequences, epochs,
                        batch=50, measured=50):
    """Train one model; its accuracy on fresh sequences, and `measures` after and before.

    Each measure is a list over the layers.
    """
    size = dict(length=length, vocabulary=vocabulary)
    model = synergy.Transformer(heads=heads, layers=layers, seed=seed, **size)
    fresh = TASKS[task](max(measured, min(sequences, 1000)), seed=FRESH + seed, **size)
    tokens = fresh.inputs[:measured]
    before = {f"untrained_{name}": value for name, value in measures(model, tokens).items()}
    KEPT.mkdir(parents=True, exist_ok=True)
    checkpoint = KEPT / f"{task}-{heads}-{seed}-{length}-{sequences}.safetensors"
    large = length > SMALL["length"]
    device = "cuda" if large and torch.cuda.is_available() else "cpu"
    synergy.train(model.to(device), TASKS[task](sequences, seed=seed, **size), epochs=epochs,
                  batch=batch, seed=seed, checkpoint=checkpoint, progress=large)
    model.cpu()
    found = {"ceiling": fresh.ceiling, "accuracy": synergy.accuracy(model, fresh),
             "accuracy_without_attention": synergy.accuracy(without_attention(model), fresh),
             **stored_by_heads(model), **measures(model, tokens), **before}
    checkpoint.unlink()  # later code must not go on from it
    return found


def without_attention(model):
    """A copy of the model whose attention adds nothing to the stream."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for block in model.layers:
            for parameter in block.attn.out_proj.parameters():
                parameter.zero_()
    return model


def measures(model, tokens):
    """Of every layer, the measures of its mixture and of its heads alone.

    Medians over the sequences, of the mixture, of the best head of each sequence
    (`best_`), of the head that is best by its own median (`fixed_`), and of the typical
    head (`typical_`, the median); and the share of sequences in which the mixture is
    better than every head (`wins_`).
    """
    model = model.double().eval()  # a float32 attention weight may be zero by rounding
    with torch.no_grad():
        attention = torch.cat([model.attention(part) for part in tokens.split(10)], dim=1)
    columns = {}
    for layer, heads in enumerate(attention):  # heads (sequences, heads, T, T)
        weights = synergy.head_weights(model, layer)
        together = all_measures(synergy.HeadSystem.from_attention(heads, weights))
        alone = all_measures(synergy.HeadSystem.from_attention(heads.unsqueeze(2)))
        for name, mixed in together.items():  # (sequences,); alone (sequences, heads)
            sign = -1 if name in FIDELITIES else 1
            best = (sign * alone[name]).amin(1)
            for key, number in {
                name: middle(mixed),
                f"best_{name}": sign * middle(best),
                f"fixed_{name}": sign * middle(sign * alone[name]).min(),
                f"typical_{name}": middle(alone[name].flatten()),
                f"wins_{name}": (sign * mixed < best - TIE * best.abs()).double().mean(),
            }.items():
                columns.setdefault(key, []).append(number.item())
    model.float()
    return columns


def first_layer(model):
    """The first layer's heads as a key-query channel, and the embeddings they read.

    At position q token w shows as x[q, w], the normed sum of its two embeddings; a
    constant last coordinate carries the biases. x is (T, V, d_model + 1), the weights of
    the channel are (heads, d_model + 1, key_dim).
    """
    block = model.layers[0]
    x = block.ln1(model.pos_emb.weight[:, None] + model.token_emb.weight)
    x = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1).detach()
    queries, keys = (
        torch.cat([part.weight.T, part.bias[None]]).detach()  # (d_model + 1, d_model)
        .unflatten(1, (model.heads, -1)).transpose(0, 1).contiguous()
        for part in (block.attn.W_q, block.attn.W_k))
    return capacity.KeyQueryChannel(queries * queries.shape[-1]**-0.5, keys, 0.0), x


def stored_by_heads(model):
    """What the first layer's heads store about positions and tokens: lists over heads.

    Over all sequences, tokens independent and uniform, and all positions but the first:
    `position_share` is the part of the variance of a query's scores that their means
    over tokens explain; `token_share` the part that the scores of tokens explain, each
    token the mean of its embeddings over positions. In the means over tokens,
    `chain_margin` is the row margin of "each position reads the one before", `chain_rows`
    the share of positions that do, `own_rows` the share that read themselves;
    `worst_margin` is the row margin of the chain in the worst sequence. `chain_served`,
    one number, is the share of positions that read the one before in at least one head.
    """
    channel, x = first_layer(model.double())
    length, size = x.shape[:2]
    rows = []
    for place in range(1, length):
        vertices = x[:place + 1].flatten(0, 1)
        scores = channel.scores(vertices, range(place * size, len(vertices)))
        scores = scores.unflatten(2, (-1, size))  # (heads, V, place + 1, V)
        own = scores[:, :, -1]  # a position shows itself one token
        own.copy_(own.diagonal(dim1=1, dim2=2).clone().unsqueeze(2))
        means = scores.mean((1, 3))  # (heads, place + 1)
        worst = preference(scores.amin(3), scores.amax(3)).amin(1)
        rows.append([scores.var((2, 3), correction=0).mean(1), means.var(1, correction=0),
                     preference(means, means), worst, means.argmax(1) == place])
    total, explained, margins, worst, own = map(torch.stack, zip(*rows))  # (T - 1, heads)
    by_token = channel.scores(x.mean(0)).var(2, correction=0).mean(1)
    columns = {
        "position_share": explained.mean(0) / total.mean(0),
        "token_share": by_token / total.mean(0),
        "chain_margin": margins.amin(0),
        "chain_rows": (margins > 0).double().mean(0),
        "own_rows": own.double().mean(0),
        "worst_margin": worst.amin(0),
        "chain_served": (margins > 0).any(1).double().mean(),
    }
    model.float()
    return {name: value.tolist() for name, value in columns.items()}


def preference(lowest, highest):
    """By how much the last but one, at its lowest, exceeds the others, at their highest."""
    others = torch.cat([highest[..., :-2], highest[..., -1:]], dim=-1)
    return lowest[..., -2] - others.amax(-1)


def middle(values):
    """The median over the first axis."""
    return values.quantile(0.5, dim=0)


FIDELITIES = ("fidelity", "fidelity_with_sink")


def all_measures(system):
    """Each measure of a batch of systems."""
    walk, mixed_first = system.walk_matrix(), system.walk_matrix(normalize="after")
    diffusion = system.diffusion_matrix()
    signals = synergy.node_fidelities(diffusion, HORIZON)
    return {
        "hitting_time": synergy.expected_hitting_times(walk).mean(-1),
        "mixed_first": synergy.expected_hitting_times(mixed_first).mean(-1),
        "capped": mean_capped_time(walk, CAP),
        "mixing_time": synergy.mixing_time(walk),
        "fidelity": signals[..., :-1].amin(-1),
        "fidelity_with_sink": signals.amin(-1),
    }


def full_grid(size=SMALL, seeds=5):
    """All models of one size."""
    return [cell | size for cell in sweep.product(task=[*TASKS], seed=range(seeds), heads=HEADS)]


def small_grid():
    """The models that the chapter trains itself."""
    return [cell for cell in full_grid() if cell["seed"] == 0 and cell["heads"] == 4]


if __name__ == "__main__":
    torch.set_num_threads(1)
    name, grid = "trained_transformers", full_grid()
    command = f"python book/results/{name}.py"
    if os.environ.get("FULL") == "1":
        name, grid, command = f"{name}_full", full_grid(PAPER, seeds=3), f"FULL=1 {command}"
    frame = sweep.run(trained_transformer, grid, engine="processes", cache=KEPT)
    sweep.save(frame, HERE / f"{name}.parquet", command=command)
