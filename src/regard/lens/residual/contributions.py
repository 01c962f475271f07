"""`contributions`: how much each head, key and block adds to the logit of a token; `logit_lens`: the tokens that each
block would predict if it were the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...common.errors import refuse
from ...common.text.terminal_text import printable
from ..interventions.subject import Subject
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
        keys: by layer (heads, keys): what each head adds from each key, whose sum is that of the head.
        rest: by block, what is added by everything but its heads: feed-forward layers, and biases.
        embedding: what the stream before the first block adds.
        constant: the part of the biases of the last norm and of the unembedding.
        tokens: the tokens of the text, or numbers.

    Examples:
        >>> import numpy as np
        >>> from regard.lens.residual.contributions import Contributions
        >>> keys = {"attn": np.array([[1.0, 2.0]])}
        >>> found = Contributions("a", 1, 4.0, keys, {"0": 0.5}, 0.5, 0.0, ("x", "y"))
        >>> found.ranked()
        [('attn head 0', 3.0)]
    """

    token: str | int
    position: int
    logit: float
    keys: Mapping[str, np.ndarray]
    rest: Mapping[str, float]
    embedding: float
    constant: float
    tokens: tuple[str, ...]

    @property
    def heads(self) -> np.ndarray:
        """(layers, heads) what each head adds; NaN where a layer has no such head."""
        found = np.full((len(self.keys), max(map(len, self.keys.values()))), np.nan)
        for row, each in zip(found, self.keys.values(), strict=True):
            row[: len(each)] = each.sum(-1)
        return found

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers."""
        return tuple(self.keys)

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
    subject = Subject.of(model, text, target, inputs, tokenizer, "contributions")
    stream = Stream(subject)
    if isinstance(position, int) and -stream.count <= position < 0:
        position += stream.count
    row = subject.position(position)
    number = int(stream.logits[row].argmax()) if token is None else stream.number(token)
    direction = stream.head.weight[number].detach().double()
    bias = getattr(stream.head, "bias", None)
    constant = 0.0 if bias is None else float(bias[number].detach())
    constant += float((direction * stream.end.shift).sum())
    direction = stream.end.before(direction, row)
    keys: dict[str, np.ndarray] = {}
    rest: dict[str, float] = {}
    for (name, block), before, after in zip(
        stream.blocks.items(), stream.residuals, stream.residuals[1:], strict=False
    ):
        parts = {layer: _of_keys(call, block.norm.before(direction, row), row) for layer, call in block.items()}
        rest[name] = float((after - before)[row] @ direction) - sum(float(each.sum()) for each in parts.values())
        keys |= parts
    return Contributions(
        subject.spell(number),
        row,
        float(stream.logits[row, number]),
        keys,
        rest,
        float(stream.residuals[0][row] @ direction),
        constant,
        subject.axis.tokens,
    )


def _of_keys(call: Call, direction: torch.Tensor, row: int) -> np.ndarray:
    """(H, K) the part of each key of a row: p v W_o · direction."""
    assert call.v is not None and call.projections is not None and call.projections.o is not None
    H, G = call.shape[0], len(call.v)
    shares = (direction.cpu().numpy() @ np.asarray(call.projections.o.w, np.float64)).reshape(H, -1)
    values = np.repeat(np.asarray(call.v, np.float64), H // G, 0)
    return call.weights(rows=row)[:, 0] * np.einsum("hke,he->hk", values, shares)


@printable
@dataclass(frozen=True, eq=False, repr=False)
class LogitLens:
    """What each block would predict; print it for the likeliest tokens after the last one.

    Args:
        names: "embedding", and the blocks.
        numbers: (blocks + 1, T, count) the likeliest tokens after each token, in descending order.
        chances: (blocks + 1, T, count) their probabilities.
        tokens: the tokens of the text, or numbers.
        words: the likeliest tokens as text, or numbers, nested as `numbers`.

    Examples:
        >>> import numpy as np
        >>> from regard.lens.residual.contributions import LogitLens
        >>> LogitLens(("embedding",), np.array([[[3]]]), np.array([[[1.0]]]), ("a",), [[["b"]]]).words[0][0]
        ['b']
    """

    names: tuple[str, ...]
    numbers: np.ndarray
    chances: np.ndarray
    tokens: tuple[str, ...]
    words: list[list[list[Any]]]

    def __str__(self) -> str:
        wide = max(map(len, self.names))
        lines = [f"after {self.tokens[-1]!r} ({len(self.tokens) - 1}), each block would predict"]
        for name, words, chances in zip(self.names, self.words, self.chances, strict=True):
            likeliest = "  ".join(f"{word!r} {chance:.1%}" for word, chance in zip(words[-1], chances[-1], strict=True))
            lines.append(f"{name:{wide}}  {likeliest}")
        return "\n".join(lines)

    __repr__ = __str__


def logit_lens(
    model: Any = None,
    text: str | None = None,
    *,
    count: int = 3,
    target: str | None = None,
    inputs: Any = None,
    tokenizer: Any = None,
) -> LogitLens:
    """The tokens that each block would predict if it were the last one.

    softmax(W_U norm(r_l)) for the residual stream r_l before the first block and after each

    Args:
        model: a folder, a hub id, or a loaded transformers model that predicts tokens.
        text: the text, for models with a tokenizer.
        count: how many of the likeliest tokens are kept.
        target: the target text of an encoder-decoder model.
        inputs: the arguments of the model, with a batch of 1, in the place of the text.
        tokenizer: the tokenizer of a loaded model.

    Returns:
        The tokens with their probabilities; print them for those after the last token.

    Raises:
        Refused: the models that `contributions` does not take.

    Source:
        nostalgebraist 2020, interpreting GPT: the logit lens.

    Examples:
        >>> import torch, transformers, regard as rg
        >>> config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=9)
        >>> rg.logit_lens(transformers.GPT2LMHeadModel(config).eval(), inputs=torch.arange(5)[None]).numbers.shape
        (3, 5, 3)
    """
    if count < 1:
        raise refuse("logit_lens", "no tokens", f"count={count}", "a number from 1", "leave it out")
    subject = Subject.of(model, text, target, inputs, tokenizer, "logit_lens")
    stream = Stream(subject)
    chances, numbers = [], []
    with torch.no_grad():
        for residual in stream.residuals:
            chance = stream.predicted(residual).softmax(-1)
            best = chance.topk(min(count, chance.shape[-1]))
            chances.append(best.values.cpu().numpy())
            numbers.append(best.indices.cpu().numpy())
    found = np.stack(numbers)
    words = [[[subject.spell(one) for one in row] for row in rows] for rows in found.tolist()]
    return LogitLens(("embedding", *stream.blocks), found, np.stack(chances), subject.axis.tokens, words)
