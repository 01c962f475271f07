"""What the same bits alone and in a batch cost: a Llama on regard inside `regard.torch.invariant`, next to itself.

python -m bench.invariance
"""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig

from regard.torch import invariant
from regard.torch.hf import register

from .families import LLAMA
from .interleave import Pace, interleaved, seconds

PACE = Pace(rounds=7, burst=0.5, pause=0.1)
STEPS = 8
TASKS = {"128 tokens": (1, 128), "2,048 tokens": (1, 2048), "16 × 128 tokens": (16, 128)}


def steps(model, texts: int):
    """A function that decodes after 128 tokens of each text."""
    cache = DynamicCache(config=model.config)
    model(torch.ones(texts, 128, dtype=torch.long), past_key_values=cache)
    token = torch.ones(texts, 1, dtype=torch.long)

    def run():
        for _ in range(STEPS):
            model(token, past_key_values=cache)
        cache.crop(-STEPS)

    return run


def whole(model, sizes: tuple[int, int]):
    """A function that computes the logits of texts."""
    ids = torch.ones(sizes, dtype=torch.long)
    return lambda: model(ids)


def inside(run):
    """The function inside a block of `invariant`."""

    def invariantly():
        with invariant():
            run()

    return invariantly


@torch.no_grad()
def main() -> None:
    register()
    for dtype in (torch.float32, torch.bfloat16):
        model = AutoModelForCausalLM.from_config(LlamaConfig(**LLAMA), attn_implementation="regard").to(dtype).eval()
        tasks = {name: whole(model, sizes) for name, sizes in TASKS.items()}
        tasks |= {f"{STEPS} steps of {texts} texts": steps(model, texts) for texts in (1, 16)}
        for name, run in tasks.items():
            spans = interleaved({"plain": run, "invariant": inside(run)}, PACE)
            plain, fixed = (seconds(each) for each in spans.values())
            print(
                f"{dtype}, {name}: {fixed * 1e3:.1f} ms, {plain * 1e3:.1f} without, {fixed / plain:.2f} ×", flush=True
            )


if __name__ == "__main__":
    main()
