"""A language model: tokens in, and for each the logits of the token that comes next."""

from __future__ import annotations

import torch
from torch import nn

from ..errors import Reason, Refused
from ..masks import causal, window
from ..torch.cache import Taking, cache_for
from ..torch.positions import Learned, Position, Rotary, Sinusoidal
from . import blocks
from .config import Config

__all__ = ["Config", "LanguageModel"]

IGNORED = -100  # a target that counts nothing, such as padding


class LanguageModel(nn.Module):
    """A decoder over tokens, in the style of GPT or of Llama, as its config says.

    logits[i] = head(blocks(embed(token 0 … token i))),  loss = mean over i of −ln softmax(logits[i])[target i]

    Source: Radford et al. 2019; Touvron et al. 2023.

    >>> model = LanguageModel(Config(vocabulary=256, d_model=32, layers=2, heads=4))
    >>> text = torch.tensor([list(b"a small model")])
    >>> model(text).shape
    torch.Size([1, 13, 256])
    >>> logits, loss = model(text[:, :-1], text[:, 1:])
    """

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.d_model)
        self.places = added_positions(config)
        self.dropout = nn.Dropout(config.dropout)
        turned = attention_positions(config)
        self.turns = turned is not None
        self.stack = blocks.stack(config, positions=turned)
        self.output = None if config.tied else nn.Linear(config.d_model, config.vocabulary, bias=False)
        self.mask = causal() if config.window is None else window(config.window)
        nn.init.normal_(self.tokens.weight, std=0.02)
        if self.output is not None:
            nn.init.normal_(self.output.weight, std=0.02)

    def forward(
        self, tokens: torch.Tensor, targets: torch.Tensor | None = None, *, cache=None, rows=None, mask=None, positions=None
    ):
        """tokens (B, n) -> logits (B, n, vocabulary); with targets (B, n), (logits, loss): the mean cross-entropy in nats.

        Targets of -100 count nothing. cache: what `cache` made; the tokens then follow those that it has seen, and rows (B,)
        says how many of them each sequence takes where they differ, what follows being padding. mask: a rule beside the model's
        own, such as rg.documents(…) for packed documents. positions (n,) or (B, n): where the tokens stand.
        """
        logits = self.head(self.hidden(tokens, cache=cache, rows=rows, mask=mask, positions=positions))
        if targets is None:
            return logits
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)

    def hidden(self, tokens: torch.Tensor, *, cache=None, rows=None, mask=None, positions=None) -> torch.Tensor:
        """The rows (B, n, d_model) of which `head` makes logits; the arguments as for the call."""
        self._check(tokens, cache, rows, positions)
        places = standing(tokens, cache, rows) if positions is None else positions
        x = self.dropout(self.places.embed(self.tokens(tokens), places))
        caches = cache if rows is None else [Taking(each, rows) for each in cache]
        return self.stack(x, mask=self.mask if mask is None else self.mask & mask, cache=caches,
                          positions=places if self.turns else None)  # fmt: skip

    def head(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (…, vocabulary) of rows (…, d_model)."""
        return nn.functional.linear(x, self.tokens.weight) if self.output is None else self.output(x)

    def cache(self, batch: int = 1) -> list:
        """An empty cache for each layer: what the call takes as cache= to go on where it stopped."""
        config, table = self.config, self.tokens.weight
        return [cache_for(table, config.kv_heads or config.heads, config.d_model // config.heads, batch=batch, window=config.window)
                for _ in range(config.layers)]  # fmt: skip

    def _check(self, tokens: torch.Tensor, cache, rows, positions) -> None:
        """Tokens that can be read, and no argument that would have no meaning."""
        reasons = []
        if tokens.ndim != 2 or tokens.dtype.is_floating_point or tokens.dtype in (torch.bool, torch.complex64):
            reasons.append(Reason("these are no tokens", f"{tokens.dtype} {tuple(tokens.shape)}", "whole numbers (B, n)",
                                  "one text alone is tokens[None]"))  # fmt: skip
        if cache is not None and len(cache) != self.config.layers:
            reasons.append(Reason("the cache is of another model", f"{len(cache)} layers", f"{self.config.layers} layers",
                                  "pass what model.cache(batch) made"))  # fmt: skip
        if cache is None and rows is not None:
            reasons.append(Reason("rows without a cache", "rows=", "the cache that takes them",
                                  "leave rows out: padding on the right changes nothing before it"))  # fmt: skip
        if cache is not None and positions is not None:
            reasons.append(
                Reason("the cache knows where its tokens stand", "positions=", "positions=None", "leave positions out")
            )
        if reasons:
            raise Refused("LanguageModel", reasons)


def added_positions(config: Config) -> Position:
    """What tells the tokens before the first layer where they stand."""
    if config.positions == "learned":
        return Learned(config.context, config.d_model)
    return Sinusoidal(config.d_model) if config.positions == "sinusoidal" else Position()


def attention_positions(config: Config) -> Position | None:
    """What tells the attention of every layer where the tokens stand."""
    if config.positions == "rotary":
        return Rotary(config.d_model // config.heads, base=config.rotary_base)
    if config.positions == "alibi":
        from ..torch.positions import ALiBi

        return ALiBi(config.heads)
    return None


def standing(tokens: torch.Tensor, cache=None, rows=None) -> torch.Tensor:
    """Where tokens (B, n) stand: 0 … n - 1, or (B, n) where they follow what a cache has seen; padding stands at the last row."""
    ahead = torch.arange(tokens.shape[1], device=tokens.device)
    if cache is None or not cache:
        return ahead
    if rows is not None:
        ahead = torch.minimum(ahead, torch.as_tensor(rows, device=tokens.device)[:, None] - 1).clamp(min=0)
    return torch.as_tensor(cache[0].lengths, device=tokens.device)[:, None] + ahead
