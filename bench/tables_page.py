"""SHAPES.md and FAMILIES.md from the figures of a run: `regard bench --cases shapes --json figures.json`, then
`python bench/tables_page.py shapes figures.json "an AMD EPYC (Zen 4), 2 cores" > bench/SHAPES.md`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from regard.bench.interleave import Timed, means
from regard.bench.report import duration, ratio

PAGES = {
    # name: (title, what is compared, first column)
    "shapes": (
        "Every shape, losses first",
        "Shapes of real models, with masks passed as torch programs pass them, next to torch's"
        " `scaled_dot_product_attention`",
        "shape",
    ),
    "families": (
        "Every family, losses first",
        'Whole transformers models at their real sizes with random weights, with `attn_implementation="regard"` next'
        ' to `"sdpa"`',
        "model",
    ),
}


def page(name: str, found: list[Timed], machine: str) -> str:
    """The page: the means, then every measurement, losses first."""
    title, compared, first = PAGES[name]
    lines = [
        f"# {title}",
        "",
        f"{compared}: the time of SDPA divided by that of regard, so that numbers below 1 are"
        f" losses. Medians of 9 interleaved pairs of bursts in one run of `regard bench --cases {name}`, after a check"
        " that no result is less accurate than SDPA's.",
        "",
        f"Measured on {machine}.",
        "",
        "| dtype | task | geometric mean | below 1 |",
        "|---|---|---|---|",
    ]
    for mean in means(found):
        lines.append(f"| {mean.dtype} | {mean.task} | {ratio(mean.ratio)} | {mean.below} of {mean.total} |")
    lines += ["", f"| {first} | dtype | task | regard | SDPA | × |", "|---|---|---|---|---|---|"]
    for each in sorted(found, key=lambda each: each.ratio):
        times = f"{duration(each.regard)} | {duration(each.sdpa)} | {ratio(each.ratio)}"
        lines.append(f"| {each.name} | {each.dtype} | {each.task} | {times} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    name, file, machine = sys.argv[1:]
    figures = json.loads(Path(file).read_text())[name]
    print(page(name, [Timed(**each) for each in figures], machine), end="")
