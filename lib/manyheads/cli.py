"""The command line: `manyheads sweep` and `manyheads certify`.

Exit codes: 0 for success; 1 if cells failed, results could not be stored, or a channel
does not recover every context; 2 for bad input; 130 when interrupted. Messages go to
stderr, results to stdout.
"""

__all__ = ["main", "parse_axis"]

import argparse
import ast
import inspect
import re
import runpy
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from manyheads._checks import refuse

# The keys of a channel's file, and its axes.
_CHANNEL = {"query_weights": 3, "key_weights": 3, "threshold": 0, "embeddings": 2, "edges": 2}

_SWEEP = """\
Call a function of a Python file with every combination of the axes' values. It takes the
axes by name and returns a dict of results under other names.

  manyheads sweep trial.py --axis heads=1,2,4 --axis seed=0:5 \\
      --engine processes --cache cells --out results.parquet

Run the same command again, after a kill or with more values, and only the cells that are
not in the cache are computed."""

_CERTIFY = """\
Decide whether a channel recovers its graph in every context. The file holds query_weights
and key_weights (heads, d_model, key_dim), threshold (a scalar) and embeddings (m, d_model),
all float32 or all float64, and edges (E, 2), integers: pairs (query, key)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process if left out.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(arguments)
    try:
        return options.command(options, shlex.join(["manyheads", *arguments]))
    except KeyboardInterrupt:
        return _fail("interrupted; what is in a cache is used when you run it again", 130)
    except ValueError as error:
        return _fail(error, 2)
    except (OSError, ImportError) as error:
        return _fail(error, 1)


def parse_axis(text: str) -> tuple[str, list]:
    """An axis from the command line: its name, and its values.

    Values are Python literals (anything else is a string), separated by commas; `a:b` and
    `a:b:step` stand for the whole numbers from a up to, without, b.

    Examples
    --------
    >>> parse_axis("heads=1,2,4")
    ('heads', [1, 2, 4])
    >>> parse_axis("objective=margin,softmax")
    ('objective', ['margin', 'softmax'])
    >>> parse_axis("seed=0:3,10"), parse_axis("split=(1,2),(2,1)")
    (('seed', [0, 1, 2, 10]), ('split', [(1, 2), (2, 1)]))
    """
    name, equals, values = text.partition("=")
    if not name.isidentifier() or not equals or not values.strip():
        refuse("--axis", "name=value,value,…", repr(text))
    try:
        return name, list(ast.literal_eval(f"[{values}]"))
    except (ValueError, SyntaxError):
        found = [value for item in values.split(",") for value in _values(item.strip())]
    if not found:
        refuse("--axis", "an axis with at least one value", repr(text))
    return name, found


def _values(item: str) -> list:
    if re.fullmatch(r"-?\d+:-?\d+(:-?[1-9]\d*)?", item):
        return [*range(*map(int, item.split(":")))]
    try:
        return [ast.literal_eval(item)]
    except (ValueError, SyntaxError):
        return [item]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="manyheads", description="Why many heads? From the "
                                     "command line: sweeps over a grid, and certificates.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    sweep = commands.add_parser(
        "sweep", help="call a function on a grid of parameters", description=_SWEEP,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    sweep.set_defaults(command=_sweep)
    sweep.add_argument("script", metavar="SCRIPT[:FUNCTION]",
                       help="a Python file, and the function in it: needed if it has several")
    grid = sweep.add_mutually_exclusive_group(required=True)
    grid.add_argument("--axis", action="append", default=[], metavar="NAME=VALUES",
                      help="1,2,4 or 0:5 (0 to 4) or margin,softmax; repeat for a grid")
    grid.add_argument("--grid", metavar="FUNCTION",
                      help="instead of axes: the script's function that returns the cells, a "
                      "list of dicts")
    sweep.add_argument("--engine", default="serial", choices=("serial", "processes", "dask"),
                       help="this process (default), one a CPU, or Dask")
    sweep.add_argument("--address", help="of a Dask scheduler, tcp://host:port; without it, "
                       "Dask starts one process a CPU here")
    sweep.add_argument("--cache", metavar="FOLDER", help="keeps each finished cell at once")
    sweep.add_argument("--out", metavar="FILE.parquet",
                       help="where the table goes; without it, to stdout as CSV")
    sweep.add_argument("--quiet", action="store_true", help="no lines of progress")
    sweep.add_argument("--traceback", action="store_true",
                       help="show where the first failed cell failed")
    certify = commands.add_parser(
        "certify", help="does a channel recover its graph in every context?",
        description=_CERTIFY, formatter_class=argparse.RawDescriptionHelpFormatter)
    certify.set_defaults(command=_certify)
    certify.add_argument("channel", metavar="CHANNEL.safetensors")
    return parser


def _sweep(options, command: str) -> int:
    from manyheads import sweep

    out = options.out and Path(options.out)
    if out and (out.suffix != ".parquet" or not out.absolute().parent.is_dir()):
        refuse("--out", "a .parquet file in a folder that exists", repr(options.out))
    if options.address is not None and options.engine != "dask":
        refuse("--address", "given with --engine dask alone", repr(options.address))
    axes = dict(map(parse_axis, options.axis))
    if len(axes) < len(options.axis):
        refuse("--axis", "given once a name", " ".join(options.axis))
    functions = _functions(options.script)
    if options.grid:
        grid = _choose(functions, options.grid)()
        functions.pop(options.grid)
    else:
        grid = sweep.product(**axes)
    function = _choose(functions, options.script.partition(".py:")[2])
    try:
        frame = sweep.run(function, grid, engine=options.engine, address=options.address,
                          cache=options.cache, progress=not options.quiet)
    except sweep.CellError as error:
        if options.traceback:
            print(*error.__notes__, file=sys.stderr)
        if out and len(error.finished):
            part = out.with_suffix(".partial.parquet")
            sweep.save(error.finished, part, command=command)
            return _fail(f"{error}\nthe other rows are in {part}", 1)
        return _fail(error, 1)
    if out:
        sweep.save(frame, out, command=command)
    else:
        frame.to_csv(sys.stdout, index=False)
    return 0


def _functions(script: str) -> dict:
    """The public functions that a Python file defines, by name."""
    path = Path(script.partition(".py:")[0] + ".py" if ".py:" in script else script)
    if path.suffix != ".py" or not path.is_file():
        refuse("SCRIPT", "a Python file that exists", str(path))
    sys.path.insert(0, str(path.parent.absolute()))  # as `python SCRIPT` has it
    module = path.stem
    try:
        # Under a name that is not importable, so that functions are sent by value.
        names = runpy.run_path(str(path), run_name=f"<{module}>")
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        where = f"{path}, line {lines[-1]}" if lines else str(path)
        refuse("SCRIPT", "a Python file that runs", f"{type(error).__name__}: {error} ({where})")
    return {name: value for name, value in names.items() if inspect.isfunction(value)
            and value.__module__ == f"<{module}>" and not name.startswith("_")}


def _choose(functions: dict, name: str):
    if not name and len(functions) == 1:
        return next(iter(functions.values()))
    if name not in functions:
        refuse("FUNCTION", "a public function of the script: " + (", ".join(functions) or "none"),
               repr(name))
    return functions[name]


def _certify(options, command: str) -> int:
    from manyheads import capacity

    tensors = _read_channel(options.channel)
    x, edges = tensors["embeddings"], tensors["edges"]
    channel = capacity.KeyQueryChannel(tensors["query_weights"], tensors["key_weights"],
                                       threshold=tensors["threshold"].item())
    graph = capacity.RelationalGraph(len(x), edges.numpy())
    found = capacity.certify(channel, graph, x)
    print(f"recovers every context: {'yes' if found.recovers_every_context else 'not proved'}")
    print(f"margin: {found.margin:.6g} (error bound {found.error_bound:.2g})")
    print(f"best threshold: {found.threshold:.6g}")
    print(f"at its own threshold: precision {found.precision:.6g}, recall {found.recall:.6g}")
    print(f"worst edge: {found.worst_edge}, worst non-edge: {found.worst_non_edge}")
    return 0 if found.recovers_every_context else 1


def _read_channel(name: str) -> dict:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise ImportError('needs the package safetensors: '
                          'pip install "manyheads[pretrained]"') from error
    if not Path(name).is_file():
        refuse("CHANNEL", "a file that exists", repr(name))
    try:
        tensors = load_file(name)
    except SafetensorError as error:
        refuse("CHANNEL", "a safetensors file", f"{name}: {error}")
    missing = [key for key in _CHANNEL if key not in tensors]
    if missing:
        refuse("CHANNEL", "a file with " + ", ".join(_CHANNEL), f"{name}, without {missing[0]}")
    for key, axes in _CHANNEL.items():
        shape = tuple(tensors[key].shape)
        if len(shape) != axes and (axes or tensors[key].numel() != 1):
            refuse(key, f"a tensor with {axes} axes", f"shape {shape}")
    if tensors["edges"].is_floating_point():
        refuse("edges", "integers", str(tensors["edges"].dtype))
    return tensors


def _fail(message, code: int) -> int:
    print(f"manyheads: {message}", file=sys.stderr)
    return code
