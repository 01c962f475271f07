"""`contributions`: how much each head, key and block adds to the logit of a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...common.text.terminal_text import printable
from ..interventions.measures import Subject
from ..runs.call import Call
from .stream import Stream


@printable
@dataclass(frozen=True, eq=False, repr=False)
class Contributions:
    """What adds up to the logit of a token; print it for a ranked table.

    Args:
        token: the token, as text or number.
        position: the row after which it is predicted.
        logit: its logit, before the model scales or caps it: the sum of everything below.
        heads: (layers, heads) what each head adds; NaN where a layer has no such head.
        keys: by layer (heads, keys): what each head adds from each key, whose sum is that of the head.
        rest: by block, what is added by everything but its heads: feed-forward layers, and biases.
        embedding: what the stream before the first block adds.
        constant: the part of the biases of the last norm and of the unembedding.
        layers: the names of the layers.
        tokens: the tokens of the text, or numbers.

    Examples:
        >>> import numpy as np
        >>> from regard.lens.residual.contributions import Contributions
        >>> keys = {"attn": np.array([[1.0, 2.0]])}
        >>> found = Contributions("a", 1, 4.0, np.array([[3.0]]), keys, {"0": 0.5}, 0.5, 0.0, ("attn",), ("x", "y"))
        >>> found.ranked()
        [('attn head 0', 3.0)]
    """

    token: str | int
    position: int
    logit: float
    heads: np.ndarray
    keys: Mapping[str, np.ndarray]
    rest: Mapping[str, float]
    embedding: float
    constant: float
    layers: tuple[str, ...]
    tokens: tuple[str, ...]

    def ranked(self, count: int | None = None) -> list[tuple[str, float]]:
        """The heads, the largest contribution first, with its value."""
        flat = [
            (f"{name} head {head}", float(each.sum()))
            for name, rows in self.keys.items()
            for head, each in enumerate(rows)
        ]
        return sorted(flat, key=lambda each: -abs(each[1]))[:count]

    def __str__(self) -> str:
        place = f"after {self.tokens[self.position]!r} ({self.position})"
        parts = [("heads", float(np.nansum(self.heads))), ("other parts of blocks", sum(self.rest.values()))]
        parts += [("embedding", self.embedding), ("biases of the last norm and the unembedding", self.constant)]
        lines = [f"the logit of {self.token!r} {place} is {self.logit:.4g}", *map(_line, parts), "of which"]
        return "\n".join([*lines, *map(_line, self.ranked(12))])

    __repr__ = __str__


def _line(part: tuple[str, float]) -> str:
    return f"{part[1]:+12.4g}  {part[0]}"


def contributions(
    model: Any = None,
    text: str | None = None,
    *,
    token: str | int | None = None,
    position: str | int = -1,
    target: str | None = None,
    inputs: Any = None,
    tokenizer: Any = None,
) -> Contributions:
    """How much each head, and each key of it, adds directly to the logit of a token: direct logit attribution.

    logit = (r₀ + Σ_blocks Δ) · u + constant, u = a γ ∘ W_U[token], and head h of a block adds Σ_j p[h, i, j] v[j] W_o u

    The divisor of the last norm, 1/a, is that of the text, so that the parts add up to the logit. What a head does
    through later layers is not in it: `effects` measures that.

    Args:
        model: a folder, a hub id, or a loaded transformers model that predicts tokens.
        text: the text, for models with a tokenizer.
        token: the token whose logit is explained, as text or number; None is the likeliest.
        position: the row after which it is predicted, a number or a word; -1 is the last one.
        target: the target text of an encoder-decoder model.
        inputs: the arguments of the model, with a batch of 1, in the place of the text.
        tokenizer: the tokenizer of a loaded model.

    Returns:
        The contributions; print them for a ranked table.

    Raises:
        Refused: models whose blocks do not add to one stream, as those of BERT, and models with more than a norm and a
            matrix between the blocks and the logits.

    Source:
        Elhage et al. 2021, A Mathematical Framework for Transformer Circuits.

    Examples:
        >>> import torch, transformers, regard as rg
        >>> config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=9)
        >>> found = rg.contributions(transformers.GPT2LMHeadModel(config).eval(), inputs=torch.arange(5)[None])
        >>> parts = found.heads.sum() + sum(found.rest.values()) + found.embedding + found.constant
        >>> bool(abs(parts - found.logit) < 1e-4)
        True
    """
    subject = Subject.of(model, text, target, inputs, tokenizer)
    stream = Stream(subject)
    if isinstance(position, int) and -stream.count <= position < 0:
        position += stream.count
    row = subject.position(position)
    number = int(stream.logits[row].argmax()) if token is None else stream.number(token)
    direction = stream.head.weight[number].detach().double()
    bias = getattr(stream.head, "bias", None)
    constant = 0.0 if bias is None else float(bias[number].detach())
    if stream.end is not None:
        constant += float((direction * stream.end[1].shift).sum())
        direction = stream.end[1].before(direction, row)
    keys: dict[str, np.ndarray] = {}
    rest: dict[str, float] = {}
    for (name, block), before, after in zip(
        stream.blocks.items(), stream.residuals, stream.residuals[1:], strict=False
    ):
        inner = direction if block.norm is None else block.norm.before(direction, row)
        parts = {layer: _of_keys(call, inner.cpu().numpy(), row) for layer, call in block.items()}
        rest[name] = float((after - before)[row] @ direction) - sum(float(each.sum()) for each in parts.values())
        keys |= parts
    heads = np.full((len(keys), max(map(len, keys.values()))), np.nan)
    for at, each in enumerate(keys.values()):
        heads[at, : len(each)] = each.sum(-1)
    return Contributions(
        subject.spell(number),
        row,
        float(stream.logits[row, number]),
        heads,
        keys,
        rest,
        float(stream.residuals[0][row] @ direction),
        constant,
        tuple(keys),
        subject.axis.tokens,
    )


def _of_keys(call: Call, direction: np.ndarray, row: int) -> np.ndarray:
    """(H, K) the part of each key of a row: p v W_o · direction."""
    assert call.v is not None and call.projections is not None and call.projections.o is not None
    H, G = call.shape[0], len(call.v)
    shares = (direction @ np.asarray(call.projections.o.w, np.float64)).reshape(H, -1)
    values = np.repeat(np.asarray(call.v, np.float64), H // G, 0)
    return call.weights(rows=row)[:, 0] * np.einsum("hke,he->hk", values, shares)
