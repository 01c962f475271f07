"""Explain: the known mistakes that give what was observed, alone, with a fitted number, or in pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .mistake import Mistake
from .mistakes import CATALOG
from .mistakes.scores import scaled
from .observed import Observed

STARTS = 8  # wrong calls from which single mistakes are searched, the smallest of those that are left each time
MANY = 64  # keys, from which an implementation may take another path
PAIRED = 2  # wrong calls from which pairs are searched
EFFORT = 6000  # small forward passes: after so many no pairs are tried any more, which takes about a second
PATIENCE = 4  # times as many, after which no single mistakes are tried; only large calls need them
WORK = 1 << 22  # products of a call that is compared with many mistakes; larger ones are compared with the best one

Mistakes = tuple[Mistake, ...]


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why some calls are wrong.

    mistakes: one, two that occur together, or none if no known mistake explains the calls · alike: the names of other
    mistakes that give the same answers in all of them (pairs as "a + b") · cases: the ids of the calls
    """

    mistakes: Mistakes
    alike: tuple[str, ...]
    cases: tuple[str, ...]


def explain(
    wrong: Sequence[Observed],
    right: Sequence[Observed] = (),
    *,
    catalog: Sequence[Mistake] = CATALOG,
    together: bool = False,
    pairs: bool = True,
) -> list[Explanation]:
    """Groups wrong calls by the mistakes that explain them, those with the most calls first.

    right: other calls of the same function, which a mistake should not contradict · catalog: the mistakes that are
    tried, in this order · together: whether one explanation has to be that of all wrong calls, where otherwise each
    mistake is named that is the only one to show in some of them · pairs: whether two mistakes are tried
    """
    search = _Search(wrong, right, catalog, together)
    search.singles()
    search.fitted()
    if pairs:
        search.pairs()
    return search.explanations()


def fitted_scale(seen: Observed) -> Mistake:
    """The scale that fits a call best: a coarse search over its magnitude, then a fine one around the best."""

    def off(power: float) -> float:
        return seen.distance(replace(seen.arguments, scale=seen.arguments.scale * 2.0**power))

    best = min(np.linspace(-8, 8, 65), key=off)
    low, high = best - 0.25, best + 0.25
    golden = (5**0.5 - 1) / 2
    for _ in range(50):
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if off(a) < off(b) else (a, high)
    factor = 2.0 ** ((low + high) / 2)
    return scaled(
        "scale-fitted",
        f"a scale {factor:.4g} times as large",
        "the implementation uses another scale than the argument",
        lambda arguments: arguments.scale * factor,
    )


def _by_work(calls: Iterable[Observed]) -> list[Observed]:
    return sorted(calls, key=lambda seen: seen.work)


