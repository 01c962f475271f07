"""The page of the documentation that lists the catalog. `python -m bench.mistakes_page` prints it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regard.laws.mistake import Mistake
from regard.laws.mistakes import CATALOG
from regard.laws.mistakes.gradients import GRADIENTS
from regard.laws.mistakes.heads import HEADS
from regard.laws.mistakes.masks import MASKS, POSITIONS
from regard.laws.mistakes.outputs import FILLS, OUTPUTS, ROWS
from regard.laws.mistakes.products import PRODUCTS, VALUES
from regard.laws.mistakes.scores import SCALES, SCORES
from regard.laws.mistakes.softmax import LSE, SINKS, SOFTMAX
from regard.laws.probes import CLASSES, RIGHT

__all__ = ["SUBJECTS", "page"]

SUBJECTS = {
    "Scale": SCALES,
    "Masks": MASKS,
    "What masked scores become": FILLS,
    "Causal masks, windows, padding": POSITIONS,
    "Batch entries and heads": HEADS,
    "Softmax": SOFTMAX,
    "Queries, keys and values": VALUES,
    "The product of queries and keys": PRODUCTS,
    "Output": OUTPUTS,
    "Fully masked rows and leaks": ROWS,
    "Logarithm of the denominator": LSE,
    "Sinks": SINKS,
    "Softcap and bias": SCORES,
    "Gradients": GRADIENTS,
}

INTRODUCTION = """# Known mistakes

<!-- Written by `python -m bench.mistakes_page > docs/reference/mistakes.md`. -->

These are the {count} mistakes that `regard conform` and `regard audit` know by name.
Each is a small change of the [laws](laws.md), so the answers of a function can be compared with those of attention
with the mistake.
Two mistakes at once are found as well.

An implementation that declares another convention, such as a causal mask aligned top left, has no mistake there.
What it does not declare must be as in the laws.

`regard conform --mistakes` runs every mistake on a fixed set of small calls, and prints which calls reject it, whether
it is named, and how many random pairs are named.

In the tables, the law is the number of the law that is broken, and "computes" completes the sentence "the output is
that of attention with …".
Audits report those whose name has a check after it."""

CLASSES_OF = """## Mistakes that are equal

A function that returns its output, lse and gradients separates all mistakes, if the numbers of the calls are chosen for
that.
In other comparisons some mistakes are equal:"""


def page() -> str:
    """The page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION.format(count=len(CATALOG))
    for subject, mistakes in SUBJECTS.items():
        yield ""
        yield f"## {subject}"
        yield ""
        yield from _table(mistakes)
    yield ""
    yield CLASSES_OF
    yield ""
    for view, groups in CLASSES.items():
        for group in groups:
            names = ", ".join(f"`{name}`" for name in sorted(group - {RIGHT}))
            yield f"- Equal {view}: {names}{' and the law itself' if RIGHT in group else ''}."


def _table(mistakes: Sequence[Mistake]) -> Iterator[str]:
    yield "| name | law | computes | cause | fix |"
    yield "|---|---|---|---|---|"
    for each in mistakes:
        checks = "".join(f" ({name})" for name in each.checks)
        words = " | ".join(_cell(text) for text in (each.description, each.cause, each.fix))
        yield f"| `{each.name}`{checks} | {each.law} | {words} |"


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
