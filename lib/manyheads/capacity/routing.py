"""Beyond the channel: attention that routes values, alone and in a Transformer block.

A context of frozen embeddings goes in, each token with a label drawn anew; out comes,
for each query, the label of the token it is related to. The label is nowhere but at
that token, so it takes attention to find it. (Which vertex that token is, an MLP could
learn by heart from the query alone.) Four readouts of the same key-query heads, each
with as many parameters for every number of heads.
"""

__all__ = ["LABELS", "READOUTS", "Router", "Routing", "sample_contexts_of_edges", "train_router"]

import sys
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from manyheads._checks import check_bool, check_choice, check_count, check_tensor, refuse
from manyheads.capacity.graphs import RelationalGraph

READOUTS = ("attention", "value", "vertex", "block")
LABELS, LABEL_DIM = 32, 16  # labels, and the dimension of their embeddings
_RATE = 1e-2  # of Adam, decayed to zero along a cosine
_TINY = 1e-9  # least probability inside a logarithm
_REPORT_EVERY = 5.0  # seconds


class Router(nn.Module):
    """h heads of scaled softmax attention over a context, and what is read from them.

    - ``"attention"``: the mean of the heads' attention, summed over the keys with
      the same label.
    - ``"value"``: every head routes the labels' embeddings; their mean is compared
      with the embeddings of all labels.
    - ``"vertex"``: every head routes the tokens themselves; their mean is compared
      with the embeddings of all m vertices, and the answer is the target itself.
    - ``"block"``: a pre-norm Transformer block: tokens are a vertex's and a label's
      embedding side by side, heads have learnt values, and attention and MLP add to
      the token. The label is read from its part of the block's output.

    Parameters
    ----------
    embeddings : (m, d_model) tensor
        Frozen.
    heads, key_dim : int
        In a block `heads` divides d_model + 16, which the values are split into.
    readout : {"attention", "value", "vertex", "block"}
    seed : int
        Of the weights and of the labels' embeddings, which are frozen too.
    """

    def __init__(self, embeddings: Float[Tensor, "m d_model"], *, heads: int, key_dim: int,
                 readout: str, seed: int):
        super().__init__()
        check_tensor("embeddings", embeddings, "m d_model")
        self.readout = check_choice("readout", readout, READOUTS)
        width = embeddings.shape[1] + (LABEL_DIM if readout == "block" else 0)
        if width % check_count("heads", heads) and readout == "block":
            refuse("heads", f"a divisor of d_model + {LABEL_DIM} = {width}", heads)
        draw = torch.Generator().manual_seed(check_count("seed", seed, least=0))

        def normal(*shape, scale):
            return (torch.randn(*shape, generator=draw, dtype=torch.float64) * scale).to(embeddings)

        labels = normal(LABELS, LABEL_DIM, scale=1)
        self.register_buffer("embeddings", embeddings.detach().clone())
        self.register_buffer("labels", labels / labels.norm(dim=1, keepdim=True))
        # Unit embeddings, and normalised tokens, then score with variance 1 at any width.
        side = check_count("key_dim", key_dim) ** -0.25
        side *= width**-0.5 if readout == "block" else 1
        self.query = nn.Parameter(normal(heads, width, key_dim, scale=side))
        self.key = nn.Parameter(normal(heads, width, key_dim, scale=side))
        self.sharpness = nn.Parameter(embeddings.new_tensor([3.0, 3.0]))  # of keys, of labels
        if readout == "block":
            self.norm = nn.ModuleList(nn.LayerNorm(width).to(embeddings) for _ in range(2))
            # Values start as a rotation, cut into heads, and the output as its inverse: what
            # is attended to passes through. Random ones leave attention without a gradient.
            turn = torch.linalg.qr(normal(width, width, scale=1)).Q
            self.value = nn.Parameter(turn.unflatten(1, (heads, -1)).transpose(0, 1).clone())
            self.out = nn.Parameter(self.value.detach().mT.clone())
            self.up = nn.Parameter(normal(width, 4 * width, scale=width**-0.5))
            self.down = nn.Parameter(normal(4 * width, width, scale=(4 * width) ** -0.5))

    def attention(self, queries: Float[Tensor, "batch q width"],
                  keys: Float[Tensor, "batch k width"]) -> Float[Tensor, "batch heads q k"]:
        """Each head's softmax over the keys."""
        scores = (queries[:, None] @ self.query) @ (keys[:, None] @ self.key).mT
        return (self.sharpness[0] * scores).softmax(dim=-1)

    def forward(self, context: Int[Tensor, "batch k"], labels: Int[Tensor, "batch k"],
                queries: int) -> Float[Tensor, "batch q answers"]:
        """Log-probabilities of what each of the first `queries` tokens asks for."""
        tokens = self.embeddings[context]  # (batch, k, d_model)
        if self.readout == "block":
            return self._block(torch.cat([tokens, self.labels[labels]], dim=-1), queries)
        chances = self.attention(tokens[:, :queries], tokens).mean(dim=1)  # (batch, q, k)
        if self.readout == "value":
            return self._decode(chances @ self.labels[labels], self.labels)
        if self.readout == "vertex":
            return self._decode(chances @ tokens, self.embeddings)
        spread = chances.new_zeros(*chances.shape[:2], LABELS)
        spread = spread.scatter_add(-1, labels[:, None].expand_as(chances), chances)
        return spread.clamp(min=_TINY).log()

    def answers(self, context: Int[Tensor, "batch k"], labels: Int[Tensor, "batch k"],
                queries: int) -> Int[Tensor, "batch q"]:
        """What `forward` should find: labels, or vertices, of the tokens after the queries."""
        return (context if self.readout == "vertex" else labels)[:, queries:]

    def _block(self, tokens: Float[Tensor, "batch k width"], queries: int) -> Tensor:
        inside = self.norm[0](tokens)
        attention = self.attention(inside[:, :queries], inside)  # (batch, heads, q, k)
        routed = attention @ (inside[:, None] @ self.value)  # (batch, heads, q, width / heads)
        stream = tokens[:, :queries] + (routed @ self.out).sum(dim=1)  # (batch, q, width)
        stream = stream + (self.norm[1](stream) @ self.up).relu() @ self.down
        return self._decode(stream[..., -LABEL_DIM:], self.labels)

    def _decode(self, found: Float[Tensor, "batch q dim"], among: Float[Tensor, "answers dim"]
                ) -> Float[Tensor, "batch q answers"]:
        return (self.sharpness[1] * found @ among.T).log_softmax(dim=-1)


