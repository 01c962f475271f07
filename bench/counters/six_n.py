"""Shows how far 6·N·n, with and without 12·L·d·n², and the Trainer of transformers 5.23.0 are from GPT-2's training."""

from types import SimpleNamespace

import torch
from shown import pairs, shown
from transformers import GPT2Config, GPT2LMHeadModel, Trainer

import regard as rg

TOKENS, LAYERS, WIDTH, VOCABULARY = 1024, 12, 768, 50257
with torch.device("meta"):
    model = GPT2LMHeadModel(GPT2Config())
    ids = torch.zeros(1, TOKENS, dtype=torch.long)
N = model.num_parameters()
positions = TOKENS * WIDTH
trainer = Trainer.floating_point_ops(SimpleNamespace(model=model), {"input_ids": ids})
rule = 6 * N * TOKENS
square = 6 * (N - positions) * TOKENS + 12 * LAYERS * WIDTH * TOKENS**2
regard = rg.cost("gpt2", tokens=TOKENS, phase="train").flops
products = LAYERS * 12 * WIDTH * WIDTH + VOCABULARY * WIDTH  # weights that are multiplied; biases, norms are not
allowed = pairs(TOKENS, TOKENS, lambda query, key: key <= query)
brute = 3 * (2 * TOKENS * products + LAYERS * 4 * allowed * WIDTH)
shown(
    "transformers torch",
    {
        "6·N·n": rule,
        "Trainer.floating_point_ops": trainer,
        "6·N·n + 12·L·d·n²": square,
        "rg.cost": regard,
        "brute force": brute,
    },
    wrong=trainer == 6 * TOKENS * (N - positions - VOCABULARY * WIDTH) and len({rule, trainer, square, brute}) == 4,
    exact=regard == brute,
)
