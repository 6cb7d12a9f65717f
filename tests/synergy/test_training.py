"""Training: repeatable, resumable after a kill, and it learns."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from manyheads.synergy import (
    HeadSystem, Transformer, copy_task, cycle_task, expected_hitting_times, head_weights,
    load_checkpoint, node_fidelities, save_checkpoint,
)
from manyheads.synergy.training import accuracy, train

ROOT = Path(__file__).resolve().parents[2]
LIB = ROOT / "lib"


def small(heads=2, **changes):
    return Transformer(heads=heads, **dict(
        vocabulary=6, length=8, layers=2, d_model=16, mlp_dim=16, seed=1) | changes)


def task(make=cycle_task, sequences=70, seed=0, **changes):
    return make(sequences, seed=seed, **dict(length=8, vocabulary=6) | changes)


def trained(epochs=4, **changes):
    """A model, trained quietly, and its curve."""
    model = small()
    curve = train(model, task(), **dict(epochs=epochs, batch=20, seed=5, progress=False) | changes)
    return model, curve


def same(model, other):
    state = other.state_dict()
    return all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


class TestTraining:
    @pytest.mark.parametrize("make", [copy_task, cycle_task])
    def test_reaches_the_ceiling(self, make):
        model = small(d_model=32)
        curve = train(model, task(make, 600), epochs=25, batch=20, learning_rate=3e-3, seed=0,
                      progress=False)
        fresh = task(make, 2000, seed=1)
        # Guesses of the first position: 2000 of probability 1/6, or none.
        noise = 0 if make is copy_task else 5 * (2000 * 5 / 36) ** 0.5 / 16000
        assert abs(accuracy(model, fresh) - fresh.ceiling) <= noise + 1e-3
        assert curve.epoch.tolist() == [*range(1, 26)]
        assert curve.loss.iloc[-1] < curve.loss.iloc[0] and not model.training

    def test_repeatable_whatever_the_global_state(self):
        torch.manual_seed(1)
        model, curve = trained()
        torch.manual_seed(2)
        before = torch.get_rng_state()
        again, curve_again = trained()
        assert same(model, again) and curve.equals(curve_again)
        assert torch.equal(before, torch.get_rng_state())
        assert not same(model, trained(seed=6)[0])

    def test_equals_a_plain_loop_without_dropout(self):
        """One epoch of full batches, where the order of sequences does not matter."""
        model, other = small(dropout=0.0).double(), small(dropout=0.0).double()
        data = task()
        train(model, data, epochs=3, batch=70, learning_rate=0.01, seed=0, progress=False)
        adam = torch.optim.Adam(other.parameters(), lr=0.01)
        for _ in range(3):
            logits = other(data.inputs).log_softmax(-1)
            loss = -logits.gather(-1, data.targets[..., None]).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
        for name, value in model.state_dict().items():
            torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-6, atol=1e-8)

    def test_progress_goes_to_stderr(self, capsys):
        train(small(), task(), epochs=1, seed=0)
        out, err = capsys.readouterr()
        assert not out and "epoch 1 of 1, loss" in err and "accuracy" in err
        train(small(), task(), epochs=1, seed=0, progress=False)
        assert capsys.readouterr().err == ""

    def test_accuracy_counts(self):
        model, data = small(), task(sequences=33)
        right = (model.eval()(data.inputs).argmax(-1) == data.targets).double().mean().item()
        assert accuracy(model, data, batch=10) == pytest.approx(right, abs=1e-12)
        assert accuracy(model.train(), data) == pytest.approx(right, abs=1e-12) and model.training


class TestResume:
    def test_goes_on_where_it_stopped(self, tmp_path):
        path = tmp_path / "run.safetensors"
        whole, curve = trained(epochs=5)
        first, _ = trained(epochs=2, checkpoint=path)
        assert same(load_checkpoint(path), first)
        resumed, curve_resumed = trained(epochs=5, checkpoint=path)
        assert same(whole, resumed) and curve.equals(curve_resumed)
        again, _ = trained(epochs=5, checkpoint=path)  # nothing left to do
        assert same(whole, again)
        assert [file.name for file in tmp_path.iterdir()] == ["run.safetensors"]

    def test_after_being_killed(self, tmp_path):
        """SIGKILL, twice, ends in the weights of an undisturbed run."""
        code = ("import sys; from manyheads.synergy import *; "
                "from manyheads.synergy.training import train; "
                "model = Transformer(vocabulary=6, length=8, heads=2, layers=1, d_model=16); "
                "task = cycle_task(100, length=8, vocabulary=6, seed=0); "
                "train(model, task, epochs=40, batch=5, seed=0, checkpoint=sys.argv[1]); "
                "save_checkpoint(model, sys.argv[2])")
        environment = os.environ | {"PYTHONPATH": str(LIB), "OMP_NUM_THREADS": "1"}

        def start(name):
            command = [sys.executable, "-c", code, tmp_path / f"{name}.run", tmp_path / name]
            return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

        def epochs(path):
            if not path.exists():
                return 0
            with safe_open(path, framework="pt") as file:
                return len(json.loads(file.metadata()["curve"]))

        undisturbed = start("whole")
        reached = []
        for _ in range(2):
            process, before = start("broken"), epochs(tmp_path / "broken.run")
            while epochs(tmp_path / "broken.run") < before + 3 and process.poll() is None:
                time.sleep(0.003)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            reached.append(epochs(tmp_path / "broken.run"))
        assert 0 < reached[0] < reached[1] < 40
        assert start("broken").wait() == 0 and undisturbed.wait() == 0
        assert epochs(tmp_path / "broken.run") == 40
        assert same(load_checkpoint(tmp_path / "broken"), load_checkpoint(tmp_path / "whole"))


class TestResultsScript:
    script = runpy.run_path(str(ROOT / "book" / "results" / "trained_transformers.py"))

    def test_the_papers_size_runs(self, tmp_path, monkeypatch):
        """One step of the first cell of `FULL=1 make results`, which takes hours."""
        run = self.script["trained_transformer"]
        monkeypatch.setitem(run.__globals__, "KEPT", tmp_path)
        grid = self.script["full_grid"](self.script["PAPER"], seeds=3)
        assert len(grid) == 24 and grid[0]["length"] == 100 and grid[0]["epochs"] == 200
        found = run(**grid[1] | dict(sequences=2, epochs=1, batch=2, measured=2))
        assert found["ceiling"] == 1 and 0 <= found["accuracy"] <= 1
        assert len(found["hitting_time"]) == len(found["untrained_fidelity"]) == 4
        assert not list(tmp_path.iterdir())

    def test_measures_of_one_sequence_by_hand(self):
        """With one sequence every median is the value, and with one head it is the best."""
        model, tokens = small(1).eval(), task().inputs[:1]
        found = self.script["measures"](model, tokens)
        system = HeadSystem.from_attention(model.double().attention(tokens[0]).detach()[1])
        times = expected_hitting_times(system.walk_matrix())
        fidelities = node_fidelities(system.diffusion_matrix(), 100)
        for kind in ("", "best_", "fixed_", "typical_"):
            assert found[f"{kind}hitting_time"][1] == pytest.approx(times.mean().item())
            assert found[f"{kind}fidelity"][1] == pytest.approx(fidelities[:-1].min().item())
            assert found[f"{kind}fidelity_with_sink"][1] == pytest.approx(fidelities.min().item())
        assert found["wins_hitting_time"] == found["wins_fidelity"] == [0, 0]

    def test_who_is_better(self):
        """The mixture against its heads, sequence by sequence."""
        model, tokens = small(4).eval(), task().inputs[:5]
        found = self.script["measures"](model, tokens)
        attention = model.double().attention(tokens).detach()[0]
        wins, best = [], []
        for heads in attention:
            together = HeadSystem.from_attention(heads, head_weights(model, 0))
            alone = [together.head(a) for a in range(4)]
            both = [[expected_hitting_times(one.walk_matrix()).mean().item() for one in part]
                    for part in ([together], alone)]
            wins.append(both[0][0] < min(both[1]))
            best.append(both[1])
        assert found["wins_hitting_time"][0] == pytest.approx(sum(wins) / 5)
        best = torch.tensor(best)
        assert found["best_hitting_time"][0] == pytest.approx(
            best.min(1).values.median().item(), rel=1e-4)
        assert found["fixed_hitting_time"][0] == pytest.approx(
            best.median(0).values.min().item(), rel=1e-4)

    @pytest.mark.parametrize("heads", [1, 2])
    def test_the_first_layer_is_a_channel(self, heads):
        """Its softmax is the model's attention, whatever the tokens."""
        model = small(heads).double().eval()
        channel, x = self.script["first_layer"](model)
        tokens = task(sequences=3).inputs
        shown = x[range(8), tokens]  # (3, 8, d_model + 1)
        with torch.no_grad():
            attention = model.attention(tokens)[0]  # (3, heads, 8, 8)
        future = torch.ones(8, 8).triu(1).bool()
        for sequence, expected in zip(shown, attention, strict=True):
            softmax = channel.scores(sequence).masked_fill(future, -torch.inf).softmax(-1)
            torch.testing.assert_close(softmax, expected)

    def test_what_heads_store_over_all_sequences(self):
        """Against the scores of all 3^4 sequences, one by one."""
        model = small(vocabulary=3, length=4).double().eval()
        with torch.no_grad():  # chains of positions are rare by chance
            model.pos_emb.weight.mul_(8)
        found = self.script["stored_by_heads"](model)
        channel, x = self.script["first_layer"](model.double())
        sequences = torch.cartesian_prod(*[torch.arange(3)] * 4)
        scores = torch.stack([channel.scores(x[range(4), tokens]) for tokens in sequences])
        for head, part in enumerate(scores.unbind(1)):  # (81, 4, 4)
            means, margins, worst, own, total, explained = part.mean(0), [], [], [], [], []
            for q in range(1, 4):
                others = [k for k in range(q + 1) if k != q - 1]
                margins.append(means[q, q - 1] - means[q, others].max())
                worst.append((part[:, q, q - 1] - part[:, q, others].amax(1)).min())
                own.append(float(means[q, :q + 1].argmax() == q))
                explained.append(means[q, :q + 1].var(correction=0))
                by_query = [part[sequences[:, q] == w, q, :q + 1] for w in range(3)]
                total.append(sum(values.var(correction=0) for values in by_query) / 3)
            share = sum(explained) / sum(total)
            expected = {
                "chain_margin": min(margins), "worst_margin": min(worst), "own_rows": sum(own) / 3,
                "chain_rows": (torch.stack(margins) > 0).double().mean(), "position_share": share}
            for name, value in expected.items():
                assert found[name][head] == pytest.approx(float(value), abs=1e-12), name
        assert max(found["chain_rows"]) <= found["chain_served"] <= sum(found["chain_rows"])
        assert 0 < found["chain_served"] < 1  # both outcomes were seen
        assert all(0 < share < 1 for share in found["position_share"] + found["token_share"])

    def test_a_chain_of_positions_is_found(self):
        """Weights that store it by hand, whatever the tokens."""
        model = small(heads=1)
        with torch.no_grad():
            for embedding in (model.token_emb, model.pos_emb):
                embedding.weight.zero_()
            model.pos_emb.weight[:, :8] = torch.eye(8)
            attention = model.layers[0].attn
            for part in (attention.W_q, attention.W_k):
                part.weight.zero_()
                part.bias.zero_()
            attention.W_q.weight[:8, :8] = torch.eye(8).roll(-1, 0)  # q looks for q - 1
            attention.W_k.weight[:8, :8] = torch.eye(8)
        found = self.script["stored_by_heads"](model)
        assert found["chain_rows"] == [1] and found["chain_served"] == 1
        assert found["own_rows"] == found["token_share"] == [0]
        assert found["chain_margin"] == found["worst_margin"] and found["worst_margin"][0] > 0
        assert found["position_share"] == pytest.approx([1])