@dataclass(frozen=True, eq=False)
class Routing:
    """A trained router.

    Attributes
    ----------
    model : Router
    accuracy : float
        Share of right predictions in contexts that were not trained on.
    curve : DataFrame
        Columns step, loss.
    """

    model: Router
    accuracy: float
    curve: pd.DataFrame


def sample_contexts_of_edges(graph: RelationalGraph, edges: int, contexts: int, *, seed: int
                             ) -> tuple[Int[Tensor, "contexts k"], Int[Tensor, "contexts k"]]:
    """Contexts of random edges, queries first and their targets after them; and labels.

    Each context has `edges` different edges, so k = 2 · edges tokens. A vertex may be
    both a query and the target of another; it then stands there twice, with one label.
    Query q's answer is the label of token edges + q.

    Examples
    --------
    >>> from manyheads.capacity import permutation_graph
    >>> context, labels = sample_contexts_of_edges(permutation_graph(8, seed=0), 3, 5, seed=0)
    >>> context.shape, labels.shape
    (torch.Size([5, 6]), torch.Size([5, 6]))
    """
    if not isinstance(graph, RelationalGraph):
        refuse("graph", "a RelationalGraph", graph)
    edges = check_count("edges", edges, most=graph.num_edges)
    rng = np.random.default_rng(check_count("seed", seed, least=0))
    order = rng.random((check_count("contexts", contexts), graph.num_edges)).argpartition(
        edges - 1, axis=1)[:, :edges]
    context = torch.from_numpy(graph.edges[order]).mT.flatten(1)  # (contexts, 2 · edges)
    of_vertex = torch.from_numpy(rng.integers(LABELS, size=(contexts, graph.num_vertices)))
    return context, of_vertex.gather(1, context)


@torch.enable_grad()
def train_router(graph: RelationalGraph, embeddings: Float[Tensor, "m d_model"], *, heads: int,
                 key_dim: int, readout: str, edges: int = 32, batch: int = 16, steps: int = 600,
                 seed: int, progress: bool = True) -> Routing:
    """Train a router to fetch each query's label from its target, in random contexts.

    Every relation occurs in training: what is tested, on fresh contexts, is storage.

    Parameters
    ----------
    graph : RelationalGraph
        With at most one target a query.
    embeddings : (m, d_model) tensor
    heads, key_dim, readout
        As in `Router`.
    edges, batch, steps : int
        Edges a context, contexts a step, steps of Adam.
    seed : int
        Of weights and contexts.
    progress : bool
        Lines to stderr, at most one in five seconds.

    Raises
    ------
    ValueError
        If the graph does not fit the embeddings, or a query has several targets.

    Notes
    -----
    Holds batch · heads · edges · 2 edges attention weights.
    """
    model = Router(embeddings, heads=heads, key_dim=key_dim, readout=readout, seed=seed)
    if not isinstance(graph, RelationalGraph):
        refuse("graph", "a RelationalGraph", graph)
    if graph.out_degrees.max() > 1:
        refuse("graph", "with at most one target a query", repr(graph))
    if graph.num_vertices != len(embeddings):
        refuse("graph", f"on the {len(embeddings)} vertices that have embeddings", repr(graph))
    check_bool("progress", progress)
    optimiser = torch.optim.Adam(model.parameters(), lr=_RATE)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, check_count("steps", steps))
    curve, last = [], time.monotonic()

    def contexts(count, seed):
        context, labels = sample_contexts_of_edges(graph, edges, count, seed=seed)
        return context.to(embeddings.device), labels.to(embeddings.device)

    for step in range(steps):
        context, labels = contexts(batch, (seed + 1) * 10**6 + step)
        chances = model(context, labels, edges)  # (batch, edges, answers)
        loss = nll_loss(chances.flatten(0, 1), model.answers(context, labels, edges).flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        decay.step()
        curve.append({"step": step, "loss": loss.item()})
        if progress and time.monotonic() - last > _REPORT_EVERY:
            print(f"step {step + 1} of {steps}, loss {loss.item():.3f}", file=sys.stderr,
                  flush=True)
            last = time.monotonic()
    with torch.no_grad():
        context, labels = contexts(4 * batch, seed)
        found = model(context, labels, edges).argmax(dim=-1)
        right = found == model.answers(context, labels, edges)
    return Routing(model, right.double().mean().item(), pd.DataFrame(curve))
