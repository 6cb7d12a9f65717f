"""Relational graphs: what a key-query channel has to store.

A directed graph on vertices 0..m-1; an edge (i, j) says that query i should
find key j. Source: Adler, arXiv 2509.22840 (Relational Graph Recognition).
"""

__all__ = [
    "RelationalGraph",
    "permutation_graph",
    "power_law_graph",
    "random_graph",
    "regular_graph",
    "sample_contexts",
]

from collections.abc import Hashable, Sequence

import networkx as nx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from manyheads._checks import check_count, check_number, describe, refuse


class RelationalGraph:
    """A directed graph without repeated edges; loops (i, i) are allowed.

    Parameters
    ----------
    num_vertices : int
        m, at least 1.
    edges : (m', 2) integer array or sequence of pairs
        Row (i, j): query i is related to key j. Kept sorted by i, then j.
    labels : sequence of distinct hashables, optional
        Names of the vertices; 0..m-1 when left out. Equality ignores them.

    Raises
    ------
    ValueError
        If an edge is not a pair of whole numbers in 0..m-1 or stands twice,
        or the labels are not m distinct hashables.

    Examples
    --------
    >>> graph = RelationalGraph(3, [(0, 1), (1, 0), (2, 1)])
    >>> graph.num_edges, graph.in_degrees.tolist()
    (3, [1, 2, 0])
    """

    def __init__(self, num_vertices: int, edges, labels: Sequence[Hashable] | None = None):
        self.num_vertices = check_count("num_vertices", num_vertices)
        self.edges = _check_edges(edges, self.num_vertices)
        self.edges.flags.writeable = False
        self.labels = _check_labels(labels, self.num_vertices)

    @property
    def num_edges(self) -> int:
        return len(self.edges)

    @property
    def out_degrees(self) -> np.ndarray:
        """Number of keys each query is related to, shape (m,)."""
        return np.bincount(self.edges[:, 0], minlength=self.num_vertices)

    @property
    def in_degrees(self) -> np.ndarray:
        """Number of queries each key is related to, shape (m,)."""
        return np.bincount(self.edges[:, 1], minlength=self.num_vertices)

    def adjacency(self) -> np.ndarray:
        """Boolean matrix (m, m): row i marks the keys of query i."""
        matrix = np.zeros((self.num_vertices, self.num_vertices), dtype=bool)
        matrix[self.edges[:, 0], self.edges[:, 1]] = True
        return matrix

    def restricted_to(self, context) -> "RelationalGraph":
        """The graph induced on a context: what a channel shown only these vertices owes.

        Vertex k of the result is `context[k]`, and keeps its label.
        """
        context = check_context(context, self.num_vertices)
        place = np.full(self.num_vertices, -1)
        place[context] = np.arange(len(context))
        edges = place[self.edges]
        return RelationalGraph(
            len(context), edges[(edges >= 0).all(axis=1)], [self.labels[v] for v in context]
        )

    def matchings(self) -> list[np.ndarray]:
        """The edges split into as few matchings as any split needs.

        In a matching no vertex is a source twice or a target twice. By König's
        theorem max(in-degree, out-degree) matchings suffice, and fewer cannot.

        Returns
        -------
        list of (k, 2) integer arrays, sorted like `edges`
        """
        if self.num_edges == 0:
            return []
        degree = int(max(self.out_degrees.max(), self.in_degrees.max()))
        # Vertices share a bin while their degrees fit, which keeps the regular
        # multigraph built below at no more than about twice the edges.
        sources = _share_bins(self.out_degrees, degree)[self.edges[:, 0]]
        targets = _share_bins(self.in_degrees, degree)[self.edges[:, 1]]
        bins = max(sources.max(), targets.max()) + 1
        idle_sources = np.repeat(np.arange(bins), degree - np.bincount(sources, minlength=bins))
        idle_targets = np.repeat(np.arange(bins), degree - np.bincount(targets, minlength=bins))
        pair = np.concatenate([sources, idle_sources]) * bins
        pair += np.concatenate([targets, idle_targets])
        order = np.argsort(pair, kind="stable")
        pairs, start, left = np.unique(pair[order], return_index=True, return_counts=True)
        matchings = []
        for _ in range(degree):  # a regular bipartite multigraph always has a perfect matching
            rows, columns = np.divmod(pairs[left > 0], bins)
            once = csr_array((np.ones(len(rows), bool), (rows, columns)), shape=(bins, bins))
            partner = maximum_bipartite_matching(once, perm_type="column")
            used = np.searchsorted(pairs, np.arange(bins) * bins + partner)
            left[used] -= 1
            chosen = order[start[used] + left[used]]
            matchings.append(self.edges[np.sort(chosen[chosen < self.num_edges])])
        return matchings

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph) -> "RelationalGraph":
        """The relational graph of a networkx DiGraph; its nodes become the labels."""
        if not isinstance(graph, nx.DiGraph) or graph.is_multigraph() or len(graph) == 0:
            refuse("graph", "a networkx.DiGraph with at least one node", f"{type(graph).__name__} {graph}")
        labels = list(graph)
        place = {label: vertex for vertex, label in enumerate(labels)}
        return cls(len(labels), [(place[u], place[v]) for u, v in graph.edges], labels)

    def to_networkx(self) -> nx.DiGraph:
        """A networkx DiGraph whose nodes are the labels."""
        graph = nx.DiGraph()
        graph.add_nodes_from(self.labels)
        graph.add_edges_from((self.labels[i], self.labels[j]) for i, j in self.edges)
        return graph

    def __eq__(self, other) -> bool:
        if not isinstance(other, RelationalGraph):
            return NotImplemented
        return self.num_vertices == other.num_vertices and np.array_equal(self.edges, other.edges)

    def __hash__(self) -> int:
        return hash((self.num_vertices, self.edges.tobytes()))

    def __repr__(self) -> str:
        return f"RelationalGraph(num_vertices={self.num_vertices}, num_edges={self.num_edges})"


