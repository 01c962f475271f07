"""The summary in the terminal: what one token attends to, and the heads that detectors find."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from ..common.text.characters import fitting
from ..common.text.units import counted
from .detection import KINDS, Collected, HeadScore, HeadScores
from .runs.axis import Axis, named
from .runs.call import Call
from .runs.detectors import ROWS
from .runs.labels import size, visible, words
from .runs.run import Run

if TYPE_CHECKING:
    from .runs.first_view import Choice

LISTED = 4  # keys
COMPARED = 25_000_000  # weights of all heads, up to which two runs are compared row by row
WIDTH = 30  # of a bar
BEST = 3  # heads for each detector


def summary(console: Console, run: Run, choice: Choice) -> None:
    """Prints what the chosen token attends to, why this head was chosen, and the heads of each detector: 15 lines."""
    heads = max(call.shape[0] for call in run.calls)
    sizes = " · ".join(size(name, len(axis)) for name, axis in run.axes.items())
    calls = f"{counted(len(run.calls), 'attention call')} × {counted(heads, 'head')}"
    console.print(Text(f"{visible(run.model)} · {calls} · {sizes}", "bold"))
    call = run.calls[choice.call]
    both = [of(heads=choice.head, rows=choice.query)[0, 0] for of in (call.weights, call.others)]
    console.print(Text.assemble((f"{_place(call)}, head {choice.head}", "bold"), ": ", _sentence(run, choice, *both)))
    console.print(Text(choice.why, "dim"))
    console.print(_row(run, choice, "█" if console.encoding.startswith("utf") else "#", *both))
    console.print(_detectors(run))


def changes(console: Console, run: Run, other: Run) -> None:
    """Prints where two runs differ most: the head and row whose weights do, by half the sum of their absolute
    differences; of texts or models of other sizes, the head whose figures do.
    """
    pairs = list(zip(run.calls, other.calls, strict=False))
    same = [call.shape for call in run.calls] == [call.shape for call in other.calls]
    if same and sum(math.prod(call.shape) for call in run.calls) <= COMPARED:
        apart = [np.abs(np.nan_to_num(b.weights() - a.weights())) for a, b in pairs]
        at = max(range(len(apart)), key=lambda number: apart[number].sum(-1).max())
        head, row = np.unravel_index(apart[at].sum(-1).argmax(), apart[at].shape[:2])
        here, key = apart[at][head, row], int(apart[at][head, row].argmax())
        first, second = pairs[at]
        p, q = (call.weights(heads=head, rows=row)[0, 0, key] for call in (first, second))
        row_name, key_name = (
            f"“{named(run.axes[axis], at)}” ({at})" for axis, at in ((first.queries, int(row)), (first.keys, key))
        )
        what = f"{row_name} by {here.sum() / 2:.1%} of its weight; on {key_name}"
    else:
        titles = KINDS | {"special": "special tokens"}
        figures = [
            (np.abs(np.nan_to_num(b.figures[name][head] - a.figures[name][head])), at, head, name)
            for at, (a, b) in enumerate(pairs)
            for name in titles
            if name in a.figures and name in b.figures
            for head in range(min(a.shape[0], b.shape[0]))
        ]
        if not figures:
            return
        _, at, head, name = max(figures)
        p, q = (call.figures[name][head] for call in pairs[at])
        what = f"on {titles[name]}"
    console.print(
        Text.assemble(
            ("changes most: ", "bold"), f"{_place(pairs[at][0])}, head {head}: {what} from {p:.1%} to {q:.1%}"
        )
    )


def _place(call: Call) -> str:
    return visible(call.name) if call.layer is None else f"layer {call.layer}"


def _sentence(run: Run, choice: Choice, weights: np.ndarray, others: np.ndarray) -> str:
    """The strongest key of the chosen row, next to the mean of the other rows."""
    call = run.calls[choice.call]
    row = f"“{named(run.axes[call.queries], choice.query)}” ({choice.query})"
    if not np.isfinite(weights).all() or not weights.any():
        return f"{row} has no key with a valid weight"
    key = int(weights.argmax())
    beside = "" if np.isnan(others[key]) else f", the other rows {others[key]:.1%}"
    return f"{row} attends {weights[key]:.1%} to “{named(run.axes[call.keys], key)}” ({key}){beside}"


def _figure(name: str, value: float) -> str:
    return "—" if not np.isfinite(value) else f"{value:.1f}" if name == "distance" else f"{value:.0%}"


def _detectors(run: Run) -> Table:
    """For each well-known kind of head, the heads with the largest weight on its keys."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    own = {name for call in run.calls for name in call.figures} - {*ROWS, *KINDS}
    titles = KINDS | {name: name for name in sorted(own)}
    collected = Collected(titles)
    collected.add("", run)
    found = collected.scores()
    for name, title in titles.items():
        if best := found.best(name, BEST):
            rows = max(np.isfinite(call.rows[name]).sum(-1).max() for call in run.calls if name in call.rows)
            some = "" if name in ROWS else f" ({counted(int(rows), 'row')})"  # a mean of few rows says little
            table.add_row(f"most on {title}{some}", " · ".join(f"{score.name} {score.mean:.0%}" for score in best))
    return table