@pytest.mark.parametrize("changes, message", [
    (dict(seed=6), "`checkpoint` must be of this training, with seed 6; got run.*with 5"),
    (dict(batch=10), "`checkpoint` must be of this training, with batch 10"),
    (dict(learning_rate=0.1), "with learning_rate 0.1"),
    (dict(epochs=1), "`epochs` must be at least the 2 that the checkpoint has"),
])
def test_bad_input_checkpoint_of_another_run(tmp_path, changes, message):
    path = tmp_path / "run.safetensors"
    trained(epochs=2, checkpoint=path)
    with pytest.raises(ValueError, match=message):
        trained(checkpoint=path, **changes)


def test_bad_input_checkpoint_of_another_model_or_task(tmp_path):
    path, settings = tmp_path / "run.safetensors", dict(epochs=2, batch=20, seed=5, progress=False)
    trained(epochs=2, checkpoint=path)
    for model, data, message in ((small(4), task(), "with config"),
                                 (small(seed=9), task(), "with initial_weights"),
                                 (small(), task(seed=1), "with data")):
        with pytest.raises(ValueError, match=f"`checkpoint` must be of this training, {message}"):
            train(model, data, checkpoint=path, **settings)
    save_checkpoint(small(), path)
    with pytest.raises(ValueError, match="`checkpoint` must be of this training, with batch"):
        trained(checkpoint=path)
    path.write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match="`path` must be a safetensors file"):
        trained(checkpoint=path)


@pytest.mark.parametrize("changes, message", [
    (dict(model=torch.nn.Linear(2, 2)), "`model` must be a Transformer"),
    (dict(task=torch.zeros(2, 2)), "`task` must be a Task"),
    (dict(task=task(vocabulary=7)), "`task` must be of at most 6 tokens, as the model; got 7"),
    (dict(task=task(length=9)), "`task` must be of sequences no longer than 8"),
    (dict(epochs=0), "`epochs` must be a whole number at least 1"),
    (dict(batch=0), "`batch` must be a whole number"),
    (dict(learning_rate=0), "`learning_rate` must be a finite number"),
    (dict(seed=-1), "`seed` must be a whole number"),
    (dict(progress=1), "`progress` must be True or False"),
    (dict(checkpoint=3), "`checkpoint` must be a path"),
])
def test_bad_input_to_train(changes, message):
    with pytest.raises(ValueError, match=message):
        train(**dict(model=small(), task=task(), epochs=1, seed=0, progress=False) | changes)


def test_bad_input_to_accuracy():
    with pytest.raises(ValueError, match="`model` must be a Transformer"):
        accuracy(3, task())
    with pytest.raises(ValueError, match="`batch` must be a whole number"):
        accuracy(small(), task(), batch=0)
