"""SHAPES.md from the figures of a run: `regard bench --cases shapes --json figures.json`, then
`python bench/shapes_page.py figures.json "AMD EPYC (Zen 4), 2 cores" > bench/SHAPES.md`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from regard.bench.report import duration, ratio
from regard.bench.shapes import Timed, geometric_mean


def page(found: list[Timed], machine: str) -> str:
    """The page: the means, then every shape, losses first."""
    kinds = sorted({(each.dtype, each.task) for each in found})
    lines = [
        "# Every shape, losses first",
        "",
        "Shapes of real models, with masks passed as torch programs pass them, next to torch's"
        " `scaled_dot_product_attention`: the time of SDPA divided by that of regard, so that numbers below 1 are"
        " losses. Medians of 9 interleaved pairs of bursts in one run of `regard bench --cases shapes`, after a check"
        " that no result is less accurate than SDPA's.",
        "",
        f"Measured on {machine}.",
        "",
        "| dtype | task | geometric mean | below 1 |",
        "|---|---|---|---|",
    ]
    for kind in kinds:
        ratios = [each.ratio for each in found if (each.dtype, each.task) == kind]
        below = sum(each < 1 for each in ratios)
        lines.append(f"| {kind[0]} | {kind[1]} | {ratio(geometric_mean(ratios))} | {below} of {len(ratios)} |")
    lines += ["", "| shape | dtype | task | regard | SDPA | × |", "|---|---|---|---|---|---|"]
    for each in sorted(found, key=lambda each: each.ratio):
        times = f"{duration(each.regard)} | {duration(each.sdpa)} | {ratio(each.ratio)}"
        lines.append(f"| {each.shape} | {each.dtype} | {each.task} | {times} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    figures = json.loads(Path(sys.argv[1]).read_text())["shapes"]
    print(page([Timed(**each) for each in figures], sys.argv[2]), end="")
