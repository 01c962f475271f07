"""`logit_lens`: the tokens that each block would predict if it were the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...common.errors import refuse
from ...common.text.terminal_text import printable
from ..interventions.measures import Subject
from .stream import Stream


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
        >>> from regard.lens.residual.logit_lens import LogitLens
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
    subject = Subject.of(model, text, target, inputs, tokenizer)
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