def permutation_graph(num_vertices: int, *, seed: int) -> RelationalGraph:
    """Every query has one key and every key one query: m' = m, drawn uniformly."""
    num_vertices = check_count("num_vertices", num_vertices)
    targets = _generator(seed).permutation(num_vertices)
    return RelationalGraph(num_vertices, np.stack([np.arange(num_vertices), targets], axis=1))


def regular_graph(num_vertices: int, degree: int, *, seed: int) -> RelationalGraph:
    """Every query has `degree` keys and every key `degree` queries.

    A union of random permutations that are kept disjoint by random swaps
    (close to, not exactly, uniform over regular graphs).
    """
    num_vertices = check_count("num_vertices", num_vertices)
    degree = check_count("degree", degree, most=num_vertices)
    if degree > num_vertices // 2:  # few swaps are left to try: draw what is missing instead
        taken = np.zeros((num_vertices, num_vertices), dtype=bool)
        if degree < num_vertices:
            taken = regular_graph(num_vertices, num_vertices - degree, seed=seed).adjacency()
        return RelationalGraph(num_vertices, np.argwhere(~taken))
    rng = _generator(seed)
    rows = np.arange(num_vertices) * num_vertices
    keys = np.empty(0, dtype=np.int64)
    for _ in range(degree):
        targets = rng.permutation(num_vertices)
        while len(clash := np.flatnonzero(np.isin(rows + targets, keys))):
            for i, j in zip(clash, rng.integers(num_vertices, size=len(clash)), strict=True):
                targets[[i, j]] = targets[[j, i]]
        keys = np.concatenate([keys, rows + targets])
    return RelationalGraph(num_vertices, np.stack(np.divmod(keys, num_vertices), axis=1))


def random_graph(num_vertices: int, num_edges: int, *, seed: int) -> RelationalGraph:
    """`num_edges` of the m² possible edges (loops included), drawn uniformly."""
    num_vertices = check_count("num_vertices", num_vertices)
    num_edges = check_count("num_edges", num_edges, most=num_vertices**2)
    keys = _generator(seed).choice(num_vertices**2, num_edges, replace=False, shuffle=False)
    return RelationalGraph(num_vertices, np.stack(np.divmod(keys, num_vertices), axis=1))


