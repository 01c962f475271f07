"""The rate of false alarms of `audit` on random healthy models: `python -m bench.audit_alarms --count 200`.

Every number makes one model, with its inputs and masks. Numbers that are divisible by 3 are held back: they are only
audited with --held-back, to measure what no change to the audits was made for.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import torch

from regard.audits import audit

from .of_torch import of_torch
from .of_transformers import of_transformers
from .written import written

SOURCES = {"written": written, "torch": of_torch, "transformers": of_transformers}


def healthy(number: int) -> tuple[str, Any, dict[str, Any]]:
    """The healthy model of a number: (where it is from, the model, the arguments of `audit`)."""
    choose = random.Random(number)
    torch.manual_seed(number)
    source = choose.choices(list(SOURCES), [3, 3, 4])[0]
    return (source, *SOURCES[source](choose))


def main() -> None:
    """Prints every alarm, and the rate by source."""
    parser = argparse.ArgumentParser(prog="python -m bench.audit_alarms", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="how many models")
    parser.add_argument("--first", type=int, default=0, help="the first number")
    parser.add_argument("--held-back", action="store_true", help="the models that are held back, instead of the others")
    options = parser.parse_args()
    torch.set_num_threads(1)
    numbers = (n for n in range(options.first, 1 << 30) if (n % 3 == 0) == options.held_back)
    counts: dict[str, list[int]] = {name: [0, 0] for name in SOURCES}
    for number, _ in zip(numbers, range(options.count)):
        start = time.perf_counter()
        source, model, arguments = healthy(number)
        result = audit(model, **arguments)
        counts[source][0] += 1
        counts[source][1] += not result.healthy
        if not result.healthy:
            shapes = {k: tuple(getattr(p, "shape", ())) for k, p in dict(_named(arguments.get("inputs"))).items()}
            print(f"{number} {type(model).__name__} {shapes} {time.perf_counter() - start:.1f} s", flush=True)
            for finding in result.findings:
                if finding.severity != "note":
                    print("  " + str(finding).replace("\n", "\n  "), flush=True)
    for source, (audited, alarms) in {**counts, "all": [sum(column) for column in zip(*counts.values())]}.items():
        print(f"{source}: {alarms} alarms in {audited} models" + (f", {alarms / audited:.1%}" if audited else ""))


def _named(inputs: Any) -> dict[str, Any]:
    if isinstance(inputs, dict):
        return inputs
    return {str(at): part for at, part in enumerate(inputs if isinstance(inputs, tuple) else [inputs])}


if __name__ == "__main__":
    main()
