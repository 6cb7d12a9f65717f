"""Part I, capacity: what the key-query channels of h heads can store.

In reading order: `graphs`, `embeddings`, `channel`, `constructions`,
`certificates`.
"""

from manyheads.capacity.certificates import Certificate, certify
from manyheads.capacity.channel import KeyQueryChannel
from manyheads.capacity.constructions import block_channel
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

__all__ = [
    "Certificate",
    "KeyQueryChannel",
    "RelationalGraph",
    "block_channel",
    "certify",
    "gaussian_embeddings",
    "incoherence",
    "one_hot_embeddings",
    "permutation_graph",
    "power_law_graph",
    "pretrained_embeddings",
    "rademacher_embeddings",
    "random_graph",
    "regular_graph",
    "sample_contexts",
    "token_embeddings",
    "welch_bound",
]
