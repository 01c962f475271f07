"""How many packages and files a call visits: `python -m tests.project.walks` prints the table of
docs/explanation/architecture.md.

A walk is the sequence of files in which the interpreter is while regard works: stays counts the changes of file, calls
and returns alike; climbs counts those among them that lead to a package on a higher layer.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import regard as rg
from tests.project.measure import layer_of

ROOT = Path(rg.__file__).parent


class Walk(NamedTuple):
    """What is counted."""

    files: int
    packages: int
    stays: int
    climbs: int


def walk(work: Callable[[], object]) -> Walk:
    """The walk of one call; it is made once before, so that nothing is loaded or compiled."""
    work()
    trail: list[str] = []

    def event(frame, what, _):
        if what == "return":
            frame = frame.f_back
        name = frame.f_code.co_filename if frame is not None and what in ("call", "return") else ""
        if name.startswith(str(ROOT)) and (not trail or trail[-1] != name):
            trail.append(name)

    sys.setprofile(event)
    try:
        work()
    finally:
        sys.setprofile(None)
    names = [".".join(("regard", *Path(name).relative_to(ROOT).with_suffix("").parts)) for name in trail]
    layers = [layer_of(name) for name in names]
    climbs = sum(after > before for before, after in itertools.pairwise(layers))
    return Walk(len(set(names)), len({name.split(".")[1] for name in names}), len(names), climbs)


def works() -> dict[str, Callable[[], object]]:
    """Five walks: through attention, through autograd, through transformers, from a look to its page, and an audit."""
    import torch
    from transformers import AutoModel, LlamaConfig

    import regard.audits
    import regard.lens
    import regard.torch.hf
    from regard.lens.viewer import page

    random = np.random.default_rng(0)
    q, k, v = random.standard_normal((3, 2, 64, 16), dtype=np.float32)
    tensors = [torch.randn(1, 2, 64, 16, requires_grad=True) for _ in range(3)]
    regard.torch.hf.register()
    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    config = LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=2)
    llama = AutoModel.from_config(config, attn_implementation="regard").eval()
    tokens = torch.arange(12)[None]

    return {
        # Another mask in every call, so that it is planned and not only repeated.
        "`rg.attention`, NumPy, a new mask": lambda: rg.attention(
            q, k, v, mask=rg.causal() & rg.window(int(random.integers(8, 60)))
        ),
        "`rg.attention` with torch's autograd": lambda: (
            rg.attention(*tensors, mask=rg.causal() & rg.window(9)).sum().backward()
        ),
        "a transformers model on `regard.torch.hf`": torch.no_grad()(lambda: llama(tokens)),
        "`rg.look`, to the page": lambda: page(rg.look(None, "The cat sat.")),
        "`rg.audit`, to the findings": lambda: rg.audit(llama, inputs={"input_ids": tokens}),
    }


if __name__ == "__main__":
    print("| walk | files | packages | stays | climbs |\n|---|---|---|---|---|")
    for name, work in works().items():
        print(f"| {name} | {' | '.join(map(str, walk(work)))} |")
