"""Profiles the attention of a model, and traces the origin of a NaN and of an error, without changing the model.

A small transformers language model is profiled with torch's attention and with regard, forward and backward. Then one
weight is set to NaN, and a trace finds the layer. Then a mask has the wrong size, and the trace reports the call.

    python examples/profiling.py [folder for the timelines]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import regard as rg
import regard.torch
import regard.torch.hf

torch.manual_seed(0)
regard.torch.hf.register()
folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
config = LlamaConfig(
    vocab_size=256,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
model = LlamaForCausalLM(config).eval()
inputs = {"input_ids": torch.arange(256)[None]}

for implementation in ("sdpa", "regard"):
    model.set_attn_implementation(implementation)
    profile = regard.torch.profile(model, inputs, backward=True, repeats=3)
    print(profile)
    file = profile.save(folder / f"{implementation}.json")
    print(f"open {file} in https://ui.perfetto.dev\n")
print(f"or: tensorboard --logdir {profile.tensorboard(folder / 'logs').parent}\n")

with torch.no_grad():
    model.model.layers[1].mlp.up_proj.weight[7, 3] = torch.nan
print(regard.torch.trace(model, inputs).first("number"), "\n")

q = torch.randn(1, 4, 6, 32)
try:
    regard.torch.trace(lambda: rg.attention(q, q, q, mask=torch.ones(6, 7, dtype=torch.bool)), ())
except rg.Refused as refused:
    print(refused)
    print(*refused.__notes__, sep="\n")
