"""SHAPES.md and FAMILIES.md from the figures of a run: `python -m bench --cases shapes --json > figures.json`, then
`python bench/tables_page.py shapes "an AMD EPYC (Zen 4), 2 cores" figures.json > bench/SHAPES.md`. Of several files, a
page has the geometric means, and the ratio of each run.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
from pathlib import Path

from bench.interleave import Timed, means
from bench.report import duration, ratio

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


def page(name: str, machine: str, *runs: list[Timed]) -> str:
    """The page: the means, then every measurement, losses first."""
    measured = {_what(of[0]): of for of in zip(*(sorted(run, key=_what) for run in runs), strict=True)}
    found = [_mean(of) for of in measured.values()]
    title, compared, first = PAGES[name]
    lines = [
        f"# {title}",
        "",
        f"{compared}: the time of SDPA divided by that of regard, so that numbers below 1 are"
        f" losses. Medians of 9 interleaved pairs of bursts in one run of `python -m bench --cases {name}`, after a"
        f" check that no result is less accurate than SDPA's.{_several(len(runs))}",
        "",
        f"Measured on {machine}.",
        "",
        "| dtype | task | geometric mean | below 1 |",
        "|---|---|---|---|",
    ]
    for mean in means(found):
        lines.append(f"| {mean.dtype} | {mean.task} | {ratio(mean.ratio)} | {mean.below} of {mean.total} |")
    last = " each run |" * (len(runs) > 1)
    lines += [
        "",
        f"| {first} | dtype | task | regard | SDPA | × |{last}",
        "|---|---|---|---|---|---|" + "---|" * bool(last),
    ]
    for each in sorted(found, key=lambda each: each.ratio):
        times = f"{duration(each.regard)} | {duration(each.sdpa)} | {ratio(each.ratio)}"
        own = ", ".join(ratio(of.ratio) for of in measured[_what(each)])
        lines.append(f"| {each.name} | {each.dtype} | {each.task} | {times} |" + f" {own} |" * bool(last))
    return "\n".join(lines) + "\n"


def _what(timed: Timed) -> tuple[str, str, str]:
    return timed.name, timed.dtype, timed.task


def _mean(of: tuple[Timed, ...]) -> Timed:
    """The geometric means of what several runs measured."""
    times = {side: statistics.geometric_mean(getattr(each, side) for each in of) for side in ("regard", "sdpa")}
    return dataclasses.replace(of[0], **times)


def _several(count: int) -> str:
    return f" Geometric means of {count} runs, whose ratios are in the last column." if count > 1 else ""


if __name__ == "__main__":
    name, machine, *files = sys.argv[1:]
    figures = [json.loads(Path(file).read_text())[name] for file in files]
    print(page(name, machine, *([Timed(**each) for each in run] for run in figures)), end="")
