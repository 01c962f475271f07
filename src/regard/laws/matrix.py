"""Matrix: which probe rejects which mistake, which mistakes are named, and which are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from .catalog import CATALOG
from .expected import Expected, compared_gradients, expected
from .explain import explain
from .mistake import Mistake
from .observed import ObservedAnswer
from .probes import CONVENTIONS, Probe, answer_of, probes

RIGHT = "(right)"  # the law itself
EVERYTHING, OUTPUT = "in all results", "in the output"
ORDINARY = "in the output, on ordinary numbers and without sinks"

# The mistakes whose answers are equal to rounding. Those of one class are named together; what is in the class of RIGHT
# is right there. tests/conformance/test_mistakes.py computes them.
CLASSES: Mapping[str, tuple[frozenset[str], ...]] = {
    EVERYTHING: (),
    OUTPUT: (frozenset({"mask-finite-fill", "mask-finite-fill-lowest"}),),
    ORDINARY: (
        frozenset({RIGHT, "mask-after-softmax-renormalized-or-0", "masked-nan-leaks", "masked-score-nan-leaks"}),
        frozenset(
            {
                "empty-row-nan",
                "mask-after-softmax-renormalized",
                "softmax-maximum-of-everything",
                "softmax-without-maximum",
            }
        ),
        frozenset(
            {
                "empty-row-mean",
                "mask-finite-added",
                "mask-finite-fill",
                "mask-finite-fill-100",
                "mask-finite-fill-1e4",
                "mask-finite-fill-lowest",
            }
        ),
    ),
}


@dataclass(frozen=True, eq=False)
class Row:
    """One mistake, or two, on all probes.

    rejected: the ids of the probes whose answer is not within the bound · named: the mistakes that explain them
    """

    mistakes: tuple[Mistake, ...]
    rejected: tuple[str, ...]
    named: tuple[str, ...]


def matrix(catalog: Sequence[Mistake] = CATALOG) -> Iterator[Row]:
    """Every mistake on every probe."""
    for mistake in catalog:
        yield row((mistake,))


def pairs(count: int, seed: int = 0) -> Iterator[Row]:
    """Random pairs of mistakes on every probe."""
    rng, usable = np.random.default_rng(seed), [mistake for mistake in CATALOG if not mistake.alone]
    for _ in range(count):
        first, second = sorted(rng.choice(len(usable), 2, replace=False))
        yield row((usable[first], usable[second]))


def row(mistakes: tuple[Mistake, ...]) -> Row:
    """A function with these mistakes on every probe."""
    rejected: list[str] = []
    named: dict[str, None] = {}
    for conventions in CONVENTIONS:
        failed: list[ObservedAnswer] = []
        passed: list[ObservedAnswer] = []
        for probe in probes():
            if probe.conventions is conventions:
                seen, good = _seen(mistakes, probe)
                (passed if good else failed).append(seen)
        rejected += [seen.id for seen in failed]
        for found in explain(failed, passed):
            named |= dict.fromkeys(mistake.name for mistake in found.mistakes)
    return Row(mistakes, tuple(rejected), tuple(named))


def _seen(mistakes: Sequence[Mistake], probe: Probe) -> tuple[ObservedAnswer, bool]:
    """What a function with these mistakes answers to a probe, and whether that is right."""
    answer, right = answer_of(mistakes, probe), _expected(probe)
    good = right.judge(answer).right
    if good and answer.gradients:
        good = compared_gradients(probe.call, probe.conventions, answer).right
    return ObservedAnswer(probe.id, probe.call, answer, probe.conventions, right.bounds._asdict()), good


@cache
def _expected(probe: Probe) -> Expected:
    return expected(probe.call, probe.conventions)


def lines(count: int = 100, catalog: Sequence[Mistake] = CATALOG) -> Iterator[str]:
    """The matrix as lines of a table, and the figures of single mistakes and of `count` random pairs."""
    ids = [probe.id for probe in probes()]
    for number, probe in enumerate(probes(), 1):
        yield f"{number:2d} {probe.id}: {probe.says}"
    width = max(len(mistake.name) for mistake in catalog)
    yield ""
    yield f"{'':<{width}} " + " ".join(f"{number:2d}" for number in range(1, len(ids) + 1))
    rows = []
    for each in matrix(catalog):
        rows.append(each)
        marks = " ".join(" ×" if name in each.rejected else " ·" for name in ids)
        yield f"{each.mistakes[0].name:<{width}} {marks}{'' if _is_named(each) else '  not named'}"
    yield "× rejected · within the bound"
    yield ""
    yield f"mistakes alone: {len(rows)}, rejected {_share(rows, _is_rejected)}, named {_share(rows, _is_named)}"
    two = [each for each in pairs(count) if each.rejected]
    yield f"random pairs: {count}, of which {len(two)} rejected, one of the two named {_share(two, _is_named)}"
    for words, groups in CLASSES.items():
        for group in groups:
            yield f"equal {words}: {', '.join(sorted(group))}"


def _is_rejected(row: Row) -> bool:
    return bool(row.rejected)


def _is_named(row: Row) -> bool:
    """Whether a mistake is named, or one of the same class."""
    names = {mistake.name for mistake in row.mistakes}
    alike = set().union(*(group for group in CLASSES[EVERYTHING] if group & names), names)
    return bool(alike & set(row.named))


def _share(rows: Sequence[Row], has: Callable[[Row], bool]) -> str:
    found = sum(map(has, rows))
    return f"{found} ({100 * found / max(len(rows), 1):.1f} %)"
