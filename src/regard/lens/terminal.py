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
    blocks = [_block(name, title, figures, heads, len(run.tokens), console.width) for name, title in BLOCKS.items()]
    console.print(Columns(blocks, padding=(1, 3)), crop=False)
    console.print(_line("rows are layers, columns are heads", dim=True))
    console.print()
    figure = figures[choice.layer]
    console.print(Text.assemble(
        (f"layer {choice.layer}, head {choice.head}", "bold"),
        f" · entropy {figure.entropy[choice.head]:.2f} nats · special {figure.special[choice.head]:.0%}"
        f" · distance {figure.distance[choice.head]:.1f}"))  # fmt: skip
    console.print(_line(choice.why, dim=True))
    console.print()
    console.print(_row(run, choice))


def _line(words: str, **style) -> Text:
    return Text(words, style=Style(**style))


def _block(name: str, title: str, figures: Sequence[Statistics], heads: int, n: int, width: int) -> Text:
    """One line per layer, one cell per head: the figure, on the colour of its size."""
    cell = 3 if 4 + 3 * heads <= width else 2
    block = Text(f"{title}\n", no_wrap=True, overflow="ignore")
    block.append("   " + "".join(f"{head % 10 ** (cell - 1):>{cell}}" for head in range(heads)), style="dim")
    most = max(1, n // 2) if name == "distance" else 1
    for number, figure in enumerate(figures):
        block.append(f"\n{number:>2} ", style="dim")
        for value in getattr(figure, name):
            known = float(np.nan_to_num(value))
            shown = min(round(known if name == "distance" else 100 * known), 10**cell - 1)
            block.append(f"{shown if np.isfinite(value) else '·':>{cell}}", style=_colour(known / most))
    return block


def _colour(share: float) -> Style:
    red, green, blue = (int(part) for part in ramp("dark")[round(255 * min(1.0, max(0.0, share)))])
    bright = 0.3 * red + 0.59 * green + 0.11 * blue > 130
    return Style(color="#1b1d24" if bright else "#fbfaf6", bgcolor=f"#{red:02x}{green:02x}{blue:02x}")


def _row(run: Run, choice: Choice) -> Table:
    """The keys that the chosen token gives most to."""
    weights = np.asarray(run.layers[choice.layer].weights(slice(choice.token, choice.token + 1)), float)[choice.head, 0]
    order = np.argsort(-weights, kind="stable")[:LISTED]
    table = Table(box=None, show_header=True, header_style="", padding=(0, 1), pad_edge=False)
    table.add_column(
        Text.assemble("“", (visible(run.tokens[choice.token]), "bold"), "” attends to"), max_width=34, no_wrap=True
    )
    table.add_column("", justify="right")
    table.add_column("")
    for key in order:
        table.add_row(Text.assemble(visible(run.tokens[key]), (f"  {key}", "dim")), f"{weights[key]:.1%}", _bar(weights[key]))
    if len(weights) > LISTED:
        rest = weights.sum() - weights[order].sum()
        table.add_row(Text(f"{len(weights) - LISTED} others", style="dim"), f"{max(rest, 0.0):.1%}", _bar(rest))
    return table


def _bar(share: float, width: int = 30) -> Text:
    """A bar in eighths of a cell."""
    eighths = round(max(0.0, min(1.0, float(np.nan_to_num(share)))) * width * 8)
    return Text("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip(), style="cyan")
