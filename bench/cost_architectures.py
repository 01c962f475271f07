"""Architectures: the cost of every architecture of transformers, each number in two ways, or why there is none."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from regard.common.errors import Refused, first_line, refuse
from regard.ledger.build import subject
from regard.ledger.cost import priced
from regard.ledger.inputs import reads_tokens
from regard.ledger.result import ModelCost
from regard.torch.hf.tiny_models import config_class, mappings, tiny_config

__all__ = ["RESULTS", "Row", "compare", "page", "table"]

RESULTS = ("agrees", "counted", "differs", "refused")
TOKENS, BATCH = 12, 2
HEADINGS = {
    "agrees": "Agree",
    "counted": "Counted, with parts that have no formula",
    "differs": "Differ",
    "refused": "Refused",
}
INTRODUCTION = """# Cost of every architecture

This page lists the architectures of transformers for which `regard.cost` finds each number in two ways, and the others
with the reason. It is written by `python -m bench.cost_architectures docs/reference/cost-architectures.md`, which
builds a small model of each architecture without data, and runs one pass of training and one of inference over 2
sequences of 12 tokens (or an image, or sound). Where the small sizes do not fit together, the model has those that its
configuration has by default (°).

An architecture agrees if these numbers are equal, as integers:

- parameters of every part of every layer: from declared sizes, and those of the tensors
- operations of every part, forward, and of the whole backward pass: from declared sizes and the pairs of each mask, and
  those of the products that run
- bytes of the cache of keys and values: from the sizes of the attention calls, and those that the cache holds

Some parts have no formula: products of two results in a model's own attention code, and modules that do not declare
what they multiply. They are counted only. The operations of a recurrence (state-space layers, delta rules) are the
other way round: no product runs, and they follow from the size of the state: 2 operations for each number of the state
each time a token's product is added to it or reads it.

What a model asks about values has no answer here. Yes-or-no questions are answered no: no token is padding, nothing is
hidden. A model that needs a number, or chooses rows by their values, raises `Refused`. Two architectures choose experts
by values in their own code: Switch Transformers and JetMoe. There every token meets as many experts as the router
chooses, which small models of the same code with data confirm at two sizes (tokens beyond the capacity of an expert,
which Switch Transformers drops, are counted).
"""


@dataclass(frozen=True)
class Row:
    """The result of one architecture. result: "agrees" (all numbers, found by formula and by counting), "counted" (no
    formula for the parts that `reason` names), "differs" (a defect), "refused" (for `reason`) · size: "small", or "its
    own" where its sizes cannot be made small · notes: what one should know to read the numbers.
    """

    name: str
    model: str
    result: str
    reason: str = ""
    size: str = "small"
    notes: tuple[str, ...] = ()


def compare(name: str) -> Row:
    """The row of one architecture; `name` is its model_type."""
    if name not in mappings():
        raise refuse("cost", "no such architecture", name, "a model_type that transformers knows", "correct it")
    row = functools.partial(Row, name, "")
    reasons = []
    for size, config in (("small", lambda: tiny_config(config_class(name))), ("its own", config_class(name))):
        try:
            made = subject(config())
            row = functools.partial(Row, name, type(made.model).__name__, size=size)
            length = TOKENS if reads_tokens(made.model) else None
            found = [priced(made, length, BATCH, phase) for phase in ("train", "prefill")]
        except Exception as error:  # third-party code, on sizes that it was not written for
            reasons.append(_reason(error))
        else:
            return row(*_result(found), notes=tuple(dict.fromkeys(note for each in found for note in each.notes)))
    return row("refused", reasons[-1])


def _result(found: list[ModelCost]) -> tuple[str, str]:
    """(result, reason)."""
    if faults := dict.fromkeys(fault for each in found for fault in each.faults):
        return "differs", "; ".join(faults)
    without = dict.fromkeys(line.part for each in found for line in each.lines if line.forward.formula is None)
    return ("counted", ", ".join(without)) if without else ("agrees", "")


def _reason(error: Exception) -> str:
    if isinstance(error, Refused):
        text = f"{error.reasons[0].what}: {error.reasons[0].given}"
    else:
        text = f"{type(error).__name__}: {first_line(error, 'no message')}"
    return re.sub(r"'?/[\w./-]+'?", "…", text)  # without local paths


def table(rows: list[Row]) -> str:
    """The rows as Markdown for the docs: how many agree, and the others by reason."""
    counts = {result: sum(row.result == result for row in rows) for result in RESULTS}
    lines = [f"{len(rows)} architectures: {', '.join(f'{count} {result}' for result, count in counts.items())}."]
    for result, title in HEADINGS.items():
        of_result = [row for row in rows if row.result == result]
        if not of_result:
            continue
        lines += ["", f"### {title}", ""]
        if result == "agrees":
            lines.append(", ".join(_marked(row) for row in of_result))
            continue
        reasons: dict[str, list[str]] = {}
        for row in of_result:
            reasons.setdefault(_escaped(row.reason), []).append(_marked(row))
        lines += ["| why | architectures |" if result != "counted" else "| parts | architectures |", "|---|---|"]
        lines += [f"| {reason} | {', '.join(names)} |" for reason, names in reasons.items()]
    notes: dict[str, list[str]] = {}
    for row in rows:
        for note in row.notes:
            notes.setdefault(_escaped(note), []).append(row.name)
    if notes:
        lines += ["", "### Notes", "", "| note | architectures |", "|---|---|"]
        lines += [f"| {note} | {', '.join(names)} |" for note, names in notes.items()]
    return "\n".join(lines)


def page(rows: list[Row]) -> str:
    """The page `docs/reference/cost-architectures.md`."""
    return f"{INTRODUCTION}\n{table(rows)}\n"


def _main(path: str) -> None:
    import warnings

    import transformers

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    Path(path).write_text(page([compare(name) for name in sorted(mappings())]), encoding="utf-8")


def _marked(row: Row) -> str:
    return row.name + ("" if row.size == "small" else "°")


def _escaped(text: str) -> str:
    """A message as the text of a table's cell: brackets in it are not links."""
    return re.sub(r"([\[\]])", r"\\\1", text.replace("|", "/").replace("`", "'").replace("<", "&lt;"))


if __name__ == "__main__":
    _main(sys.argv[1])
