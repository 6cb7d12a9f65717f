"""Part I, capacity: what the key-query channels of h heads can store.

In reading order: `graphs`, `embeddings`, `channel`, `certificates`,
`bounds`, `constructions`, `softmax`,
`one_head` (with `dual_ray`), `objectives`, `learning`, `thresholds`,
`routing`.
"""

from manyheads.capacity.bounds import (
    bits_per_parameter,
    construction_upper_bound,
    counting_lower_bound,
    graph_bits,
    head_bits,
    optimal_heads,
    sign_pattern_lower_bound,
    single_head_ceiling,
)
from manyheads.capacity.certificates import Certificate, certify
from manyheads.capacity.channel import KeyQueryChannel
from manyheads.capacity.constructions import block_channel, one_hot_channel
from manyheads.capacity.embeddings import (
    centered,
    correlated_embeddings,
    effective_dimension,
    gaussian_embeddings,
    incoherence,
    interference,
    one_hot_embeddings,
    pretrained_embeddings,
    rademacher_embeddings,
    sparse_embeddings,
    token_embeddings,
    welch_bound,
    whitened,
    whitening,
)
from manyheads.capacity.graphs import (
    RelationalGraph,
    permutation_graph,
    power_law_graph,
    random_graph,
    regular_graph,
    sample_contexts,
)
from manyheads.capacity.learning import Training, train_channel
from manyheads.capacity.dual_ray import check_dual_ray
from manyheads.capacity.objectives import OBJECTIVES
from manyheads.capacity.one_head import OneHead, single_head_feasible
from manyheads.capacity.routing import (
    LABELS,
    READOUTS,
    Router,
    Routing,
    sample_contexts_of_edges,
    train_router,
)
from manyheads.capacity.softmax import attention_with_sink, margin_and_spread, softmax_window
from manyheads.capacity.thresholds import (
    CapacityThreshold,
    bootstrap_interval,
    capacity_threshold,
)

__all__ = [
    "CapacityThreshold",
    "Certificate",
    "KeyQueryChannel",
    "LABELS",
    "OBJECTIVES",
    "OneHead",
    "READOUTS",
    "RelationalGraph",
    "Router",
    "Routing",
    "Training",
    "attention_with_sink",
    "bits_per_parameter",
    "block_channel",
    "bootstrap_interval",
    "capacity_threshold",
    "centered",
    "certify",
    "check_dual_ray",
    "construction_upper_bound",
    "correlated_embeddings",
    "counting_lower_bound",
    "effective_dimension",
    "gaussian_embeddings",
    "graph_bits",
    "head_bits",
    "incoherence",
    "interference",
    "margin_and_spread",
    "one_hot_channel",
    "one_hot_embeddings",
    "optimal_heads",
    "permutation_graph",
    "power_law_graph",
    "pretrained_embeddings",
    "rademacher_embeddings",
    "random_graph",
    "regular_graph",
    "sample_contexts",
    "sample_contexts_of_edges",
    "sign_pattern_lower_bound",
    "single_head_ceiling",
    "single_head_feasible",
    "softmax_window",
    "sparse_embeddings",
    "token_embeddings",
    "train_channel",
    "train_router",
    "welch_bound",
    "whitened",
    "whitening",
]
