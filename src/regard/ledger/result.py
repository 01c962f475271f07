"""Result: what a model costs in one phase, line by line and in sum, with every number that was found in two ways.

As text: numbers and how they were found, the parts of a layer, and where it all goes; costs at several numbers of
tokens as a table with bars, and as an image.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.errors import refuse
from ..common.files.output import FIGURE, check_output, replacing
from ..common.optional import needs
from ..common.text.terminal_text import printable
from ..common.text.units import seconds, unit

BAR = 24  # characters of a whole bar
MOST = 8  # faults, and notes, that are written out
ORDER = ("embedding", "projections", "attention", "feed-forward", "experts", "states", "norms", "other", "head")


@dataclass(frozen=True)
class Columns:
    """One number, found in up to three ways. formula: from declared sizes · counted: by running the model without data
    · measured: from files, or by running it with data. None: not found in this way.
    """

    formula: int | None
    counted: int | None = None
    measured: int | None = None

    @property
    def value(self) -> int:
        """What ran, if it was counted, and otherwise the formula."""
        return (self.formula if self.counted is None else self.counted) or 0

    def __index__(self) -> int:
        return self.value

    @property
    def agree(self) -> bool:
        """Whether all that were found are equal."""
        return len({each for each in (self.formula, self.counted, self.measured) if each is not None}) <= 1


ZERO = Columns(0, 0)


@dataclass(frozen=True)
class Line:
    """A part of a layer: its projections, its attention, its feed-forward network.

    layer: its number in its stack, None outside of one · stack: such as "model.layers" · parameters: of these, `active`
    are used for a token · forward, backward: operations · done: those of the backward pass if scores are formed anew ·
    pairs, exponentials: of attention, over all sequences and heads · scores: the part of `forward` that is in q·k, not
    in weighted values · moved: bytes that its products read and write · saved: bytes kept for the backward pass.
    """

    stack: str
    layer: int | None
    part: str
    parameters: Columns
    active: int
    forward: Columns
    backward: int = 0
    done: int = 0
    pairs: int = 0
    scores: int = 0
    exponentials: int = 0
    moved: int = 0
    saved: int = 0


@dataclass(frozen=True)
class Layer:
    """The lines of one layer. attention: the line of its scores and values, or None."""

    stack: str
    number: int
    lines: tuple[Line, ...]

    @property
    def attention(self) -> Line | None:
        return next((line for line in self.lines if line.part == "attention"), None)


@dataclass(frozen=True)
class Memory:
    """Bytes. optimizer: of Adam, two float32 numbers per parameter, and float32 weights if they have 16 bits ·
    activations: what is saved for the backward pass; checkpointed: with checkpoints, the inputs of all layers and what
    the largest one saves · kv_cache: keys and values of all sequences; states: those of layers with a recurrent state ·
    working: outside of training, what the largest product reads and writes, without its weights.
    """

    weights: Columns
    gradients: int = 0
    optimizer: int = 0
    activations: Columns = ZERO
    checkpointed: int | None = None
    kv_cache: Columns = ZERO
    states: int = 0
    working: int = 0

    @property
    def held(self) -> int:
        """All that is held at once: in training with checkpoints, where the model can."""
        activations = self.activations.value if self.checkpointed is None else self.checkpointed
        kept = self.kv_cache.value + self.states + self.working
        return self.weights.value + self.gradients + self.optimizer + activations + kept


@dataclass(frozen=True)
class Time:
    """Seconds. bound: no run on the machine can be faster · compute, traffic: the shares of its products that are bound
    by operations and by memory · measured: as it ran, or None.
    """

    machine: str
    bound: float
    compute: float
    traffic: float
    measured: float | None = None


@printable
@dataclass(frozen=True)
class ModelCost:
    """What a model costs in one phase. faults: numbers that do not agree · notes: what one should know to
    read them · backward: operations of the backward pass.
    """

    name: str
    model: str
    phase: str
    tokens: int
    batch: int
    dtype: str
    parameters: Columns
    active: int
    lines: tuple[Line, ...]
    memory: Memory
    backward: Columns = ZERO
    time: Time | None = None
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def layers(self) -> list[Layer]:
        """The layers in order."""
        found: dict[tuple[str, int], list[Line]] = {}
        for line in self.lines:
            if line.layer is not None:
                found.setdefault((line.stack, line.layer), []).append(line)
        return [Layer(stack, number, tuple(lines)) for (stack, number), lines in found.items()]

    @property
    def linear(self) -> Columns:
        """Operations of the forward pass in products with parameters."""
        return total(line.forward for line in self.lines if line.part not in ("attention", "states"))

    @property
    def attention(self) -> Columns:
        """Operations of the forward pass in scores and weighted values: 2 · (D + E) per allowed pair."""
        return total(line.forward for line in self.lines if line.part == "attention")

    @property
    def recurrent(self) -> Columns:
        """Operations of the forward pass in recurrences over a state, by their definition."""
        return total(line.forward for line in self.lines if line.part == "states")

    @property
    def forward(self) -> Columns:
        """All operations of the forward pass. What was found in one way only is in both sums."""
        found = [line.forward for line in self.lines]
        formula = sum(each.value if each.formula is None else each.formula for each in found)
        return Columns(formula, sum(each.value for each in found))

    @property
    def flops(self) -> int:
        """Operations of the phase: forward, and in training backward, without what is formed a second time."""
        return self.forward.value + self.backward.value

    @property
    def done(self) -> int:
        """Operations of the phase with those that are repeated because scores are not kept."""
        return self.flops + sum(line.done - line.backward for line in self.lines if line.done)

    @property
    def exponentials(self) -> int:
        """Exponentials of the softmax, one per allowed pair and head."""
        return sum(line.exponentials for line in self.lines)

    @property
    def moved(self) -> int:
        """Bytes that the products of the forward pass read and write."""
        return sum(line.moved for line in self.lines)

    @property
    def intensity(self) -> float:
        """Operations per byte, forward."""
        return self.forward.value / self.moved if self.moved else 0.0

    def __str__(self) -> str:
        return report(self)

    def to_json(self) -> dict[str, Any]:
        """Everything as numbers, texts and lists."""
        sums = {
            name: dataclasses.asdict(value) if isinstance(value, Columns) else value
            for name in (
                "linear",
                "attention",
                "recurrent",
                "forward",
                "flops",
                "done",
                "exponentials",
                "moved",
                "intensity",
            )
            for value in (getattr(self, name),)
        }
        return dataclasses.asdict(self) | sums


def total(columns: Iterable[Columns]) -> Columns:
    """The sums of what was found in the first two ways, where all of it was."""
    found = list(columns)
    ways = [each.formula for each in found], [each.counted for each in found]
    formula, counted = (sum(each or 0 for each in way) if None not in way else None for way in ways)
    return Columns(formula, counted)


def report(found: ModelCost, layers: bool = False) -> str:
    """The text. layers: a line for each part of each layer, in place of their sums."""
    blocks = [_title(found), _columns(found), _parts(found, layers)]
    blocks += [_listed("FAULT", found.faults)] if found.faults else []
    blocks += [_listed("note", found.notes)] if found.notes else []
    return "\n\n".join(blocks)


def _title(found: ModelCost) -> str:
    sequences = "1 sequence" if found.batch == 1 else f"{found.batch:,} sequences"
    what = {
        "prefill": f"prefill of {found.tokens:,} tokens",
        "decode": f"one token after {found.tokens:,}",
        "train": f"one training step of {found.tokens:,} tokens",
    }[found.phase]
    return f"{found.name} ({found.model}): {what}, {sequences}, {found.dtype}"


def _columns(found: ModelCost) -> str:
    """Numbers with three digits, their unit, and how they were found; where two differ, both as they are."""
    held, train = found.memory, found.phase == "train"
    less = held.held - held.working
    whole = less if held.checkpointed is None else less - held.checkpointed + held.activations.value
    rows: list[tuple[str, Columns, str, object]] = [  # the last one: whether there is any
        ("parameters", found.parameters, "", True),
        ("  used for a token", Columns(None, found.active), "", True),
        ("operations, linear", found.linear, "FLOP", True),
        ("operations, attention", found.attention, "FLOP", found.attention.value),
        ("operations, recurrences", found.recurrent, "FLOP", found.recurrent.value),
        ("operations, backward", found.backward, "FLOP", train),
        ("operations in all", Columns(None, found.flops), "FLOP", True),
        ("  scores formed anew", Columns(None, found.done), "FLOP", train),
        ("exponentials", Columns(found.exponentials), "", found.exponentials),
        ("weights", held.weights, "B", True),
        ("gradients", Columns(held.gradients), "B", train),
        ("Adam", Columns(held.optimizer), "B", train),
        ("activations", held.activations, "B", train),
        ("KV cache", held.kv_cache, "B", held.kv_cache.value),
        ("recurrent states", Columns(None, held.states), "B", held.states),
        ("memory in all", Columns(None, whole), "B", train or held.kv_cache.value or held.states),
        ("  with checkpoints", Columns(None, less), "B", held.checkpointed),
    ]
    table = [[name, unit(each.value, form).strip(), _source(each)] for name, each, form, shown in rows if shown]
    text = aligned(table)
    text += f"\n\nmoved by products {unit(found.moved, 'B')}, {found.intensity:.3g} operations per byte"
    if found.time is not None:
        share = found.time.compute / found.time.bound if found.time.bound else 0.0
        text += f"\ntime at least {seconds(found.time.bound)} on {found.time.machine}"
        text += f"; {share:.0%} of it operations, the rest memory"
        if found.time.measured is not None:
            times = found.time.measured / found.time.bound
            text += f"\ntime measured {seconds(found.time.measured)}, {times:.3g} times the bound"
    return text


def _source(each: Columns) -> str:
    """How a number was found, and every number that differs from the others."""
    ways = {name: value for name in ("formula", "counted", "measured") if (value := getattr(each, name)) is not None}
    if each.agree:
        return " = ".join(ways) if len(ways) > 1 else ""
    return ", ".join(f"{name} {value:,}" for name, value in ways.items())


def _parts(found: ModelCost, layers: bool) -> str:
    """Parameters, operations and bytes of each part, with a bar for its share of the operations."""
    groups: dict[str, list[Any]] = {}
    for line in sorted(found.lines, key=lambda line: ORDER.index(line.part)) if not layers else found.lines:
        where = f"{line.stack} {line.layer} " if layers and line.layer is not None else ""
        groups.setdefault(where + line.part, []).append(line)
    whole = max(found.flops, 1)
    rows = [["part", "layers", "parameters", "operations", "moved", "share of operations"]]
    for name, lines in groups.items():
        operations = sum(line.forward.value + line.backward for line in lines)
        count = len({(line.stack, line.layer) for line in lines if line.layer is not None})
        rows.append(
            [
                name,
                str(count) if count else "",
                unit(sum(line.parameters.value for line in lines), "").strip(),
                unit(operations, "").strip(),
                unit(sum(line.moved for line in lines), "B"),
                _share(operations, whole),
            ]
        )
        scores, forward = sum(line.scores for line in lines), sum(line.forward.value for line in lines)
        if scores:
            of_scores = operations * scores // forward
            for part, size in (("scores", of_scores), ("values", operations - of_scores)):
                rows.append([f"  {part}", "", "", unit(size, "").strip(), "", _share(size, whole)])
    return aligned(rows)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:6.1%} {'█' * round(BAR * part / whole)}"


def aligned(rows: list[list[str]]) -> str:
    """Rows as columns: the first and the last to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others, last in rows:
        numbers = [each.rjust(width) for each, width in zip(others, widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *numbers, last]).rstrip())
    return "\n".join(lines)


