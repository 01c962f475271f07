"""Language model: a decoder that computes the logits of the next token at every position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ..common.errors import Reason, refuse_all
from ..common.text.keywords import known_arguments
from ..language.expr import Expr
from ..language.masks import causal, window
from ..torch.cache import Taking, cache_for
from . import blocks
from .config import Config


@known_arguments
class LanguageModel(nn.Module):
    """Decoder-only transformer, in the style of GPT or Llama: logits[i] = head(blocks(embed(token 0 … token i))).

    The loss is the mean cross-entropy over the positions i, in nats: −ln softmax(logits[i])[target i].

    Args:
        config: the configuration.
        memory_dim: width of the rows that every layer also attends to (cross-attention), such as the output of an
            encoder or the patches of an image. None: no cross-attention.

    Source:
        Radford et al. 2019; Touvron et al. 2023.

    Examples:
        >>> model = LanguageModel(Config(vocabulary=256, d_model=32, layers=2, heads=4))
        >>> text = torch.tensor([list(b"a small model")])
        >>> model(text).shape
        torch.Size([1, 13, 256])
        >>> logits, loss = model(text[:, :-1], text[:, 1:])
    """

    def __init__(self, config: Config, *, memory_dim: int | None = None):
        super().__init__()
        self.config = config
        # Tied weights are initialized so that logits have a standard deviation of 1; otherwise embeddings start at the
        # scale of a sublayer's output.
        self.embed = blocks.Embedding(config, config.d_model**-0.5 if config.tied else (2 * config.layers) ** -0.5)
        self.stack = blocks.stack(config, positions=blocks.attention_positions(config), memory_dim=memory_dim)
        self.output = None if config.tied else nn.Linear(config.d_model, config.vocabulary, bias=False)
        self.mask = causal() if config.window is None else window(config.window)
        if self.output is not None:
            nn.init.normal_(self.output.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor | None = None, **where: Any) -> blocks.Output:
        """Computes the logits of the next token at every position.

        Args:
            tokens: (B, n) token ids, int64 or int32.
            targets: (B, n) the tokens to predict; -100 is ignored. None: compute no loss.
            where: `memory`, `memory_mask`, `cache`, `rows`, `mask` and `positions`, as for `hidden`.

        Returns:
            Logits (B, n, vocabulary); with `targets`, (logits, loss): the mean cross-entropy in nats.

        Raises:
            Refused: tokens or a cache that do not fit the model, listing every problem.
        """
        return blocks.with_loss(self.head(self.hidden(tokens, **where)), targets)

    def hidden(
        self,
        tokens: torch.Tensor,
        *,
        memory: blocks.Memory | list[blocks.Memory] | None = None,
        memory_mask: blocks.Mask | None = None,
        cache: list[Any] | None = None,
        rows: Sequence[int] | np.ndarray | torch.Tensor | None = None,
        mask: Expr | None = None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Computes the output rows of the last layer, before `head`.

        Args:
            tokens: (B, n) token ids, int64 or int32.
            memory: (B, m, memory_dim) rows for cross-attention, or a list with their keys and values for each layer.
            memory_mask: which memory rows a row attends to. None: all.
            cache: the result of `cache`, to which the tokens are appended. None: no cache.
            rows: (B,) number of tokens to append for each sequence of the cache; the rest is padding. None: all n.
            mask: an additional mask, such as rg.documents(…) for packed documents.
            positions: (n,) or (B, n) positions of the tokens. None: 0 … n - 1, after those in the cache.

        Returns:
            (B, n, d_model).

        Raises:
            Refused: tokens or a cache that do not fit the model, listing every problem.
        """
        self._check(tokens, cache, rows, positions)
        places = blocks.token_positions(tokens, cache, rows) if positions is None else positions
        # The distances of ALiBi need positions only if rows were moved.
        moved = {"rotary": places, "alibi": positions}.get(self.config.positions)
        caches = cache if cache is None or rows is None else [Taking(each, rows) for each in cache]
        return self.stack(
            self.embed(tokens, places),
            memory,
            mask=self.mask if mask is None else self.mask & mask,
            memory_mask=memory_mask,
            cache=caches,
            positions=moved,
        )

    def head(self, x: torch.Tensor) -> torch.Tensor:
        """Projects output rows to logits.

        Args:
            x: (…, d_model) rows, as from `hidden`.

        Returns:
            (…, vocabulary) logits.
        """
        return nn.functional.linear(x, self.embed.tokens.weight) if self.output is None else self.output(x)

    def cache(self, batch: int = 1) -> list[Any]:
        """Creates an empty key/value cache for each layer, for decoding with `cache=`.

        Args:
            batch: number of sequences.

        Returns:
            A list with one cache per layer: `rg.KVCache` on the CPU, `regard.torch.cache.TensorCache` on other devices.

        Examples:
            >>> model = LanguageModel(Config(vocabulary=256, d_model=32, layers=2, heads=4)).eval()
            >>> cache = model.cache()
            >>> with torch.no_grad():
            ...     prompt = model(torch.tensor([[1, 2, 3]]), cache=cache)
            ...     model(torch.tensor([[4]]), cache=cache).shape
            torch.Size([1, 1, 256])
        """
        config, table = self.config, self.embed.tokens.weight
        return [
            cache_for(
                table,
                config.kv_heads or config.heads,
                config.d_model // config.heads,
                batch=batch,
                window=config.window,
            )
            for _ in range(config.layers)
        ]

    def _check(self, tokens: torch.Tensor, cache: list[Any] | None, rows: Any, positions: Any) -> None:
        """Rejects invalid tokens, a cache of another model, and arguments that contradict each other."""
        reasons = blocks.token_problems(tokens)
        if cache is not None and len(cache) != self.config.layers:
            reasons.append(
                Reason(
                    "the cache belongs to another model",
                    f"{len(cache)} layers",
                    f"{self.config.layers} layers",
                    "pass the result of model.cache(batch)",
                )
            )
        if cache is None and rows is not None:
            reasons.append(
                Reason(
                    "rows requires a cache",
                    f"rows={rows!r} without cache",
                    "rows and cache, or neither",
                    "omit rows: padding on the right does not change the rows before it",
                )
            )
        if cache is not None and positions is not None:
            reasons.append(
                Reason(
                    "positions cannot be combined with a cache",
                    "positions and cache",
                    "positions=None: they follow from the cache",
                    "omit positions",
                )
            )
        refuse_all("LanguageModel", reasons)
