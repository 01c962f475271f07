"""The summary in the terminal: what one token attends to, the matrix of its head, and figures of all heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from ...common.text.characters import fitting
from ...common.text.units import counted
from ..detection import KINDS, Collected, HeadScore, HeadScores
from ..runs.axis import Axis
from ..runs.call import Call
from ..runs.codes import FIRST, LEAK, MASKED, NAN, OUT
from ..runs.labels import named, visible, words
from ..runs.row_figures import ROWS
from ..runs.run import Run
from .heatmap import DECADES, SHORT, MatrixFigure, matrix_figure
from .ramp import ramp

if TYPE_CHECKING:
    from ..runs.first_view import Choice

BLOCKS = {
    "spread": "entropy, % of the maximum possible",
    "special": "weight on special tokens, %",
    "first": "weight on the first key, %",
    "distance": "distance, tokens",
}
TITLES = {
    "spread": "entropy",
    "special": "on special tokens",
    "moved_special": "special tokens in what moves",
    "first": "on the first key",
    "distance": "mean distance",
}
LISTED = 8
WIDTH = 30  # of a bar
BEST = 3  # heads for each detector
NAMED = 40  # rows: up to here, each has a line and a label
# From here on, the colors of the ramp have a relative luminance (WCAG 2) above 0.179, at which both have 4.58:1.
BRIGHT = 125
SHADES = " .:-=+*#%@"  # for terminals without colors
SIGNS = {MASKED: "·", NAN: "N", OUT: "!", LEAK: "L"}
ALARM = {NAN: "#ff4fa3", OUT: "#ffb02e", LEAK: "#ff4545"}


def summary(console: Console, run: Run, choice: Choice) -> None:
    """Prints the chosen token's row and the chosen head's matrix, then figures of every call and head."""
    heads = max(call.shape[0] for call in run.calls)
    sizes = " · ".join(_size(name, len(axis)) for name, axis in run.axes.items())
    calls = f"{counted(len(run.calls), 'attention call')} × {counted(heads, 'head')}"
    console.print(Text(f"{visible(run.model)} · {calls} · {sizes}", "bold"))
    console.print()
    _answer(console, run, choice)
    console.print()
    console.print(_detectors(run))
    console.print()
    known = {name for call in run.calls for name in call.figures} - {"first" if _marked(run) else "special"}
    shown = [name for name in BLOCKS if name in known]
    blocks = [block for name in shown for block in _blocks(name, run.calls, console.width)]
    console.print(Text("every head: rows are attention calls (layers), columns are heads", "dim"))
    console.print(Columns(blocks, padding=(1, 3)))


def _size(name: str, count: int) -> str:
    """The size of an axis in words; the name of an axis of plain positions already contains its size."""
    if name == "text":
        return counted(count, "token")
    return words(name) if name.startswith(f"{count} ") else f"{count} {words(name)}"


def _answer(console: Console, run: Run, choice: Choice) -> None:
    """What the chosen token attends to, why this head was chosen, and its matrix."""
    call = run.calls[choice.call]
    console.print(Text.assemble((f"{visible(call.name)}, head {choice.head}", "bold"), ": ", _sentence(run, choice)))
    console.print(Text(choice.why, "dim"))
    console.print()
    shown, row = matrix(run, choice.call, choice.head, console), _row(run, choice, "█" if _drawn(console) else "#")
    widest = max(len(line) for line in shown.plain.splitlines())
    if widest + 74 <= console.width:
        beside = Table.grid(padding=(0, 4))
        beside.add_row(shown, row)
        console.print(beside)
    else:
        console.print(row)
        console.print()
        console.print(shown)
    shown_figures = [name for name in TITLES if name in call.figures and ("special" not in name or _marked(run))]
    figures = [f"{TITLES[name]} {_figure(name, call.figures[name][choice.head])}" for name in shown_figures]
    if call.lengths is not None:
        figures.append(f"moves: the key’s share of Σ p·{call.notes.get('lengths', '‖v‖')}")
    console.print(Text(" · ".join(figures), "dim"))


def _sentence(run: Run, choice: Choice) -> str:
    """The strongest key of the chosen row, next to the mean of the other rows."""
    call = run.calls[choice.call]
    weights, others = (of(heads=choice.head, rows=choice.query)[0, 0] for of in (call.weights, call.others))
    row = f"“{named(run.axes[call.queries], choice.query)}” ({choice.query})"
    if not np.isfinite(weights).all() or not weights.any():
        return f"{row} has no key with a valid weight"
    key = int(weights.argmax())
    beside = "" if np.isnan(others[key]) else f"; the other rows {others[key]:.1%} on average"
    return f"{row} attends {weights[key]:.1%} to “{named(run.axes[call.keys], key)}” ({key}){beside}"


def matrix(run: Run, call: int, head: int, console: Console) -> Text:
    """The matrix of a head as characters: in color, or in shades if the terminal has no colors.

    A longer side is pooled to fit; masked pairs are dots, invalid weights are N, ! or L. The last line is the legend.
    """
    shown = run.calls[call]
    _, Q, K = shown.shape
    drawn = _drawn(console) and console.color_system in ("256", "truecolor")
    labeled = max(Q, K) <= NAMED and console.width >= 12 + (2 if drawn else 1) * K
    most = NAMED if labeled else max(8, min(64, console.width - 2))
    names = [named(run.axes[shown.queries], row) for row in range(Q)] if labeled else None
    found = matrix_figure(shown, head, range(Q), range(K), most, queries=names)
    text = Text(no_wrap=True)
    decades = DECADES["near" if K <= SHORT else "log"]
    least = {3: "0.1 %", 6: "10⁻⁶"}[decades]
    (_in_color if drawn else _in_characters)(text, found, decades)
    text.append(f"{'each cell is one weight' if found.exact == 'exact' else found.exact}; ", style="dim")
    if drawn:
        text.append(f"{least} ", style="dim")
        for part in range(16):
            text.append(" ", style=_color(part / 15))
        text.append(" 100 %", style="dim")
    else:
        text.append(f"{least} {SHADES[1:]} 100 %, {SIGNS[MASKED]} masked", style="dim")
    return text


def _in_color(text: Text, found: MatrixFigure, decades: int) -> None:
    """One line per row if rows have labels; otherwise one line per two rows, as half blocks."""
    colors = [[_ground(int(code), decades) for code in line] for line in found.codes]
    if found.queries is not None:
        for name, grounds in zip(found.queries, colors):
            _label(text, name)
            for color in grounds:
                text.append("  " if color else f"{SIGNS[MASKED]} ", style=Style(bgcolor=color) if color else "dim")
            text.append("\n")
        return
    for line in range(0, len(colors), 2):
        low = colors[line + 1] if line + 1 < len(colors) else [""] * found.codes.shape[1]
        for above, below in zip(colors[line], low):
            if not above and not below:
                text.append(SIGNS[MASKED], style="dim")
            elif not above:
                text.append("▄", style=Style(color=below))
            else:
                text.append("▀", style=Style(color=above, bgcolor=below or None))
        text.append("\n")


def _ground(code: int, decades: int) -> str:
    return ALARM.get(code, "" if code == MASKED else _hex(round(255 * _place(code, decades))))


def _place(code: int, decades: int) -> float:
    """The place of a code on a logarithmic scale of so many decades, 0 … 1; codes span six decades."""
    return max(0.0, 1 - (255 - code) / (255 - FIRST) * 6 / decades)


def _in_characters(text: Text, found: MatrixFigure, decades: int) -> None:
    for number, line in enumerate(found.codes):
        if found.queries is not None:
            _label(text, found.queries[number])
        text.append(
            "".join(
                SIGNS.get(code) or SHADES[math.ceil(_place(code, decades) * (len(SHADES) - 1))]
                for code in line.tolist()
            )
        )
        text.append("\n")


def _label(text: Text, word: str) -> None:
    """The label of a row, padded or cut to ten columns of the terminal."""
    shown = fitting(word, 10, cell_len)
    text.append(" " * (10 - cell_len(shown)) + shown + " ", style="dim")


def _drawn(console: Console) -> bool:
    return console.encoding.startswith("utf")


def _marked(run: Run) -> bool:
    return any(any(axis.special) for axis in run.axes.values())


def _figure(name: str, value: float) -> str:
    return "—" if not np.isfinite(value) else f"{value:.1f}" if name == "distance" else f"{value:.0%}"


def _blocks(name: str, calls: Sequence[Call], width: int) -> list[Text]:
    """One line per call, one cell per head: the figure, colored by its size; split into blocks that fit the width."""
    unit, most = (1, max(1, max(call.shape[2] for call in calls) // 2)) if name == "distance" else (100, 1)
    figures = [call.figures.get(name, np.full(call.shape[0], np.nan)) for call in calls]
    shown = [[f"{unit * value:.0f}" if np.isfinite(value) else "·" for value in figure] for figure in figures]
    cell = max(3, 1 + max(len(figure) for line in shown for figure in line))
    heads, per_block = max(map(len, shown)), max(1, (width - 4) // cell)
    blocks = []
    for first in range(0, heads, per_block):
        some = slice(first, first + per_block)
        block = Text(f"{BLOCKS[name]}\n")
        block.append("   " + "".join(f"{head:>{cell}}" for head in range(heads)[some]), style="dim")
        for number, (figure, line) in enumerate(zip(figures, shown, strict=True)):
            block.append(f"\n{number:>2} ", style="dim")
            for value, number_shown in zip(figure[some], line[some], strict=True):
                block.append(f"{number_shown:>{cell}}", style=_color(float(np.nan_to_num(value)) / most))
        blocks.append(block)
    return blocks


def _detectors(run: Run) -> Table:
    """For each well-known kind of head, the heads with the largest weight on its keys."""
    table = _table("most weight on", "layer.head, mean of the rows")
    own = {name for call in run.calls for name in call.figures} - {*ROWS, *KINDS}
    titles = KINDS | {name: name for name in sorted(own)}
    collected = Collected(titles)
    collected.add("", run)
    found = collected.scores()
    for name, title in titles.items():
        if best := found.best(name, BEST):
            rows = max(np.isfinite(call.rows[name]).sum(-1).max() for call in run.calls if name in call.rows)
            some = "" if name in ROWS else f" ({counted(int(rows), 'row')})"  # a mean of few rows says little
            table.add_row(f"{title}{some}", " · ".join(f"{score.name} {score.mean:.0%}" for score in best))
    return table


def _table(*columns: Column | str) -> Table:
    return Table(*columns, box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)


def _color(share: float) -> Style:
    """Black or white on the color of a share, whichever has more contrast."""
    at = round(255 * min(1.0, max(0.0, share)))
    return Style(color="#000000" if at >= BRIGHT else "#ffffff", bgcolor=_hex(at))


def _hex(at: int) -> str:
    return "#" + ramp("dark")[at].tobytes().hex()


def _row(run: Run, choice: Choice, brick: str) -> Table:
    """The keys with the largest weights in the chosen token's row, next to the mean of the other rows."""
    call = run.calls[choice.call]
    weights, others = (of(heads=choice.head, rows=choice.query)[0, 0] for of in (call.weights, call.others))
    allowed = call.allowed(heads=choice.head, rows=choice.query)[0, 0]
    queries, keys = (run.axes[name] for name in (call.queries, call.keys))
    shown = {"weight": (weights, ""), "other rows": (others, "dim")}
    if call.lengths is not None:
        moves = weights * call.lengths[choice.head]
        shown["moves"] = moves / (np.nansum(moves) or 1), "dim"
    order = np.flatnonzero(allowed)[np.argsort(-weights[allowed], kind="stable")]
    table = Table(box=None, header_style="", padding=(0, 1), pad_edge=False)
    table.add_column(
        Text.assemble("“", (_short(queries, choice.query), "bold"), "” attends to"), max_width=34, no_wrap=True
    )
    for title, (_, style) in shown.items():
        table.add_column(Text(title, "dim"), justify="right", style=style)
    table.add_column("")
    for key in order[:LISTED]:
        name = Text.assemble(_short(keys, key), (f"  {key}", "dim"))
        numbers = [f"{values[key]:.1%}" for values, _ in shown.values()]
        if np.isnan(others[key]):  # one row alone has no others
            numbers[1] = ""
        table.add_row(name, *numbers, _bar(weights[key], brick))
    if len(order) > LISTED:
        rest = weights[order[LISTED:]].sum()
        more_keys = Text(counted(len(order) - LISTED, "more key"), style="dim")
        table.add_row(more_keys, f"{rest:.1%}", *[""] * (len(shown) - 1), _bar(rest, brick))
    if not allowed.all():
        table.add_row(Text(f"{(~allowed).sum()} masked", style="dim"))
    return table


def _short(axis: Axis, position: int) -> str:
    """The token as it fits in the table."""
    return fitting(named(axis, position), 20, cell_len)


def _bar(share: float, brick: str) -> Text:
    """A bar of at most `WIDTH` characters; its end is in eighths if the terminal supports block characters."""
    eighths = round(max(0.0, min(1.0, float(np.nan_to_num(share)))) * WIDTH * 8)
    end = " ▏▎▍▌▋▊▉"[eighths % 8].strip() if brick == "█" else ""
    return Text(brick * (eighths // 8) + end, style="cyan")


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