def _listed(word: str, texts: tuple[str, ...]) -> str:
    lines = [f"{word}: {text}" for text in texts[:MOST]]
    return "\n".join(lines + ([f"… and {len(texts) - MOST} more"] if len(texts) > MOST else []))


SHORT_BAR = 20  # characters of a whole bar of a table over numbers of tokens


def lengths(text: str) -> list[int]:
    """Numbers of tokens.

    >>> lengths("512, 2048")
    [512, 2048]
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise refuse("cost", "the numbers of tokens cannot be read", repr(text), "such as 512,2048", "correct it")
    return [int(part) for part in parts]


def over(costs: Sequence[Any]) -> str:
    """A line for each `ModelCost`: operations, bytes that are held, the least time on a machine, and the shares of
    attention (dark) and of everything else in the operations.
    """
    timed = ["time at least"] if costs[0].time is not None else []
    rows = [["tokens", "operations", "held", *timed, "attention, everything else"], *map(_row, costs)]
    return f"{costs[0].name}, {costs[0].phase}, over the number of tokens\n\n{aligned(rows)}"


def attention_operations(cost: Any) -> int:
    """Operations of the products with q, k, weights and v, forward and backward."""
    return sum(line.forward.value + line.backward for line in cost.lines if line.part == "attention")


def _row(found: Any) -> list[str]:
    share = attention_operations(found) / found.flops if found.flops else 0.0
    dark = round(SHORT_BAR * share)
    time = [] if found.time is None else [seconds(found.time.bound)]
    bar = f"{'█' * dark}{'░' * (SHORT_BAR - dark)} {share:.1%}"
    return [f"{found.tokens:,}", unit(found.flops, "").strip(), unit(found.memory.held, "B"), *time, bar]


def check_plot(path: Path, lengths: Sequence[int]) -> None:
    """Raises `Refused` before the work if the plot could not be drawn or written."""
    if not lengths:
        raise refuse("cost", "a plot of nothing", "--plot", "numbers of tokens", "add --over 512,2048,8192")
    if path.suffix.lower() != ".png":
        raise refuse("cost", "not a PNG file", str(path), "a name in .png", f"write --plot {path.with_suffix('.png')}")
    check_output("cost", "--plot", path, what="a plot", mark=FIGURE)
    needs("cost", "look", "matplotlib")


def draw(path: Path, tables: Sequence[Sequence[Any]]) -> None:
    """Writes the image: for each phase the operations of attention and of everything else, and the bytes held."""
    from matplotlib.figure import Figure  # without pyplot: no window and no global state

    figure = Figure(figsize=(5 * len(tables), 7), layout="constrained")
    for (above, below), costs in zip(figure.subplots(2, len(tables), squeeze=False).T, tables, strict=True):
        costs = sorted(costs, key=lambda cost: cost.tokens)
        tokens = [cost.tokens for cost in costs]
        attention = [attention_operations(cost) for cost in costs]
        above.plot(tokens, attention, marker="o", color="#c8501e", label="attention")
        others = [cost.flops - one for cost, one in zip(costs, attention, strict=True)]
        above.plot(tokens, others, marker="o", color="#1f5a96", label="everything else")
        above.set(title=f"{costs[0].name}, {costs[0].phase}", ylabel="operations", xscale="log", yscale="log")
        above.legend(frameon=False)
        below.plot(tokens, [cost.memory.held for cost in costs], marker="o", color="#666666")
        below.set(xlabel="tokens", ylabel="bytes held", xscale="log", yscale="log")
        for axes in (above, below):
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
    with replacing("cost", "--plot", path) as draft:
        figure.savefig(draft, format="png", dpi=130, metadata={"Software": FIGURE})
