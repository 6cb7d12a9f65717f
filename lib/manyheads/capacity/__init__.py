"""Part I, capacity: what the key-query channels of h heads can store.

In reading order: `graphs`, `embeddings`, `channel`, `certificates`,
`bounds`, `constructions`, `learning`.
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
    gaussian_embeddings,
    incoherence,
    one_hot_embeddings,
    pretrained_embeddings,
    rademacher_embeddings,
    token_embeddings,
    welch_bound,
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

__all__ = [
    "Certificate",
    "KeyQueryChannel",
    "RelationalGraph",
    "Training",
    "bits_per_parameter",
    "block_channel",
    "certify",
    "construction_upper_bound",
    "counting_lower_bound",
    "gaussian_embeddings",
    "graph_bits",
    "head_bits",
    "incoherence",
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
    "sign_pattern_lower_bound",
    "single_head_ceiling",
    "token_embeddings",
    "train_channel",
    "welch_bound",
]