def power_law_graph(
    num_vertices: int, num_edges: int, *, exponent: float, seed: int
) -> RelationalGraph:
    """`num_edges` edges, drawn one after another with hubs preferred.

    Vertices are ranked twice at random, as sources and as targets. An edge is
    drawn, without replacement, with odds (rank of source · rank of target) to
    the power -1/(exponent - 1), so that expected degrees follow a power law
    with this exponent while no pair is nearly certain.
    """
    num_vertices = check_count("num_vertices", num_vertices)
    num_edges = check_count("num_edges", num_edges, most=num_vertices**2)
    exponent = check_number("exponent", exponent, least=1, strict=True)
    rng = _generator(seed)
    log_rank = np.log(np.arange(1, num_vertices + 1)) / (exponent - 1)
    source, target = -rng.permutation(log_rank), -rng.permutation(log_rank)
    # Drawing without replacement with given odds = the largest values of log-odds
    # plus Gumbel noise; a row at a time, so that m² numbers are never held.
    best, keys = np.empty(0), np.empty(0, dtype=np.int64)
    for row in range(num_vertices):
        best = np.concatenate([best, source[row] + target + rng.gumbel(size=num_vertices)])
        keys = np.concatenate([keys, row * num_vertices + np.arange(num_vertices)])
        if len(best) > 2 * (num_edges + num_vertices) or row == num_vertices - 1:
            keep = np.argsort(-best, kind="stable")[:num_edges]
            best, keys = best[keep], keys[keep]
    return RelationalGraph(num_vertices, np.stack(np.divmod(keys, num_vertices), axis=1))


def sample_contexts(num_vertices: int, size: int, count: int, *, seed: int) -> np.ndarray:
    """`count` contexts of `size` distinct vertices each, shape (count, size)."""
    num_vertices = check_count("num_vertices", num_vertices)
    size = check_count("size", size, most=num_vertices)
    count = check_count("count", count)
    rng = _generator(seed)
    return np.stack([rng.choice(num_vertices, size, replace=False) for _ in range(count)])


def check_context(
    context, num_vertices: int, argument: str = "context", *, distinct: bool = True
) -> np.ndarray:
    """The context as an int64 array of (distinct) vertices, else refused."""
    try:
        array = np.asarray(context)
    except ValueError:  # rows of unequal length
        array = np.empty((0, 0))
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        refuse(argument, "a non-empty one-dimensional sequence of whole numbers", describe(context))
    outside = array[(array < 0) | (array >= num_vertices)]
    if outside.size:
        refuse(argument, f"made of vertices 0..{num_vertices - 1}", f"vertex {outside[0]}")
    if distinct and len(np.unique(array)) < len(array):
        refuse(argument, "made of distinct vertices", describe(context))
    return np.ascontiguousarray(array, dtype=np.int64)  # torch takes uint8 for a mask


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(check_count("seed", seed, least=0))


def _check_edges(edges, num_vertices: int) -> np.ndarray:
    try:
        array = np.asarray(edges)
    except ValueError:  # rows of unequal length
        refuse("edges", "an (m', 2) array of whole numbers", edges)
    if array.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        given = f"{array.dtype} of shape {array.shape}"
        refuse("edges", "an (m', 2) array of whole numbers", given)
    outside = array[((array < 0) | (array >= num_vertices)).any(axis=1)]
    if len(outside):
        refuse("edges", f"between vertices 0..{num_vertices - 1}", f"the edge {_pair(outside[0])}")
    array = array[np.lexsort((array[:, 1], array[:, 0]))].astype(np.int64)
    again = np.flatnonzero((np.diff(array, axis=0) == 0).all(axis=1))
    if len(again):
        refuse("edges", "free of repeats", f"the edge {_pair(array[again[0]])} twice")
    return array


def _check_labels(labels, num_vertices: int) -> tuple:
    if labels is None:
        return tuple(range(num_vertices))
    try:
        distinct = len(set(labels))
    except TypeError:  # not a collection, or names that cannot be told apart
        distinct = None
    if distinct != num_vertices or len(labels) != num_vertices:
        refuse("labels", f"{num_vertices} distinct hashable names", describe(labels))
    return tuple(labels)


def _pair(edge: np.ndarray) -> str:
    return f"({edge[0]}, {edge[1]})"


def _share_bins(degrees: np.ndarray, capacity: int) -> np.ndarray:
    """A bin for every vertex, so that no bin's degrees sum to more than `capacity`."""
    place = np.zeros(len(degrees), dtype=np.int64)
    current, load = 0, 0
    for vertex in np.flatnonzero(degrees):
        if load + degrees[vertex] > capacity:
            current, load = current + 1, 0
        place[vertex] = current
        load += degrees[vertex]
    return place
