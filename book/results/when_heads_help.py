"""How many pairs of small graphs beat both, or lose to both, at some of fifteen weights.

    python book/results/when_heads_help.py

writes when_heads_help.parquet beside this file. Every count is exact.
"""

from pathlib import Path

import torch

from manyheads import sweep, synergy

HERE = Path(__file__).resolve().parent

# Weights of the first graph: 1/16 to 15/16.
PARTS = 16


def pairs_by_weight(num_nodes, measure):
    """Pairs that win, or lose, at equal weights, and at one or more of the fifteen."""
    verdicts = [
        synergy.compare_pairs(num_nodes, (part, PARTS - part), measures=(measure,))[
            f"{measure}_verdict"].to_numpy()
        for part in range(1, PARTS)]
    wins = sum(verdict == 1 for verdict in verdicts)
    losses = sum(verdict == -1 for verdict in verdicts)
    equal = verdicts[PARTS // 2 - 1]
    return {
        "pairs": len(equal),
        "win_at_half": int((equal == 1).sum()), "win_somewhere": int((wins > 0).sum()),
        "lose_at_half": int((equal == -1).sum()), "lose_somewhere": int((losses > 0).sum()),
        "win_and_lose": int(((wins > 0) & (losses > 0)).sum()),
    }


def full_grid():
    """A minute on one core."""
    return sweep.product(num_nodes=[3, 4, 5], measure=synergy.PAIR_MEASURES)


def small_grid():
    """What the chapter recomputes: up to four nodes."""
    return [cell for cell in full_grid() if cell["num_nodes"] < 5]


if __name__ == "__main__":
    torch.set_num_threads(1)
    frame = sweep.run(pairs_by_weight, full_grid(),
                      cache=HERE.parents[1] / "_build" / "results")
    sweep.save(frame, HERE / "when_heads_help.parquet",
               command="python book/results/when_heads_help.py")
