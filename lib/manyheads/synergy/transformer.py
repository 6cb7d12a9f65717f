"""The Transformer of Sáez de Ocáriz Borde 2025, which shows its attention when asked.

Causal and pre-norm: learned positions, RMSNorm before attention and before a ReLU
MLP, no norm at the end. The names and shapes of its parameters are those of the
published checkpoints. However many heads d_model is split into, the parameters are as many.
"""

__all__ = ["Transformer", "head_weights"]

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from manyheads._checks import check_bool, check_count, check_number, describe, refuse

_LEVELS = 2**16  # probabilities of dropout are whole parts of it


class Transformer(nn.Module):
    """A causal Transformer from tokens to logits over the same vocabulary.

    Parameters
    ----------
    vocabulary : int
        Number of tokens V; a token is one of 0, ..., V - 1.
    length : int
        The longest sequence it takes.
    heads : int
        Divides d_model; head a has the a-th d_model / heads coordinates of queries,
        keys and values, and scores are divided by the root of that number.
    layers, d_model, mlp_dim : int
    dropout : float
        Probability, to 1 / 65536, with which training drops an attention weight (after
        the softmax) or a hidden unit of an MLP.
    seed : int
        Of the initial weights, which are the same for every number of heads: standard
        normal embeddings, all else uniform within the root of 1 / fan-in.

    Attributes
    ----------
    config : dict
        The arguments, without the seed.

    Raises
    ------
    ValueError
        If an argument is not as described.

    Examples
    --------
    >>> model = Transformer(vocabulary=10, length=6, heads=4, layers=2, d_model=8)
    >>> tokens = torch.tensor([[3, 1, 4, 1, 5]])
    >>> model(tokens).shape
    torch.Size([1, 5, 10])
    >>> model.attention(tokens).shape  # layers, batch, heads, receiving, sending token
    torch.Size([2, 1, 4, 5, 5])
    """

    def __init__(self, *, vocabulary: int, length: int, heads: int, layers: int = 4,
                 d_model: int = 64, mlp_dim: int = 128, dropout: float = 0.1, seed: int = 0):
        super().__init__()
        self.config = {
            "vocabulary": check_count("vocabulary", vocabulary),
            "length": check_count("length", length),
            "heads": check_count("heads", heads),
            "layers": check_count("layers", layers),
            "d_model": check_count("d_model", d_model),
            "mlp_dim": check_count("mlp_dim", mlp_dim),
            "dropout": check_number("dropout", dropout, least=0, most=0.99),
        }
        if d_model % heads:
            refuse("heads", f"a divisor of d_model = {d_model}", describe(heads))
        with torch.random.fork_rng(devices=[]):  # torch's own first values are not used
            self.token_emb = nn.Embedding(vocabulary, d_model)
            self.pos_emb = nn.Embedding(length, d_model)
            self.layers = nn.ModuleList(
                _Block(d_model, heads, mlp_dim, dropout) for _ in range(layers))
            self.out_proj = nn.Linear(d_model, vocabulary)
        draw = torch.Generator().manual_seed(check_count("seed", seed, least=0))
        for part in self.modules():
            if isinstance(part, nn.Embedding):
                nn.init.normal_(part.weight, generator=draw)
            elif isinstance(part, nn.Linear):
                bound = part.in_features**-0.5
                for parameter in part.parameters():
                    nn.init.uniform_(parameter, -bound, bound, generator=draw)

    @property
    def heads(self) -> int:
        """Heads in each layer."""
        return self.config["heads"]

    def forward(self, tokens, *, return_attention: bool = False):
        """Logits of every position, which depend on no later token.

        Parameters
        ----------
        tokens : integer tensor
            Shape (batch, T) or (T,), T at most `length`.
        return_attention : bool
            Also return the attention, and in training mode compute it without dropout
            on the attention weights. Else they are not kept: in evaluation, and in
            training without dropout, `scaled_dot_product_attention` does not even form
            them.

        Returns
        -------
        logits : Tensor
            Shape (..., T, vocabulary).
        attention : Tensor
            Shape (layers, ..., heads, T, T), if asked for: rows receive and sum to 1.

        Raises
        ------
        ValueError
            If `tokens` are not as described.
        """
        self._check_tokens(tokens)
        check_bool("return_attention", return_attention)
        x = self.token_emb(tokens) + self.pos_emb.weight[:tokens.shape[-1]]
        seen = []
        for block in self.layers:
            x, attention = block(x, return_attention)
            seen.append(attention)
        logits = self.out_proj(x)
        return (logits, torch.stack(seen)) if return_attention else logits

    def attention(self, tokens) -> Float[Tensor, "layers *batch heads T T"]:
        """The attention of every layer and head, without any dropout.

        Parameters
        ----------
        tokens : integer tensor
            Shape (batch, T) or (T,).

        Returns
        -------
        Tensor
            Shape (layers, batch, heads, T, T), or (layers, heads, T, T) for (T,) tokens:
            lower triangular, every row (a receiving token) summing to 1. One layer of it,
            ``attention[layer]``, is what `HeadSystem.from_attention` takes.

        Raises
        ------
        ValueError
            If `tokens` are not as described.
        """
        training = self.training
        self.eval()
        try:
            return self(tokens, return_attention=True)[1]
        finally:
            self.train(training)

    def _check_tokens(self, tokens) -> None:
        most = self.config["length"]
        if not isinstance(tokens, Tensor) or tokens.dtype not in (torch.int64, torch.int32):
            refuse("tokens", "a tensor of int64 or int32 tokens", describe(tokens))
        if tokens.ndim not in (1, 2) or not 1 <= tokens.shape[-1] <= most or 0 in tokens.shape:
            refuse("tokens", f"of shape (batch, T) or (T,) with T from 1 to {most}", tokens)
        least, largest = tokens.aminmax()
        if least < 0 or largest >= self.config["vocabulary"]:
            refuse("tokens", f"from 0 to {self.config['vocabulary'] - 1}",
                   f"tokens from {least} to {largest}")


