"""Head systems: several heads' graphs on the same nodes, and their mixtures.

Nodes 0..n-1 are in causal order and the last one is the sink. A head is a
matrix of non-negative *flows*: row i is the receiving node, column j the
sending one, so it is lower triangular. For a graph the flows are the adjacency
matrix with self-loops, for attention the attention weights themselves.

Normalising the rows of a head gives its *diffusion matrix* (how a node averages
what it receives), normalising the columns its *walk matrix* (where a node's
information goes next). The layer is the mixture of its heads by their weights.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Iterable, Sequence

import networkx as nx
import sympy
import torch
from jaxtyping import Float
from torch import Tensor

from manyheads._checks import check_choice, check_count, refuse
from manyheads.synergy._causal import check_causal, check_stochastic, row_bands
from manyheads.synergy._exact import exact_mixture
from manyheads.synergy._inputs import (
    causal_order, read_edges, read_labels, read_sequence, read_weights,
)

__all__ = ["HeadSystem"]

Weights = Float[Tensor, "... heads"] | Sequence[numbers.Real] | None


class HeadSystem:
    """Heads on one set of nodes, with a weight each.

    Parameters
    ----------
    flows
        Shape (..., heads, n, n), non-negative and lower triangular. Kept, not
        copied. A node without flow in a head keeps what it has there.
    weights
        Non-negative, summing to 1: a tensor (..., heads) like `flows`, or a list
        of numbers, of which ints, Fractions and sympy Rationals stay exact.
        Default: all equal.
    labels
        The nodes' names in causal order. Default: 0..n-1.

    Raises
    ------
    ValueError
        If an argument is not as described; the message names it.

    Examples
    --------
    Two heads of a chain 0 -> 1 -> 2; the second one skips node 1:

    >>> system = HeadSystem.from_edges(3, [[(0, 1), (1, 2)], [(0, 2), (1, 2)]])
    >>> system
    HeadSystem(heads=2, num_nodes=3, weights=[1/2, 1/2])
    >>> system.walk_matrix()
    tensor([[0.5000, 0.0000, 0.0000],
            [0.2500, 0.5000, 0.0000],
            [0.2500, 0.5000, 1.0000]], dtype=torch.float64)
    >>> system.diffusion_matrix(exact=True)
    Matrix([
    [  1,   0,   0],
    [1/4, 3/4,   0],
    [1/6, 5/12, 5/12]])
    """

    def __init__(self, flows: Float[Tensor, "*batch heads n n"], weights: Weights = None,
                 labels: Iterable[Hashable] | None = None):
        self._set(flows, check_causal("flows", flows, "... heads n n"), weights, labels)

    def _set(self, flows, sums, weights, labels=None):
        """Fill in the fields from checked `flows` and their row and column sums."""
        self.flows = flows
        self._row_sums, self._column_sums = sums
        self.weights, self._exact_weights = read_weights(weights, flows)
        self.labels = read_labels(labels, self.num_nodes)
        return self

    @classmethod
    def from_edges(cls, num_nodes: int, head_edges: Sequence,
                   weights: Weights = None) -> HeadSystem:
        """The system of graphs given by one list of edges per head, in float64.

        Parameters
        ----------
        num_nodes
            At least 1.
        head_edges
            For every head its (source, target) pairs, source < target. Each edge
            once; self-loops belong to every node and are not listed. A head may
            be empty.
        weights
            As in the class.

        Raises
        ------
        ValueError
            Naming the head and the edge that is not a pair of whole numbers, is
            outside the nodes, against causal order, a self-loop, or repeated.

        Examples
        --------
        >>> HeadSystem.from_edges(2, [[(0, 1)]]).flows
        tensor([[[1., 0.],
                 [1., 1.]]], dtype=torch.float64)
        """
        num_nodes = check_count("num_nodes", num_nodes)
        heads = [read_edges(head, edges, num_nodes)
                 for head, edges in enumerate(read_sequence("head_edges", head_edges))]
        flows = torch.eye(num_nodes, dtype=torch.float64).repeat(len(heads), 1, 1)
        for head, edges in enumerate(heads):
            for source, target in edges:
                flows[head, target, source] = 1
        return cls(flows, weights)

    @classmethod
    def from_attention(cls, attention: Float[Tensor, "*batch heads n n"],
                       weights: Weights = None) -> HeadSystem:
        """The system of a layer's causal attention.

        Parameters
        ----------
        attention
            Shape (..., heads, n, n), lower triangular, every row summing to 1
            within 1e-4 (float32) or 1e-6 (float64), else refused. Kept, not copied.
        weights
            As in the class.

        Examples
        --------
        >>> HeadSystem.from_attention(torch.ones(1, 3, 3).tril() / torch.tensor([[1], [2], [3]]))
        HeadSystem(heads=1, num_nodes=3, weights=[1])
        """
        sums = check_causal("attention", attention, "... heads n n")
        check_stochastic("attention", attention, sums[0], "row",
                         "divide by attention.sum(-1, keepdim=True)")
        return cls.__new__(cls)._set(attention, sums, weights)

    @classmethod
    def from_networkx(cls, graphs: Sequence[nx.DiGraph], weights: Weights = None) -> HeadSystem:
        """The system of one DiGraph per head, all on the same nodes of any labels.

        The nodes are put into a topological order of the union of the graphs (the
        first graph's own order where that is one). An edge's flow is its `weight`
        attribute, 1 without it; a self-loop is added where it is missing.

        Raises
        ------
        ValueError
            If the graphs differ in their nodes; if their union has a cycle (named)
            or several sinks, nodes that no edge leaves (named).

        Examples
        --------
        >>> HeadSystem.from_networkx([nx.DiGraph([("v", "t"), ("u", "v")])]).labels
        ('u', 'v', 't')
        """
        graphs = read_sequence("graphs", graphs)
        for head, graph in enumerate(graphs):
            if not isinstance(graph, nx.DiGraph) or graph.is_multigraph() or not len(graph):
                refuse("graphs", "networkx.DiGraph objects with nodes, one per head",
                       f"{graph!r} for head {head}")
            for node in set(graph).symmetric_difference(graphs[0]):
                refuse("graphs", "on the same nodes (use add_node for a node without edges)",
                       f"node {node!r} in only one of heads 0 and {head}")
        labels = causal_order(graphs)
        position = {label: at for at, label in enumerate(labels)}
        flows = torch.eye(len(labels), dtype=torch.float64).repeat(len(graphs), 1, 1)
        for head, graph in enumerate(graphs):
            for source, target, flow in graph.edges(data="weight", default=1):
                if not (isinstance(flow, numbers.Real) and 0 <= flow < math.inf):
                    refuse("graphs", "of finite, non-negative edge weights",
                           f"{flow!r} on {source!r} -> {target!r} in head {head}")
                flows[head, position[target], position[source]] = flow
        return cls(flows, weights, labels)

    def to_networkx(self) -> list[nx.DiGraph]:
        """One DiGraph per head, on the labels; inverse of `from_networkx`.

        An edge's `weight` is its flow, if positive; self-loops are always there. The
        graph attribute `head_weight` is the head's weight in the mixture.
        """
        self._refuse_batch("to_networkx")
        graphs = []
        for flow, weight in zip(self.flows.tolist(), self.weights.tolist(), strict=True):
            graph = nx.DiGraph(head_weight=weight)
            graph.add_nodes_from(self.labels)
            graph.add_weighted_edges_from(
                (self.labels[j], self.labels[i], flow[i][j])
                for i in range(self.num_nodes) for j in range(i + 1) if flow[i][j] > 0 or i == j)
            graphs.append(graph)
        return graphs

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.flows.shape[-3]

    @property
    def num_nodes(self) -> int:
        """The number of nodes n."""
        return self.flows.shape[-1]

    def head(self, index: int) -> HeadSystem:
        """The system of head `index` (0-based) alone, with weight 1."""
        index = check_count("index", index, least=0, most=self.heads - 1)
        only = slice(index, index + 1)
        sums = self._row_sums[..., only, :], self._column_sums[..., only, :]
        return HeadSystem.__new__(HeadSystem)._set(
            self.flows[..., only, :, :], sums, None, self.labels)

    def mixed_with(self, weights: Weights) -> HeadSystem:
        """The same heads with other weights; batch axes of both broadcast."""
        sums = self._row_sums, self._column_sums
        return HeadSystem.__new__(HeadSystem)._set(self.flows, sums, weights, self.labels)

    def diffusion_matrix(self, *, exact: bool = False):
        """The mixture of the heads' diffusion matrices: rows sum to 1.

        Returns
        -------
        Tensor or sympy.ImmutableMatrix
            Shape (..., n, n), like `flows`; with `exact`, for a system without batch
            axes, the matrix of rational numbers. There a float stands for the exact
            value of its binary digits, and weights are divided by their exact sum.
        """
        if exact:
            self._refuse_batch("an exact matrix")
            return exact_mixture(self.flows, self._exact_weights, axis=-1)
        return self._mixture(self._row_sums, axis=-1)

    def walk_matrix(self, *, normalize: str = "before", exact: bool = False):
        """The layer's walk matrix: columns sum to 1.

        Parameters
        ----------
        normalize
            "before": mix the heads' walk matrices. "after": mix the flows, then divide
            columns by their sums, so that a head counts more where it takes more.
        exact
            As in `diffusion_matrix`.

        Returns
        -------
        Tensor or sympy.ImmutableMatrix
            Shape (..., n, n), like `flows`.
        """
        check_choice("normalize", normalize, ("before", "after"))
        if exact:
            self._refuse_batch("an exact matrix")
            return exact_mixture(self.flows, self._exact_weights, axis=-2,
                                 mix_first=normalize == "after")
        sums = self._column_sums
        if normalize == "after":
            sums = (self.weights.unsqueeze(-1) * sums).sum(-2, keepdim=True)
        return self._mixture(sums, axis=-2)

    def _mixture(self, sums: Tensor, axis: int) -> Tensor:
        """The heads divided by their `sums` along the axis, mixed by their weights.

        Head after head is added to a band of rows that stays in cache, so that the
        flows are read once and no other tensor of their size is made.
        """
        # One over a subnormal sum overflows: such a sum counts as no flow.
        weights, idle = self.weights.unsqueeze(-1), sums < torch.finfo(sums.dtype).tiny
        scale = (weights / (sums + idle)).unsqueeze(axis)
        scale = scale.expand(scale.shape[:-2] + (self.num_nodes, self.num_nodes))
        batch = torch.broadcast_shapes(self.flows.shape[:-3], scale.shape[:-3])
        mixed = self.flows.new_zeros(batch + self.flows.shape[-2:])
        for band in row_bands(self.num_nodes, width=512):
            for head in range(self.heads):
                mixed[..., band, :].addcmul_(self.flows[..., head, band, :],
                                             scale[..., head, band, :])
        mixed.diagonal(dim1=-2, dim2=-1).add_((weights * idle).sum(-2))
        return mixed

    def _refuse_batch(self, purpose: str) -> None:
        """Refuse a system with batch axes."""
        if self.flows.ndim > 3 or self.weights.ndim > 1:
            refuse("system", f"without batch axes for {purpose}",
                   f"flows {tuple(self.flows.shape)} and weights {tuple(self.weights.shape)}")

    def __repr__(self) -> str:
        if self.weights.ndim > 1:
            weights = f"shape {tuple(self.weights.shape)}"
        else:
            weights = "[" + ", ".join(
                str(exact) if exact.denominator < 1000 else f"{float(exact):.4g}"
                for exact in self._exact_weights) + "]"
        batch = f", batch={tuple(self.flows.shape[:-3])}" if self.flows.ndim > 3 else ""
        size = f"heads={self.heads}, num_nodes={self.num_nodes}"
        return f"HeadSystem({size}{batch}, weights={weights})"
