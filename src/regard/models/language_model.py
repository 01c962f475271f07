"""A language model: tokens in, and for each the logits of the token that comes next."""

from __future__ import annotations

import torch
from torch import nn

from ..common.errors import Reason, Refused
from ..language.masks import causal, window
from ..torch.cache import Taking, cache_for
from . import blocks
from .config import Config
from .embedding import Embedding, attention_positions, standing, unreadable

__all__ = ["Config", "LanguageModel"]


class LanguageModel(nn.Module):
    """A decoder over tokens, in the style of GPT or of Llama, as its config says.

    logits[i] = head(blocks(embed(token 0 … token i))),  loss = mean over i of −ln softmax(logits[i])[target i]

    memory_dim: width of a memory that every layer attends to as well: the rows of an encoder, the patches of a picture.

    Source: Radford et al. 2019; Touvron et al. 2023.

    >>> model = LanguageModel(Config(vocabulary=256, d_model=32, layers=2, heads=4))
    >>> text = torch.tensor([list(b"a small model")])
    >>> model(text).shape
    torch.Size([1, 13, 256])
    >>> logits, loss = model(text[:, :-1], text[:, 1:])
    """

    def __init__(self, config: Config, *, memory_dim: int | None = None):
        super().__init__()
        self.config = config
        turned = attention_positions(config)
        self.turns = turned is not None
        # A tied table is the output too, and logits begin with deviation 1; otherwise rows begin as large as what a
        # part adds.
        self.embed = Embedding(config, config.d_model**-0.5 if config.tied else (2 * config.layers) ** -0.5)
        self.stack = blocks.stack(config, positions=turned, memory_dim=memory_dim)
        self.output = None if config.tied else nn.Linear(config.d_model, config.vocabulary, bias=False)
        self.mask = causal() if config.window is None else window(config.window)
        if self.output is not None:
            nn.init.normal_(self.output.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor | None = None, **where):
        """tokens (B, n) -> logits (B, n, vocabulary); with targets (B, n), (logits, loss): the mean cross-entropy in
        nats.

        Targets of -100 count nothing. The other arguments as for `hidden`.
        """
        logits = self.head(self.hidden(tokens, **where))
        if targets is None:
            return logits
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100)

    def hidden(
        self, tokens: torch.Tensor, *, memory=None, memory_mask=None, cache=None, rows=None, mask=None, positions=None
    ) -> torch.Tensor:
        """The rows (B, n, d_model) of which `head` makes logits.

        cache: what `cache` made; the tokens then follow those that it has seen, and rows (B,) says how many of them
        each sequence takes where they differ: what follows is padding. mask: a rule beside the model's own, such as
        rg.documents(…) for packed documents. positions (n,) or (B, n): where the tokens stand. memory, memory_mask: as
        for `blocks.Block`.
        """
        self._check(tokens, cache, rows, positions)
        places = standing(tokens, cache, rows) if positions is None else positions
        caches = cache if rows is None else [Taking(each, rows) for each in cache]
        return self.stack(
            self.embed(tokens, places),
            memory,
            mask=self.mask if mask is None else self.mask & mask,
            memory_mask=memory_mask,
            cache=caches,
            positions=places if self.turns else None,
        )

    def head(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (…, vocabulary) of rows (…, d_model)."""
        return nn.functional.linear(x, self.embed.tokens.weight) if self.output is None else self.output(x)

    def cache(self, batch: int = 1) -> list:
        """An empty cache for each layer: what the call takes as cache= to go on where it stopped."""
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

    def _check(self, tokens: torch.Tensor, cache, rows, positions) -> None:
        """Tokens that can be read, and no argument that would have no meaning."""
        reasons = unreadable(tokens)
        if cache is not None and len(cache) != self.config.layers:
            reasons.append(
                Reason(
                    "the cache is of another model",
                    given=f"{len(cache)} layers",
                    expected=f"{self.config.layers} layers",
                    fix="pass what model.cache(batch) made",
                )
            )
        if cache is None and rows is not None:
            reasons.append(
                Reason(
                    "rows without a cache",
                    given=f"rows={rows!r}",
                    expected="the cache that takes them",
                    fix="leave rows out: padding on the right changes nothing before it",
                )
            )
        if cache is not None and positions is not None:
            reasons.append(
                Reason(
                    "the cache knows where its tokens stand",
                    given="positions",
                    expected="positions=None",
                    fix="leave positions out",
                )
            )
        if reasons:
            raise Refused("LanguageModel", reasons)
