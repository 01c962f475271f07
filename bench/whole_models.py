"""Whole models: the same transformers model on regard and on SDPA, checked, then timed in interleaved bursts.

The model is a Llama of 8 layers, width 512, 8 heads of depth 64, a feed-forward width of 1376, and a vocabulary of
1000, which is small so that the layers dominate the time.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from regard.language.masks import causal

from .interleave import Pace, interleaved, seconds

__all__ = ["STEPS", "TASKS", "Timed", "decode", "measure", "missing"]

STEPS = 16  # tokens per timed call of decoding
TOLERANCE = 1e-3  # relative to the largest logit: eight layers in float32, with another order of sums
TASKS = {
    # name: (tokens, window, kind of task)
    "prefill, 4096 tokens": (4096, None, "prefill"),
    "training step, 4096 tokens": (4096, None, "train"),
    "prefill, 4096 tokens, window 256": (4096, 256, "prefill"),
    "training step, 4096 tokens, window 256": (4096, 256, "train"),
    "decoding after 4096 tokens": (4096, None, "decode"),
    "prefill, 128 tokens": (128, None, "prefill"),
    "training step, 128 tokens": (128, None, "train"),
    "decoding after 128 tokens": (128, None, "decode"),
}


@dataclass(frozen=True)
class Timed:
    """One task: seconds on regard and on SDPA, and their difference (relative to the largest logit)."""

    task: str
    regard: float
    sdpa: float
    difference: float

    @property
    def ratio(self) -> float:
        return self.sdpa / self.regard


def missing() -> list[str]:
    """The required packages that are not installed."""
    return [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]


def measure(
    pace: Pace, progress: Callable[[str], None], tasks: list[str] | None = None, shrink: int = 1
) -> list[Timed]:
    """Every task on both implementations; shrink divides the number of tokens, for a quick test."""
    found = []
    for name in tasks or TASKS:
        tokens, window, kind = TASKS[name]
        progress(f"model: {name}")
        found.append(_task(name, max(tokens // shrink, STEPS), window, kind, pace))
    return found


def overhead(pace: Pace) -> float:
    """Seconds of a call of regard.torch.attention with a negligible kernel: one row, one key, depth 8."""
    import torch

    from regard.torch import attention

    q, mask = torch.zeros(1, 1, 1, 8), causal()
    return (
        seconds(interleaved({"call": lambda: [attention(q, q, q, mask=mask) for _ in range(100)]}, pace)["call"]) / 100
    )


def _task(name: str, tokens: int, window: int | None, kind: str, pace: Pace) -> Timed:
    import torch

    models = {implementation: _model(window, implementation) for implementation in ("regard", "sdpa")}
    text = torch.from_numpy(np.random.default_rng(0).integers(0, 1000, (1, tokens)))
    with torch.no_grad():
        ours, theirs = (model(text).logits for model in models.values())
    difference = float((ours - theirs).abs().max() / theirs.abs().max())
    if not difference < TOLERANCE:
        raise ArithmeticError(f"{name}: the logits differ by {difference:.1e}, relative to the largest")
    make = {"prefill": _prefill, "train": _train, "decode": decode}[kind]
    spans = interleaved({implementation: make(model, text) for implementation, model in models.items()}, pace)
    share = STEPS if kind == "decode" else 1
    return Timed(name, seconds(spans["regard"]) / share, seconds(spans["sdpa"]) / share, difference)


def _model(window: int | None, implementation: str):
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig

    from regard.torch.hf import attention as hf

    hf.register()
    shape = {
        "vocab_size": 1000,
        "hidden_size": 512,
        "intermediate_size": 1376,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
    }
    config = LlamaConfig(**shape) if window is None else MistralConfig(**shape, sliding_window=window)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation=implementation)


def _prefill(model, text) -> Callable[[], object]:
    import torch

    model.eval()

    def call():
        with torch.no_grad():
            return model(text)

    return call


def _train(model, text) -> Callable[[], object]:
    """Forward, backward and a step of AdamW."""
    import torch

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def call():
        optimizer.zero_grad(set_to_none=True)
        model(text, labels=text).loss.backward()
        optimizer.step()

    return call


def decode(model, text) -> Callable[[], list]:
    """Decodes the first tokens of the text again, one by one after the cached text, then crops the cache; returns their
    logits.
    """
    import torch

    model.eval()
    with torch.no_grad():
        cache = model(text, use_cache=True).past_key_values

    def call():
        with torch.no_grad():
            logits = [
                model(text[:, number : number + 1], past_key_values=cache, use_cache=True).logits
                for number in range(STEPS)
            ]
        cache.crop(-STEPS)
        return logits

    return call
