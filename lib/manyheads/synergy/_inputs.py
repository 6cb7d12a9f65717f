"""Reading what a user gives for a head system: edges, graphs, weights."""

import numbers
from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction

import networkx as nx
import torch
from torch import Tensor

from manyheads._checks import check_number, check_tensor, describe, refuse
from manyheads.synergy._causal import check_stochastic


def read_sequence(argument: str, value) -> list:
    """`value` as a list, one entry per head, refused if it is no sequence or empty."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        refuse(argument, "a list with one entry per head, at least one", describe(value))
    return list(value)


def read_edges(head: int, edges, num_nodes: int) -> set[tuple[int, int]]:
    """The edges of one head, checked."""
    seen = set()
    edges = edges.tolist() if hasattr(edges, "tolist") else edges
    if isinstance(edges, str) or not isinstance(edges, Iterable):
        refuse("head_edges", "a list of (source, target) pairs for every head",
               f"{edges!r} for head {head}")
    for edge in edges:
        def no(allowed, edge=edge):
            refuse("head_edges", allowed, f"{edge!r} in head {head}")
        pair = tuple(edge) if isinstance(edge, Sequence) else ()
        if len(pair) != 2 or not all(
                isinstance(node, numbers.Integral) and not isinstance(node, bool) for node in pair):
            no("(source, target) pairs of whole numbers")
        source, target = pair
        if not (0 <= source < num_nodes and 0 <= target < num_nodes):
            no(f"edges between the nodes 0 to {num_nodes - 1}")
        if source == target:
            no("without self-loops, which every node has anyway")
        if source > target:
            no("in causal order, source < target, so that no cycle can arise")
        if pair in seen:
            no("without repeated edges")
        seen.add(pair)
    return seen


def read_labels(labels, num_nodes: int) -> tuple[Hashable, ...]:
    """The nodes' names, 0..num_nodes-1 by default."""
    names = range(num_nodes) if labels is None else labels
    names = tuple(names) if isinstance(names, Iterable) else ()
    if not all(isinstance(name, Hashable) for name in names) or not (
            len(set(names)) == len(names) == num_nodes):
        refuse("labels", f"{num_nodes} different names, one per node", describe(labels))
    return names


def read_weights(weights, flows: Tensor) -> tuple[Tensor, tuple[Fraction, ...] | None]:
    """The weights as a tensor like `flows` and, without batch axes, as Fractions."""
    heads = flows.shape[-3]
    if weights is None:
        weights = [Fraction(1, heads)] * heads
    if isinstance(weights, (list, tuple)):
        for weight in weights:
            check_number("weights", weight, least=0)
        exact = [Fraction(weight) for weight in weights]
        tensor = torch.tensor([float(weight) for weight in exact], dtype=flows.dtype,
                              device=flows.device)
    else:
        if not isinstance(weights, Tensor):
            refuse("weights", "a list of numbers or a tensor", describe(weights))
        tensor = check_tensor("weights", weights, "... heads", like=flows)
        exact = [Fraction(weight) for weight in tensor.tolist()] if tensor.ndim == 1 else None
    if tensor.shape[-1:] != (heads,):
        refuse("weights", f"one per head, {heads} in all", f"{tensor.shape[-1]}")
    if tensor.detach().amin().item() < 0:
        refuse("weights", "non-negative", f"a weight {tensor.amin().item():g}")
    check_stochastic("weights", tensor, tensor.sum(-1, keepdim=True), "row",
                     "divide by their sum")
    try:
        torch.broadcast_shapes(tensor.shape[:-1], flows.shape[:-3])
    except RuntimeError:
        refuse("weights", f"of batch axes that broadcast with {tuple(flows.shape[:-3])}", tensor)
    return tensor, None if exact is None else tuple(weight / sum(exact) for weight in exact)


def causal_order(graphs: list[nx.DiGraph]) -> list[Hashable]:
    """A topological order of the union of the graphs, its one sink last."""
    union = nx.DiGraph()
    union.add_nodes_from(graphs[0])
    for graph in graphs:
        union.add_edges_from(edge for edge in graph.edges if edge[0] != edge[1])
    if not nx.is_directed_acyclic_graph(union):
        cycle = nx.find_cycle(union)
        path = [source for source, _ in cycle] + [cycle[0][0]]
        refuse("graphs", "acyclic together, up to self-loops",
               "the cycle " + " -> ".join(map(repr, path)))
    sinks = [node for node, degree in union.out_degree if degree == 0]
    if len(sinks) > 1:
        refuse("graphs", "of one sink, the node that no edge leaves",
               f"{len(sinks)} sinks: " + ", ".join(map(repr, sinks[:5])))
    first = {node: at for at, node in enumerate(graphs[0])}
    return list(nx.lexicographical_topological_sort(union, key=first.__getitem__))