def _table(*columns: Column | str) -> Table:
    return Table(*columns, box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)


def _row(run: Run, choice: Choice, brick: str, weights: np.ndarray, others: np.ndarray) -> Table:
    """The keys with the largest weights in the chosen token's row, next to the mean of the other rows."""
    call = run.calls[choice.call]
    allowed = call.allowed(heads=choice.head, rows=choice.query)[0, 0]
    queries, keys = (run.axes[name] for name in (call.queries, call.keys))
    shown = {"weight": (weights, ""), "other rows": (others, "dim")}
    if call.lengths is not None:
        moves = weights * call.lengths[choice.head]
        shown["share of output"] = moves / (np.nansum(moves) or 1), "dim"
    order = np.flatnonzero(allowed)[np.argsort(-weights[allowed], kind="stable")]
    table = Table(box=None, header_style="", padding=(0, 1), pad_edge=False)
    table.add_column(
        Text.assemble("“", (_short(queries, choice.query), "bold"), "” attends to"), max_width=34, no_wrap=True
    )
    for title, (_, style) in shown.items():
        table.add_column(Text(title, "dim"), justify="right", style=style, no_wrap=True)
    table.add_column("")
    for key in order[:LISTED]:
        name = Text.assemble(_short(keys, key), (f"  {key}", "dim"))
        numbers = [f"{values[key]:.1%}" for values, _ in shown.values()]
        if np.isnan(others[key]):  # one row alone has no others
            numbers[1] = ""
        table.add_row(name, *numbers, _Bar(weights[key], brick))
    if len(order) > LISTED:
        rest = weights[order[LISTED:]].sum()
        more_keys = Text(counted(len(order) - LISTED, "more key"), style="dim")
        table.add_row(more_keys, f"{rest:.1%}", *[""] * (len(shown) - 1), _Bar(rest, brick))
    return table


def _short(axis: Axis, position: int) -> str:
    """The token as it fits in the table."""
    return fitting(named(axis, position), 20, cell_len)


@dataclass(frozen=True)
class _Bar:
    """A bar of at most `WIDTH` characters, or of the room there is; its end is in eighths if the terminal supports
    block characters.
    """

    share: float
    brick: str

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, WIDTH)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        room = min(WIDTH, options.max_width)
        eighths = round(max(0.0, min(1.0, float(np.nan_to_num(self.share)))) * room * 8)
        end = " ▏▎▍▌▋▊▉"[eighths % 8].strip() if self.brick == "█" else ""
        yield Text(self.brick * (eighths // 8) + end, style="cyan")


CELL = 9  # columns of the terminal for the score of a head


def head_table(console: Console, found: HeadScores) -> None:
    """Prints the heads with the largest mean of each detector, every head, and the texts that were left out."""
    heads = len(next(iter(found.scores.values())))
    sizes = counted(len(found.layers), "layer"), counted(heads, "head"), counted(found.texts, "text")
    console.print(Text(" · ".join((words(found.model), *sizes)), "bold"))
    console.print()
    console.print(_best(found))
    names = list(found.detectors)
    per_table = max(1, (console.width - 6) // (2 + max(CELL, *map(len, names))))
    for first in range(0, len(names), per_table):
        console.print()
        if not first:
            console.print(Text("every head: mean ± standard deviation over the texts, in %", "dim"))
        console.print(_every(found, names[first : first + per_table]))
    if found.left_out:
        console.print()
        console.print(Text(f"{counted(len(found.left_out), 'text')} left out", "yellow"))
        for name, reason in found.left_out:
            console.print(Text(f"  {words(name)}: {words(reason)}"), soft_wrap=True)


def _best(found: HeadScores) -> Table:
    table = _table()
    for title in ("detector", "weight on", "head", "mean", "sd", "texts", "most in"):
        right = title in ("head", "mean", "sd", "texts")
        table.add_column(title, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for name, keys in found.detectors.items():
        best = found.best(name, BEST)
        for place, score in enumerate(best):
            begin = (name, Text(keys)) if not place else ("", "")
            text = "" if not score.most else f"{words(score.most[0][0])} {score.most[0][1]:.0%}"
            figures = (_figure(name, value) for value in (score.mean, score.deviation))
            table.add_row(*begin, score.name, *figures, str(score.texts), Text(text))
        if not best:
            table.add_row(name, Text(keys), Text("—", "dim"), "", "", "0", "")
    return table


def _every(found: HeadScores, names: list[str]) -> Table:
    """One line for each head, and a column for each of these detectors."""
    table = _table(*(Column(name, justify="right", no_wrap=True) for name in ("head", *names)))
    for row in zip(*(found.scores[name] for name in names), strict=True):
        table.add_row(row[0].name, *(_cell(score) for score in row))
    return table


def _cell(score: HeadScore) -> Text:
    if not score.texts:
        return Text("—", "dim")
    spread = f" ±{100 * score.deviation:>2.0f}" if np.isfinite(score.deviation) else ""
    return Text(f"{100 * score.mean:.0f}{spread}")
