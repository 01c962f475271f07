"""The summary in the terminal: a table of figures for all heads, and what one token attends to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from .choice import Choice
from .labels import visible
from .ramp import ramp
from .run import Run
from .stats import Statistics
from .survey import Survey

__all__ = ["summary"]

BLOCKS = {"spread": "entropy, % of the maximum", "special": "weight on special tokens, %", "distance": "mean distance, tokens"}
LISTED = 8


def summary(console: Console, run: Run, surveys: Sequence[Survey], choice: Choice) -> None:
    """Prints the run: figures per layer and head, then the chosen token's row in the chosen head."""
    heads = max(part.heads for part in run.layers)
    figures = [found.figures for found in surveys]
    console.print(_line(f"{run.model} · {len(run.layers)} layers × {heads} heads · {len(run.tokens)} tokens", bold=True))
    console.print()
    blocks = [block for name in BLOCKS for block in _blocks(name, figures, len(run.tokens), console.width)]
    console.print(Columns(blocks, padding=(1, 3)))
    console.print(_line("rows are layers, columns are heads", dim=True))
    console.print()
    figure = figures[choice.layer]
    console.print(Text.assemble(
        (f"layer {choice.layer}, head {choice.head}", "bold"),
        f" · entropy {figure.entropy[choice.head]:.2f} nats · special {figure.special[choice.head]:.0%}"
        f" · distance {figure.distance[choice.head]:.1f}"))  # fmt: skip
    console.print(_line(choice.why, dim=True))
    console.print()
    console.print(_row(run, choice, "█" if console.encoding.startswith("utf") else "#"))


def _line(words: str, **style) -> Text:
    return Text(words, style=Style(**style))


def _blocks(name: str, figures: Sequence[Statistics], n: int, width: int) -> list[Text]:
    """One line per layer, one cell per head: the figure, on the colour of its size. As many blocks as the width asks for."""
    unit, most = (1, max(1, n // 2)) if name == "distance" else (100, 1)
    shown = [[f"{unit * value:.0f}" if np.isfinite(value) else "·" for value in getattr(figure, name)] for figure in figures]
    cell = max(3, 1 + max(len(figure) for line in shown for figure in line))
    heads, at_once = max(map(len, shown)), max(1, (width - 4) // cell)
    blocks = []
    for first in range(0, heads, at_once):
        some = range(first, min(first + at_once, heads))
        block = Text(f"{BLOCKS[name]}\n")
        block.append("   " + "".join(f"{head:>{cell}}" for head in some), style="dim")
        for number, line in enumerate(shown):
            block.append(f"\n{number:>2} ", style="dim")
            for head in some:
                value = getattr(figures[number], name)[head] if head < len(line) else np.nan
                block.append(
                    f"{line[head] if head < len(line) else '':>{cell}}", style=_colour(float(np.nan_to_num(value)) / most)
                )
        blocks.append(block)
    return blocks


def _colour(share: float) -> Style:
    red, green, blue = (int(part) for part in ramp("dark")[round(255 * min(1.0, max(0.0, share)))])
    bright = 0.3 * red + 0.59 * green + 0.11 * blue > 130
    return Style(color="#1b1d24" if bright else "#fbfaf6", bgcolor=f"#{red:02x}{green:02x}{blue:02x}")


def _row(run: Run, choice: Choice, brick: str) -> Table:
    """The keys that the chosen token gives most to."""
    _, found, seen = run.layers[choice.layer].part(slice(choice.token, choice.token + 1))
    weights, seen = found[choice.head, 0], seen[choice.head, 0]
    order = np.flatnonzero(seen)[np.argsort(-weights[seen], kind="stable")]
    table = Table(box=None, show_header=True, header_style="", padding=(0, 1), pad_edge=False)
    table.add_column(
        Text.assemble("“", (visible(run.tokens[choice.token]), "bold"), "” attends to"), max_width=34, no_wrap=True
    )
    table.add_column("", justify="right")
    table.add_column("")
    for key in order[:LISTED]:
        table.add_row(
            Text.assemble(visible(run.tokens[key]), (f"  {key}", "dim")), f"{weights[key]:.1%}", _bar(weights[key], brick)
        )
    if len(order) > LISTED:
        rest = weights[order[LISTED:]].sum()
        table.add_row(Text(f"{len(order) - LISTED} others", style="dim"), f"{rest:.1%}", _bar(rest, brick))
    if not seen.all():
        table.add_row(Text(f"{(~seen).sum()} are masked", style="dim"))
    return table


def _bar(share: float, brick: str, width: int = 30) -> Text:
    """A bar of so many bricks at most, its end in eighths of one where the terminal has the letters for it."""
    eighths = round(max(0.0, min(1.0, float(np.nan_to_num(share)))) * width * 8)
    end = " ▏▎▍▌▋▊▉"[eighths % 8].strip() if brick == "█" else ""
    return Text(brick * (eighths // 8) + end, style="cyan")
