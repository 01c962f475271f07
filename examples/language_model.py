"""Trains a language model on the source code of Python's standard library, and generates some code.

    python examples/language_model.py                # about two minutes on two cores
    python examples/language_model.py --steps 2000   # resume from there

The same on the command line: regard train "/usr/lib/python3.11/*.py" --out stdlib-model --tokenizer bpe
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import time
from pathlib import Path

from regard.models import stream
from regard.models.data.vocabulary import Decoder
from regard.models.training import checkpoint, run
from regard.models.training.run import curve

SHAPE = {"tokenizer": "bpe", "vocabulary": 1024, "layers": 4, "width": 128, "heads": 4, "kv_heads": 2, "context": 128}
RECIPE = {"batch": 12, "learning_rate": 3e-3, "warmup": 50, "eval_every": 100}
PROMPT = "def "


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--out", type=Path, default=Path("stdlib-model"))
    options = parser.parse_args(arguments)

    if (options.out / checkpoint.NAME).is_file():
        learning = run.resume(options.out, [], {"steps": options.steps})
    else:
        source = Path(sysconfig.get_path("stdlib"))
        learning = run.begin(options.out, [source / "*.py"], {**SHAPE, **RECIPE, "steps": options.steps})
    weights = sum(weight.numel() for weight in learning.model.parameters())
    print(
        f"{len(learning.learned):,} tokens of {len(learning.files)} files, {weights:,} parameters, starting at step "
        f"{learning.done}"
    )

    began, first = time.monotonic(), learning.done
    for line in learning:
        if "held_out" in line:
            speed = (learning.done - first) * learning.tokens_per_step / (time.monotonic() - began)
            print(
                f"step {line['step']:4}  loss {line['loss']:.3f}  held out {line['held_out']:.3f} "
                f"({line['bits_per_byte']:.2f} bits per byte)  {speed:,.0f} tokens/s"
            )

    held = [(line["step"], line["held_out"]) for line in learning.metrics if "held_out" in line]
    print(*curve([(line["step"], line["loss"]) for line in learning.metrics], held), sep="\n")

    print(f"\nGenerated after {PROMPT!r}:\n")
    decoder = Decoder(learning.vocabulary)
    print(PROMPT, end="")
    prompt = learning.vocabulary.encode(PROMPT).tolist()
    for _, token in stream(learning.model.eval(), [prompt], tokens=150, temperature=0.8, top_p=0.95, seed=1):
        print(decoder.more([token]), end="", flush=True)
    print(decoder.rest())


if __name__ == "__main__":
    main(*sys.argv[1:])
