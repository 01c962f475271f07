"""Inspects attention: of arrays with 50,000 rows, of an unmodified torch module, and of a model that generates text.

No n × n matrix is stored: weights and statistics are computed from q, k and lse when they are requested.

    python examples/looking.py [folder for the pages and the run]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import regard as rg
from regard.lens.viewer import page

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
folder.mkdir(exist_ok=True)

n = 50_000
q, k = np.random.default_rng(0).standard_normal((2, 1, n, 16), dtype=np.float32)
q[0, 40_000] *= 8  # one row with a large weight
start = time.perf_counter()
run = rg.look(q, k=k, mask=rg.causal())
call = run.calls[0]
print(
    f"{n:,} rows, statistics of all of them in {time.perf_counter() - start:.1f} s; the matrix would need "
    f"{4e-9 * n * n:.0f} GB"
)
row = int(call.rows["maximum"][0, 1000:].argmax()) + 1000
key = int(call.rows["strongest"][0, row])
print(f"largest weight from row 1,000 on: {row:,} -> {key:,}, {call.weights(rows=[row], keys=[key]).item():.1%}\n")

layer = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).eval()
run = rg.look(layer, inputs=torch.randn(1, 20, 64))
print(f"{run.calls[0].name}: computed by {run.calls[0].engine}")
print(f"entropy of its heads: {run.calls[0].figures['entropy'].round(2)} nats (maximum {np.log(20):.2f})")
(folder / "layer.html").write_text(page(run), encoding="utf-8")

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
run = rg.look(LlamaForCausalLM(config).eval(), inputs={"input_ids": torch.arange(12)[None]}, generate=8).save(
    folder / "run"
)
print(f"\ngenerated: {' '.join(step.candidates[0][0] for step in run.steps)}")
rg.heatmap(run, call=1, title="layer 1").savefig(folder / "heads.png")
(folder / "generated.html").write_text(page(run), encoding="utf-8")
print(f"open {folder / 'generated.html'} in a browser, or run: regard look {folder / 'run'} --serve")