class _Search:
    def __init__(
        self, wrong: Sequence[Observed], right: Sequence[Observed], catalog: Sequence[Mistake], together: bool
    ):
        self.catalog, self.wrong, self.together = catalog, wrong, together
        self.left = _by_work(seen for seen in wrong if seen.answered)
        self.right = _by_work(seen for seen in right if seen.answered)
        self.groups: list[tuple[Mistakes, tuple[str, ...], list[Observed]]] = []

    def singles(self) -> None:
        """Explains calls by one mistake each."""
        self._from_smallest(
            STARTS, PATIENCE, lambda start: self._agreeing(start, ((each,) for each in self.catalog), PATIENCE)
        )

    def fitted(self) -> None:
        """Explains calls by a number that is fitted to the smallest one that is large enough for that."""
        start = next((seen for seen in self.left if seen.work and np.isfinite(seen.distance(seen.arguments))), None)
        if start is not None and not self._spent(PATIENCE):
            self._explained(start, self._agreeing(start, [(fitted_scale(start),)], PATIENCE))

    def pairs(self) -> None:
        """Explains what is left by two mistakes, and joins them with what one of them explains alone."""

        def choices(start: Observed) -> list[Mistakes]:
            if start.work > WORK:
                return []
            known = [mistakes[0] for mistakes, _, _ in self.groups if len(mistakes) == 1]
            return self._agreeing(start, self._pairs(start, known)) or self._agreeing(start, self._pairs(start))

        self._from_smallest(PAIRED, 1, choices)

    def _from_smallest(self, starts: int, patience: int, choices: Callable[[Observed], list[Mistakes]]) -> None:
        """Explains the smallest call that is left, so many times, by the best of its choices."""
        skipped: list[Observed] = []
        for _ in range(1 if self.together else starts):
            if not self.left or self._spent(patience):
                break
            if not self._explained(self.left[0], choices(self.left[0])):
                skipped.append(self.left.pop(0))
        self.left = _by_work(skipped + self.left)

    def _spent(self, patience: int = 1) -> bool:
        return sum(seen.effort for seen in (*self.wrong, *self.right)) > patience * EFFORT

    def _agreeing(self, start: Observed, tried: Iterable[Mistakes], patience: int = 1) -> list[Mistakes]:
        """Those that explain a call, or all of them together, as far as the effort allows."""
        agreeing = []
        calls = _by_work(self.wrong) if self.together else [start]
        for mistakes in tried:
            if self._spent(patience):
                break
            if all(seen.explained(mistakes) for seen in calls):
                agreeing.append(mistakes)
        return agreeing

    def _pairs(self, start: Observed, known: Sequence[Mistake] | None = None) -> Iterator[Mistakes]:
        """Pairs that may differ from single mistakes in a call; with `known`, those that contain one of these."""
        usable = (mistake for mistake in self.catalog if not mistake.alone)
        calls = self.wrong if self.together else [start]
        one = [mistake for mistake in usable if any(seen.mistaken((mistake,)) is not None for seen in calls)]
        for number, first in enumerate(one):
            for second in one[number + 1 :]:
                if known is None or first in known or second in known:
                    arguments = start.mistaken((first, second))
                    if arguments is not None and start.has_formula(arguments):
                        yield first, second

    def _explained(self, start: Observed, choices: list[Mistakes]) -> bool:
        """Notes the best of these mistakes, which explain a call, with all the calls that it explains."""
        if not choices:
            return False
        near = [seen for seen in (self.wrong if self.together else self.left) if seen.work <= WORK or seen is start]
        rated: list[tuple[int, int, Mistakes, list[Observed]]] = []
        for number, mistakes in enumerate(choices):
            if rated and self._spent(PATIENCE):
                break
            cases = [seen for seen in near if seen is start or seen.explained(mistakes)]
            if not self._contradicted(mistakes, start):
                rated.append((-len(cases), number, mistakes, cases))
        if not rated:
            return False
        rated.sort(key=lambda each: each[:2])
        _, _, best, cases = rated[0]
        alike = [
            " + ".join(mistake.name for mistake in other)
            for _, _, other, theirs in rated[1:]
            if {id(seen) for seen in theirs} >= {id(seen) for seen in cases}
        ]
        far = [seen for seen in self.left if seen.work > WORK and seen is not start and seen.explained(best)]
        self.groups.append((best, tuple(alike), cases + far))
        gone = {id(seen) for seen in cases + far}
        self.left = [seen for seen in self.left if id(seen) not in gone]
        return True

    def _contradicted(self, mistakes: Mistakes, start: Observed) -> bool:
        """Whether a right call would have been wrong with these mistakes. Calls with fewer keys do not count, because a
        mistake may begin at some size, unless all calls have one explanation; nor do gradients without a formula.
        """
        return any(
            seen.work <= WORK and (arguments := seen.mistaken(mistakes)) is not None and seen.contradicts(arguments)
            for seen in self.right
            if self.together or seen.arguments.keys >= min(start.arguments.keys, MANY)
        )

    def explanations(self) -> list[Explanation]:
        """What was explained, and the calls that nothing explains."""
        groups = self._joined()
        explained = {id(seen) for _, _, cases in groups for seen in cases}
        rest = tuple(seen.id for seen in self.wrong if id(seen) not in explained)
        result = [Explanation(mistakes, alike, tuple(seen.id for seen in cases)) for mistakes, alike, cases in groups]
        result.sort(key=lambda each: -len(each.cases))
        return result + ([Explanation((), (), rest)] if rest else [])

    def _joined(self) -> list[tuple[Mistakes, tuple[str, ...], list[Observed]]]:
        """The calls of a pair of mistakes that both explain others alone are joined with those of the first one."""
        groups = list(self.groups)
        alone = {each[0][0]: each for each in groups if len(each[0]) == 1}
        for pair in [each for each in groups if len(each[0]) == 2 and set(each[0]) <= alone.keys()]:
            groups.remove(pair)
            alone[pair[0][0]][2].extend(pair[2])
        return groups
