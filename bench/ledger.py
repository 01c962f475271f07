"""Time and memory of `rg.cost` for a model of 70 billion parameters, beyond the imports: `python bench/ledger.py`."""

from __future__ import annotations

import resource
import sys
import time

FIELDS = {
    "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip


def main() -> None:
    """Prints a line for each phase: seconds, and megabytes that the process has grown by since its imports."""
    import transformers.models.llama.modeling_llama  # noqa: F401 (the model's code is an import, too)

    from regard.ledger import cost

    cost(FIELDS | {"num_hidden_layers": 1}, tokens=8, phase="train")  # what torch loads at its first operations
    before = _peak()
    for phase in ("prefill", "decode", "train"):
        start = time.perf_counter()
        found = cost(FIELDS, tokens=4096, phase=phase, dtype="bfloat16")
        seconds = time.perf_counter() - start
        print(f"{phase:8} {found.parameters.counted:,} parameters  {seconds:.2f} s  {_peak() - before:.0f} MB")


def _peak() -> float:
    """Megabytes: Linux counts kilobytes, macOS bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    main()
