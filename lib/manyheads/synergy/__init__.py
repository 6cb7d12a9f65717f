"""The synergy of heads: one layer's heads as one graph, walked and averaged over.

`HeadSystem` holds the heads and their weights; `walks` measures how fast
information reaches the last token, `diffusion` how clearly.
"""

from manyheads.synergy.bounds import (
    LOWER_BOUNDS, UPPER_BOUNDS, WalkProfile, mixing_time_bound, published_threshold, walk_profile,
)
from manyheads.synergy.checkpoints import (
    load_checkpoint, load_published_checkpoint, save_checkpoint,
)
from manyheads.synergy.conditions import (
    fidelity_slopes, free_choice_fidelities, free_choice_hitting_times, hitting_time_slopes,
)
from manyheads.synergy.diffusion import cross_head_paths, minimax_fidelity, node_fidelities
from manyheads.synergy.diversity import head_diversity
from manyheads.synergy.graphs import (
    HITTING_LAWS, HittingLaw, full_graph, line_graph, random_graphs, separable_moments,
)
from manyheads.synergy.heads import HeadSystem
from manyheads.synergy.pairs import PAIR_MEASURES, compare_pairs, pair_classes, sink_graphs
from manyheads.synergy.proxies import (
    published_fidelity_proxy, published_mixing_proxy, published_transitions,
)
from manyheads.synergy.report import attention_report
from manyheads.synergy.reverse import reverse_hitting_time, reversed_walk
from manyheads.synergy.tasks import Task, copy_task, cycle_task
from manyheads.synergy.training import accuracy, train
from manyheads.synergy.transformer import Transformer, head_weights
from manyheads.synergy.walks import expected_hitting_times, hitting_time_cdf, mixing_time
from manyheads.synergy.weights import BestWeights, best_weights

__all__ = [
    "BestWeights",
    "HITTING_LAWS",
    "HeadSystem",
    "HittingLaw",
    "LOWER_BOUNDS",
    "PAIR_MEASURES",
    "Task",
    "Transformer",
    "UPPER_BOUNDS",
    "WalkProfile",
    "accuracy",
    "attention_report",
    "best_weights",
    "compare_pairs",
    "copy_task",
    "cross_head_paths",
    "cycle_task",
    "expected_hitting_times",
    "fidelity_slopes",
    "free_choice_fidelities",
    "free_choice_hitting_times",
    "full_graph",
    "head_diversity",
    "head_weights",
    "hitting_time_cdf",
    "hitting_time_slopes",
    "line_graph",
    "load_checkpoint",
    "load_published_checkpoint",
    "minimax_fidelity",
    "mixing_time",
    "mixing_time_bound",
    "node_fidelities",
    "pair_classes",
    "published_fidelity_proxy",
    "published_mixing_proxy",
    "published_threshold",
    "published_transitions",
    "random_graphs",
    "reverse_hitting_time",
    "reversed_walk",
    "save_checkpoint",
    "separable_moments",
    "sink_graphs",
    "train",
    "walk_profile",
]