def head_weights(model: Transformer, layer: int) -> Float[Tensor, "heads"]:
    """How much each head counts in a layer: the norms of its slices of the output projection.

    The output projection's columns that read head a form a (d_model, d_model / heads)
    matrix; its Frobenius norm, divided by the sum over the heads, is the head's weight
    (Sáez de Ocáriz Borde 2025).

    Parameters
    ----------
    model : Transformer
    layer : int
        From 0.

    Returns
    -------
    Tensor
        Shape (heads,), non-negative, summing to 1, without gradient.

    Raises
    ------
    ValueError
        If `model` is no Transformer or has no such layer.

    Examples
    --------
    >>> model = Transformer(vocabulary=10, length=6, heads=2, layers=1, d_model=4)
    >>> with torch.no_grad():
    ...     model.layers[0].attn.out_proj.weight[:] = torch.tensor([1.0, 0.0, 0.0, 3.0])
    >>> head_weights(model, 0)
    tensor([0.2500, 0.7500])
    """
    if not isinstance(model, Transformer):
        refuse("model", "a Transformer", model)
    layer = check_count("layer", layer, least=0, most=len(model.layers) - 1)
    columns = model.layers[layer].attn.out_proj.weight.detach()
    norms = columns.unflatten(1, (model.heads, -1)).norm(dim=(0, 2))
    return norms / norms.sum()


class _Attention(nn.Module):
    """Causal attention of several heads, and their output projection."""

    def __init__(self, d_model, heads, dropout):
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.out_proj = (
            nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = _Dropout(dropout)

    def forward(self, x, return_attention):
        query, key, value = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(-2, -3)  # (..., heads, T, d)
            for project in (self.W_q, self.W_k, self.W_v))
        dropped = self.training and self.dropout.probability > 0
        weights = None
        if return_attention:
            weights = _softmax(query, key)
            read = weights @ value
        elif dropped and not x.is_cuda:
            # On a CPU this is 1.5 times as fast as torch's own attention with dropout.
            read = self.dropout(_softmax(query, key)) @ value
        else:
            read = scaled_dot_product_attention(
                query, key, value, is_causal=True,
                dropout_p=self.dropout.probability if dropped else 0.0)
        return self.out_proj(read.transpose(-2, -3).flatten(-2)), weights


def _softmax(query: Tensor, key: Tensor) -> Tensor:
    """Causal attention weights, shape (..., heads, T, T)."""
    future = query.new_full((query.shape[-2],) * 2, -math.inf).triu(1)
    scores = torch.baddbmm(future, (query * query.shape[-1]**-0.5).flatten(0, -3),
                           key.flatten(0, -3).mT)
    return scores.softmax(-1).view(*query.shape[:-1], -1)


class _Dropout(nn.Module):
    """Dropout that draws 16 random bits for an entry, six times as fast as torch's on a CPU."""

    def __init__(self, probability):
        super().__init__()
        self.level = round(probability * _LEVELS)
        self.probability = self.level / _LEVELS

    def forward(self, x):
        if not self.training or self.level == 0:
            return x
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
        bits = words.random_(-2**63, None).view(torch.int16)[:x.numel()].view(x.shape)
        kept = bits >= self.level - _LEVELS // 2
        return (x * kept).mul_(1 / (1 - self.probability))


class _Block(nn.Module):
    """Attention, then an MLP; each reads the normalised stream and adds to it."""

    def __init__(self, d_model, heads, mlp_dim, dropout):
        super().__init__()
        self.attn = _Attention(d_model, heads, dropout)
        self.ln1 = nn.RMSNorm(d_model)
        # The places 0 and 3 are those of the published checkpoints.
        self.mlp = nn.Sequential(nn.Linear(d_model, mlp_dim), nn.ReLU(), _Dropout(dropout),
                                 nn.Linear(mlp_dim, d_model))
        self.ln2 = nn.RMSNorm(d_model)

    def forward(self, x, return_attention):
        added, attention = self.attn(self.ln1(x), return_attention)
        x = x + added
        return x + self.mlp(self.ln2(x)), attention
