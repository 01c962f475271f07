"""Report: a `ModelCost` as text: numbers and how they were found, the parts of a layer, and where it all goes."""

from __future__ import annotations

from typing import Any

from ..common.text.units import seconds, unit
from .columns import Columns

BAR = 24  # characters of a whole bar
ORDER = ("embedding", "projections", "attention", "feed-forward", "experts", "states", "norms", "other", "head")


def report(found: Any, layers: bool = False) -> str:
    """The text. layers: a line for each part of each layer, in place of their sums."""
    blocks = [_title(found), _columns(found), _parts(found, layers)]
    blocks += [_listed("FAULT", found.faults)] if found.faults else []
    blocks += [_listed("note", found.notes)] if found.notes else []
    return "\n\n".join(blocks)


def _title(found: Any) -> str:
    sequences = "1 sequence" if found.batch == 1 else f"{found.batch:,} sequences"
    what = {
        "prefill": f"prefill of {found.tokens:,} tokens",
        "decode": f"one token after {found.tokens:,}",
        "train": f"one training step of {found.tokens:,} tokens",
    }[found.phase]
    return f"{found.name} ({found.model}): {what}, {sequences}, {found.dtype}"


def _columns(found: Any) -> str:
    """Numbers with three digits, their unit, and how they were found; where two differ, both as they are."""
    held, operations = found.memory, "FLOP"
    rows: list[tuple[str, Columns, str]] = [
        ("parameters", found.parameters, ""),
        ("  used for a token", Columns(None, found.active), ""),
        ("operations, linear", found.linear, operations),
    ]
    if found.attention.value:
        rows.append(("operations, attention", found.attention, operations))
    if found.recurrent.value:
        rows.append(("operations, recurrences", found.recurrent, operations))
    if found.phase == "train":
        rows.append(("operations, backward", found.backward, operations))
    rows.append(("operations in all", Columns(None, found.flops), operations))
    if found.phase == "train":
        rows.append(("  scores formed anew", Columns(None, found.done), operations))
    rows += [("exponentials", Columns(found.exponentials), "")] if found.exponentials else []
    memory = [("weights", held.weights)]
    if found.phase == "train":
        memory += [("gradients", Columns(held.gradients)), ("Adam", Columns(held.optimizer))]
        memory += [("activations", held.activations)]
    memory += [("KV cache", held.kv_cache)] if held.kv_cache.value else []
    memory += [("recurrent states", Columns(None, held.states))] if held.states else []
    rows += [(name, each, "B") for name, each in memory]
    whole = sum(each.value for _, each in memory)
    if len(memory) > 1:
        rows.append(("memory in all", Columns(None, whole), "B"))
    if found.phase == "train" and held.checkpointed:
        less = whole - held.activations.value + held.checkpointed
        rows.append(("  with checkpoints", Columns(None, less), "B"))
    table = [[name, unit(each.value, form).strip(), _source(each)] for name, each, form in rows]
    text = aligned(table, last_left=True)
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


def _parts(found: Any, layers: bool) -> str:
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
    return aligned(rows, last_left=True)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:6.1%} {'█' * round(BAR * part / whole)}"


def aligned(rows: list[list[str]], last_left: bool = False) -> str:
    """Rows as columns: the first to the left, others to the right, the last one as said."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        for at in range(1, len(row)):
            left = last_left and at == len(row) - 1
            cells.append(row[at] if left else row[at].rjust(widths[at]))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _listed(word: str, texts: tuple[str, ...], most: int = 8) -> str:
    lines = [f"{word}: {text}" for text in texts[:most]]
    return "\n".join(lines + ([f"… and {len(texts) - most} more"] if len(texts) > most else []))
