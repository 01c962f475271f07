"""What asking costs: the effects of all heads of MiniLM next to hooks one by one and to the batched passes that the
entries need, and an intervention in one layer of a long text next to the plain pass.

python -m bench.what_if
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, LlamaConfig

import regard as rg
from regard.lens.interventions.effects import TOKENS
from regard.torch.hf import register
from regard.torch.hf.load_model import opened

from .families import LLAMA
from .interleave import Pace, interleaved, seconds

PACE = Pace(rounds=5, burst=0.1, pause=0.2)
LENGTH, LONG = 128, 16384


def one_by_one(model, inputs):
    """A function that takes one head away at a time, by a hook before the output projection."""

    def run():
        whole = model(**inputs).last_hidden_state
        for layer in model.encoder.layer:
            for head in range(model.config.num_attention_heads):
                columns = slice(32 * head, 32 * head + 32)

                def without(module, given, columns=columns):
                    kept = given[0].clone()
                    kept[..., columns] = 0
                    return (kept,)

                handle = layer.attention.output.dense.register_forward_pre_hook(without)
                F.cosine_similarity(model(**inputs).last_hidden_state, whole, dim=-1).mean()
                handle.remove()

    return run


def passes(model, inputs):
    """A function that runs as many copies of the text as there are heads, in the batches of `effects`."""
    count, most = model.config.num_hidden_layers * model.config.num_attention_heads, TOKENS // LENGTH
    sizes = [min(most, count - first) for first in range(0, count, most)]
    batches = [{name: part.expand(size, -1).contiguous() for name, part in inputs.items()} for size in sizes]
    return lambda: [model(**batch) for batch in batches]


def on(implementation, model, run):
    """The function with the model on another implementation of attention."""

    def switched():
        model.set_attn_implementation(implementation)
        run()

    return switched


@torch.no_grad()
def main() -> None:
    register()
    model = opened(None).model
    inputs = {"input_ids": torch.arange(LENGTH)[None] + 1000, "attention_mask": torch.ones(1, LENGTH, dtype=torch.long)}
    spans = interleaved(
        {
            "effects of 72 heads": on("regard", model, lambda: rg.effects(model, inputs=inputs)),
            "batched passes": on("regard", model, passes(model, inputs)),
            "hooks one by one": on("regard", model, one_by_one(model, inputs)),
            "hooks one by one, sdpa": on("sdpa", model, one_by_one(model, inputs)),
        },
        PACE,
    )
    report(f"MiniLM, {LENGTH} tokens", spans)
    long = AutoModelForCausalLM.from_config(LlamaConfig(**LLAMA), attn_implementation="regard").eval().model
    ids = torch.ones(1, LONG, dtype=torch.long)

    def cut():
        with rg.what_if(long, layer=3, head=1, mask=~((rg.query == 9000) & (rg.key == 200))):
            long(ids)

    report(f"Llama, {LONG:,} tokens", interleaved({"an edge of layer 3 cut": cut, "plain": lambda: long(ids)}, PACE))


def report(title: str, spans) -> None:
    """Prints each median with its ratio to the first."""
    found = {name: seconds(bursts) for name, bursts in spans.items()}
    first = next(iter(found.values()))
    print(title)
    for name, span in found.items():
        print(f"  {name:24} {span:8.3f} s  {span / first:5.2f}")


if __name__ == "__main__":
    main()
