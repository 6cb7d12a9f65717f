"""The synergy of heads: one layer's heads as one graph, walked and averaged over.

`HeadSystem` holds the heads and their weights; `walks` measures how fast
information reaches the last token, `diffusion` how clearly.
"""

from manyheads.synergy.bounds import (
    LOWER_BOUNDS, UPPER_BOUNDS, WalkProfile, mixing_time_bound, published_threshold, walk_profile,
)
from manyheads.synergy.diffusion import cross_head_paths, minimax_fidelity, node_fidelities
from manyheads.synergy.graphs import (
    HITTING_LAWS, HittingLaw, full_graph, line_graph, random_graphs, separable_moments,
)
from manyheads.synergy.heads import HeadSystem
from manyheads.synergy.proxies import (
    published_fidelity_proxy, published_mixing_proxy, published_transitions,
)
from manyheads.synergy.walks import expected_hitting_times, hitting_time_cdf, mixing_time
from manyheads.synergy.weights import BestWeights, best_weights

__all__ = [
    "BestWeights",
    "HITTING_LAWS",
    "HeadSystem",
    "HittingLaw",
    "LOWER_BOUNDS",
    "UPPER_BOUNDS",
    "WalkProfile",
    "best_weights",
    "cross_head_paths",
    "expected_hitting_times",
    "full_graph",
    "hitting_time_cdf",
    "line_graph",
    "minimax_fidelity",
    "mixing_time",
    "mixing_time_bound",
    "node_fidelities",
    "published_fidelity_proxy",
    "published_mixing_proxy",
    "published_threshold",
    "published_transitions",
    "random_graphs",
    "separable_moments",
    "walk_profile",
]
