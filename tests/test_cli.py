import subprocess
import sys

import pytest
import torch

from manyheads import capacity, sweep
from manyheads.cli import main

SCRIPT = """
def trial(heads, objective="margin"):
    if heads > 8:
        raise ValueError(f"{heads} is too many")
    return {"score": heads * len(objective)}

def cells():
    return [{"heads": 1}, {"heads": 2}]
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "trial.py"
    path.write_text(SCRIPT)
    return path


def test_a_sweep_prints_its_table(script, capsys):
    assert main(["sweep", f"{script}:trial", "--axis", "heads=1,2",
                 "--axis", "objective=margin,softmax", "--quiet"]) == 0
    assert capsys.readouterr().out == (
        "heads,objective,score\n1,margin,6\n1,softmax,7\n2,margin,12\n2,softmax,14\n")


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_sweep_saves_its_table_and_uses_its_cache(engine, script, tmp_path, capsys):
    command = ["sweep", f"{script}:trial", "--axis", "heads=0:4", "--engine", engine,
               "--cache", str(tmp_path / "cells"), "--out", str(tmp_path / "out.parquet")]
    assert main(command) == main(command) == 0
    assert "4 of them stored before" in capsys.readouterr().err
    frame = sweep.load(tmp_path / "out.parquet")
    assert frame["score"].tolist() == [0, 6, 12, 18]
    assert frame.attrs["command"].startswith("manyheads sweep ")


def test_a_grid_may_come_from_the_script(script, capsys):
    assert main(["sweep", str(script), "--grid", "cells", "--quiet"]) == 0
    assert capsys.readouterr().out == "heads,score\n1,6\n2,12\n"


def test_failed_cells_are_named_and_the_others_kept(script, tmp_path, capsys):
    out = tmp_path / "out.parquet"
    assert main(["sweep", f"{script}:trial", "--axis", "heads=1,9", "--out", str(out),
                 "--quiet"]) == 1
    assert "heads=9: ValueError: 9 is too many" in capsys.readouterr().err
    assert not out.exists()
    assert sweep.load(tmp_path / "out.partial.parquet")["heads"].tolist() == [1]


@pytest.mark.parametrize(("arguments", "message"), [
    (["nothing.py", "--axis", "x=1"], "`SCRIPT` must be a Python file that exists"),
    (["SCRIPT", "--axis", "heads=1"], "`FUNCTION` must be a public function of the script: trial, cells"),
    (["SCRIPT:none", "--axis", "heads=1"], "got 'none'"),
    (["SCRIPT:trial", "--axis", "heads"], "`--axis` must be name=value"),
    (["SCRIPT:trial", "--axis", "heads=1", "--axis", "heads=2"], "given once a name"),
    (["SCRIPT:trial", "--axis", "tails=1"], "`grid` must be made of what the function takes"),
    (["SCRIPT:trial", "--axis", "heads=1", "--out", "x.csv"], "`--out` must be a .parquet file"),
    (["SCRIPT:trial", "--axis", "heads=1", "--address", "tcp://h:1"], "`--address` must be given with"),
])
def test_bad_input_is_named(arguments, message, script, capsys):
    arguments[0] = arguments[0].replace("SCRIPT", str(script))
    assert main(["sweep", *arguments, "--quiet"]) == 2
    assert message in capsys.readouterr().err


def channel_file(folder, **changes):
    from safetensors.torch import save_file

    graph = capacity.permutation_graph(8, seed=0)
    x = capacity.one_hot_embeddings(8).double()
    channel = capacity.one_hot_channel(graph, key_dim=2, signatures="circle")
    tensors = {"query_weights": channel.query_weights, "key_weights": channel.key_weights,
               "threshold": torch.tensor(channel.threshold, dtype=torch.float64), "embeddings": x,
               "edges": torch.from_numpy(graph.edges.copy())} | changes
    path = folder / "channel.safetensors"
    save_file({name: t.contiguous() for name, t in tensors.items() if t is not None}, path)
    return str(path)


def test_a_channel_is_certified(tmp_path, capsys):
    assert main(["certify", channel_file(tmp_path)]) == 0
    assert "recovers every context: yes" in capsys.readouterr().out
    assert main(["certify", channel_file(tmp_path, edges=torch.tensor([[0, 1]]))]) == 1
    assert "not proved" in capsys.readouterr().out


@pytest.mark.parametrize(("changes", "message"), [
    ({"edges": None}, "without edges"),
    ({"edges": torch.zeros(1, 2)}, "`edges` must be integers"),
    ({"embeddings": torch.zeros(8)}, "`embeddings` must be a tensor with 2 axes"),
])
def test_bad_input_in_a_channel_file_is_named(changes, message, tmp_path, capsys):
    assert main(["certify", channel_file(tmp_path, **changes)]) == 2
    assert message in capsys.readouterr().err


def test_bad_input_is_no_channel_file(tmp_path, capsys):
    (tmp_path / "x.safetensors").write_bytes(b"no")
    assert main(["certify", str(tmp_path / "x.safetensors")]) == 2
    assert main(["certify", str(tmp_path / "none")]) == 2
    assert "a safetensors file" in capsys.readouterr().err


def test_the_module_is_the_command(script):
    done = subprocess.run([sys.executable, "-m", "manyheads", "sweep", f"{script}:trial", "--axis",
                           "heads=3", "--quiet"], capture_output=True, text=True)
    assert done.stdout == "heads,score\n3,18\n", done.stderr
