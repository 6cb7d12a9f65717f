"""All benchmarks, as a table of ratios; exits with 1 if one is out of bounds."""

import importlib
import pathlib
import sys

WIDTH = 96


def main() -> int:
    folder = pathlib.Path(__file__).parent
    sys.path.insert(0, str(folder))
    missed = 0
    for path in sorted(folder.glob("*.py")):
        if path.name == pathlib.Path(__file__).name:
            continue
        print(f"{path.stem} ...", flush=True)
        for row in importlib.import_module(path.stem).measure():
            at_least = row["direction"] == "at least"
            good = row["ratio"] >= row["bound"] if at_least else row["ratio"] <= row["bound"]
            missed += not good
            verdict = "ok" if good else "MISSED"
            print(f"  {row['name']:{WIDTH}} {row['ratio']:10.3g}"
                  f"  {row['direction']} {row['bound']:g}  {verdict}", flush=True)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
