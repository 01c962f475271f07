"""Learning: trains a small language model on Python's standard library with regard and with SDPA, interleaved by step.

The third model is the second with another seed: their difference shows how much the losses vary by chance.
"""

from __future__ import annotations

import statistics
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Learned", "measure"]

SETTINGS: dict[str, Any] = {
    "tokenizer": "bytes",
    "layers": 4,
    "width": 256,
    "heads": 4,
    "context": 256,
    "batch": 8,
    "learning_rate": 2e-3,
    "warmup": 20,
}
NAMES = {"regard": 1, "sdpa": 1, "sdpa, another seed": 2}


@dataclass(frozen=True)
class Learned:
    """One model: tokens per second (by the median step), and the final training and held-out losses (nats)."""

    name: str
    tokens: float
    loss: float
    held_out: float


def measure(steps: int, progress: Callable[[str], None]) -> list[Learned]:
    """All three models, interleaved by step; the training loss is the mean over the last tenth of the steps."""
    from regard.models.training import run

    source = Path(sysconfig.get_path("stdlib")) / "*.py"
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            name: run.begin(
                Path(folder, str(place)), [source], SETTINGS | {"seed": seed, "steps": steps, "eval_every": steps}
            )
            for place, (name, seed) in enumerate(NAMES.items())
        }
        for name, learning in runs.items():
            if name != "regard":
                _on_sdpa(learning.model)
        lines: dict[str, list[dict]] = {name: [] for name in runs}
        spent: dict[str, list[float]] = {name: [] for name in runs}
        iterators = {name: iter(learning) for name, learning in runs.items()}
        for number in range(steps):
            progress(f"learning: step {number + 1} of {steps}")
            for name, iterator in iterators.items():
                began = time.perf_counter()
                lines[name].append(next(iterator))
                spent[name].append(time.perf_counter() - began)
        # The first step compiles, and the last also evaluates and saves.
        speeds = {name: runs[name].tokens_per_step / statistics.median(each[1:-1]) for name, each in spent.items()}
        return [_summed(name, speeds[name], each) for name, each in lines.items()]


def _summed(name: str, speed: float, lines: list[dict]) -> Learned:
    last = lines[-max(len(lines) // 10, 1) :]
    return Learned(name, speed, sum(line["loss"] for line in last) / len(last), lines[-1]["held_out"])


def _on_sdpa(model) -> None:
    """Replaces the attention of every layer by torch's SDPA."""
    import torch

    from regard.torch.layers import Attention

    def attend(q, k, v, *, mask, score, sinks):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
        )

    for module in model.modules():
        if isinstance(module, Attention):
            module.attend = attend  # type: ignore[assignment]  # it supports only what these models need
