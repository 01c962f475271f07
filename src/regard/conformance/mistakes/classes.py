"""Classes of mistakes that are equal on all probes, so that they are named together, found by running them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..answer import Answer
from .answers import Function, answer_of, mistaken
from .catalog import CATALOG
from .probes import Probe, probes

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
