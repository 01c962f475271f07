"""Matrix: which probe rejects which mistake, which mistakes are named, and which are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from .call import Answer
from .catalog import CATALOG
from .expected import Expected, compared_gradients, expected
from .explain import explain
from .mistake import Mistake
from .observed import ObservedAnswer
from .probes import CONVENTIONS, Function, Probe, answer_of, mistaken, probes

RIGHT = "(right)"  # the law itself
EVERYTHING, OUTPUT = "in all results", "in the output"
ORDINARY = "in the output, on ordinary numbers and without sinks"

Which = Callable[[Probe], bool]


def _every(probe: Probe) -> bool:
    return True


def _forward(probe: Probe) -> bool:
    return probe.call.dout is None


def _plain(probe: Probe) -> bool:
    return probe.call.dout is None and probe.call.sinks is None


def _ordinary(probe: Probe) -> bool:
    return _plain(probe) and probe.ordinary


# Which mistakes are compared: those that show on some of these probes. Whether more than the output is compared, and on
# which probes.
VIEWS: Mapping[str, tuple[Which, bool, Which]] = {
    EVERYTHING: (_every, True, _every),
    OUTPUT: (_forward, False, _forward),
    ORDINARY: (_plain, False, _ordinary),
}

# What `classes` finds. Mistakes of one class are named together; what is in the class of RIGHT is right there.
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


def classes() -> Mapping[str, tuple[frozenset[str], ...]]:
    """The mistakes whose answers are equal to rounding, in groups of two or more, for each kind of comparison.

    Mistakes that only show in results or arguments which a comparison leaves out are not in its classes.
    """
    right = _answers(mistaken())
    answers = {mistake.name: _answers(mistaken(mistake)) for mistake in CATALOG}
    found = {}
    for view, (among, whole, shown) in VIEWS.items():
        groups: list[tuple[dict[str, Answer], set[str]]] = [(right, {RIGHT})]
        for name, answer in answers.items():
            if _equal(answer, right, among, whole):
                continue
            group = next((names for other, names in groups if _equal(answer, other, shown, whole)), None)
            if group is None:
                groups.append((answer, {name}))
            else:
                group.add(name)
        found[view] = tuple(frozenset(names) for _, names in groups if len(names) > 1)
    return found


def _answers(function: Function) -> dict[str, Answer]:
    return {probe.id: answer_of(function, probe) for probe in probes()}


def _equal(one: Mapping[str, Answer], other: Mapping[str, Answer], which: Which, whole: bool) -> bool:
    return all(_alike(one[probe.id], other[probe.id], whole) for probe in probes() if which(probe))


def _alike(one: Answer, other: Answer, whole: bool) -> bool:
    results = [(one.out, other.out)]
    if whole:
        results += [(one.lse, other.lse)]
        results += [(part, other.gradients[role]) for role, part in one.gradients.items() if role in other.gradients]
    return all(a is None or b is None or np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True) for a, b in results)


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
    function = mistaken(*mistakes)
    rejected: list[str] = []
    named: dict[str, None] = {}
    for conventions in CONVENTIONS:
        failed: list[ObservedAnswer] = []
        passed: list[ObservedAnswer] = []
        for probe in probes():
            if probe.conventions is conventions:
                seen, good = _seen(function, probe)
                (passed if good else failed).append(seen)
        rejected += [seen.id for seen in failed]
        for found in explain(failed, passed):
            named |= dict.fromkeys(mistake.name for mistake in found.mistakes)
    return Row(mistakes, tuple(rejected), tuple(named))


def _seen(function: Function, probe: Probe) -> tuple[ObservedAnswer, bool]:
    """What a function answers to a probe, and whether that is right."""
    answer, right = answer_of(function, probe), _expected(probe)
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
