"""The synergy of heads: one layer's heads as one graph, walked and averaged over.

`HeadSystem` holds the heads and their weights; `walks` measures how fast
information reaches the last token, `diffusion` how clearly.
"""

from manyheads.synergy.diffusion import cross_head_paths, minimax_fidelity, node_fidelities
from manyheads.synergy.heads import HeadSystem
from manyheads.synergy.walks import expected_hitting_times, hitting_time_cdf, mixing_time

__all__ = [
    "HeadSystem",
    "cross_head_paths",
    "expected_hitting_times",
    "hitting_time_cdf",
    "minimax_fidelity",
    "mixing_time",
    "node_fidelities",
]
