"""Greedy generation of a trained language model, one forward pass for each token."""

from __future__ import annotations

from typing import Any

import torch

from ...common.text.units import counted
from ...models.training.checkpoint import Saved
from ...torch.cache import cache_for
from ..recording.keeper import Keeper
from ..runs.run import Step
from .tokens import axis_of

LIKELIEST = 8  # candidates that are stored for every generated token

Generated = tuple[list[int], list[torch.Tensor]]  # the tokens, and the logits of each


class Generation:
    """The most probable continuation. One token more than is recorded is generated, so that the last one has a row."""

    def __init__(self, saved: Saved, ids: list[int], tokens: int):
        self.saved, self.ids, self.tokens = saved, ids, tokens

    def run(self) -> Generated:
        """Calls the model with the prompt, then with each new token, until there are enough or the text ends."""
        model, cache = self.saved.model, self._cache()
        new: list[int] = []
        logits = [model(torch.tensor([self.ids]), cache=cache)[0, -1]]
        while True:
            new.append(int(logits[-1].argmax()))
            if len(new) > self.tokens or new[-1] == self.saved.vocabulary.end:
                return new, logits
            logits.append(model(torch.tensor([new[-1:]]), cache=cache)[0, -1])

    def after(self, generated: Generated, keeper: Keeper, known: dict[str, Any]) -> tuple[tuple[Step, ...], dict]:
        """Adds the generated tokens to the axis; returns the steps, and the facts: `known` and what was generated."""
        new, logits = generated[0][:-1], generated[1]  # the last token was not an input
        keeper.axes.known["text"] = axis_of(self.saved.vocabulary, [*self.ids, *new])
        steps = tuple(Step(len(self.ids) + i, self._candidates(logits[i])) for i in range(len(new)))
        facts = known | {"generated": len(new)}
        if len(new) < self.tokens:
            facts["stopped"] = f"the model generated an end token after {counted(len(new), 'token')}"
        return steps, facts

    def _cache(self) -> list[Any]:
        """A cache for each layer that keeps every key: the mask alone applies the window of the model."""
        model = self.saved.model
        config, table = model.config, model.embed.tokens.weight
        groups, depth = config.kv_heads or config.heads, config.d_model // config.heads
        return [cache_for(table, groups, depth) for _ in range(config.layers)]

    def _candidates(self, logits: torch.Tensor) -> tuple[tuple[str, float], ...]:
        found = logits.double().softmax(-1).topk(min(LIKELIEST, len(logits)))
        words = axis_of(self.saved.vocabulary, found.indices.tolist()).tokens
        return tuple(zip(words, found.values.tolist(), strict=True))
