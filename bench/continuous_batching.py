"""Many requests at once: tokens per second of transformers' continuous batching on regard, next to torch's SDPA.

python -m bench.continuous_batching [REQUESTS …]
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from regard.torch.hf import register

from .families import LLAMA

NEW, ROUNDS = 64, 3
LENGTHS = 64, 1024  # of the prompts


def tokens_per_second(model, prompts: list[list[int]]) -> float:
    """New tokens over the time of `generate_batch`, its preparation included."""
    rules = GenerationConfig(max_new_tokens=NEW, do_sample=False, eos_token_id=-1, pad_token_id=0)
    settings = ContinuousBatchingConfig(max_memory_percent=0.1, max_batch_tokens=2048)
    start = time.perf_counter()
    found = model.generate_batch(prompts, rules, settings)
    taken = time.perf_counter() - start
    return sum(len(each.generated_tokens) for each in found.values()) / taken


def main() -> None:
    register()
    random = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        model = AutoModelForCausalLM.from_config(LlamaConfig(**LLAMA, eos_token_id=None)).to(dtype).eval()
        for count in [int(word) for word in sys.argv[1:]] or [1, 4, 16, 64]:
            lengths = torch.randint(*LENGTHS, (count,), generator=random).tolist()
            prompts = [torch.randint(1, LLAMA["vocab_size"], (each,), generator=random).tolist() for each in lengths]
            speeds: dict[str, list[float]] = {"regard": [], "sdpa": []}
            for number in range(ROUNDS + 1):
                for name, found in speeds.items():
                    model.set_attn_implementation(name)
                    speed = tokens_per_second(model, prompts)
                    found += [speed] if number else []  # kernels are compiled in the first
            ours, theirs = (statistics.median(each) for each in speeds.values())
            print(
                f"{dtype}, {count} requests: {ours:.0f} tokens/s, SDPA {theirs:.0f}, {ours / theirs:.2f} ×", flush=True
            )


if __name__ == "__main__":
    main()
