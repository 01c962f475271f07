"""Diagnosis: the known mistakes that explain the answers of a function, alone or in pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..conventions.fields import Adapter
from .catalog import CATALOG
from .mistake import Mistake
from .trial import Observed, Trial

STARTS = 8  # failing cases from which single mistakes are searched, the smallest of those that are left each time
MANY = 64  # keys, from which an implementation may take another path
PAIRED = 2  # failing cases from which pairs are searched
EFFORT = 6000  # small forward passes: after so many no pairs are tried any more, which takes about a second
PATIENCE = 4  # times as many, after which no single mistakes are tried; only large calls need them
WORK = 1 << 22  # products of a call that is compared with many mistakes; larger ones are compared with the found one

Mistakes = tuple[Mistake, ...]


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why some cases fail.

    mistakes: one, two that occur together, or none if no known mistake explains the cases · alike: the names of other
    mistakes that give the same answers in all cases (pairs as "a + b") · cases: the ids of the cases
    """

    mistakes: Mistakes
    alike: tuple[str, ...]
    cases: tuple[str, ...]


def explain(observed: Sequence[Observed], passed: Sequence[Observed], adapter: Adapter) -> list[Explanation]:
    """Groups failing cases by the mistakes that explain them, those with the most cases first.

    observed: the failing cases · passed: the others, which a mistake should not contradict · adapter: the conventions
    under which they were compared
    """
    search = _Search(observed, passed, Trial(adapter))
    search.singles()
    search.pairs()
    return search.explanations()


class _Search:
    def __init__(self, observed: Sequence[Observed], passed: Sequence[Observed], trial: Trial):
        self.trial = trial
        self.left = sorted((seen for seen in observed if seen.answer.status == "ok"), key=lambda seen: seen.work)
        self.failing = list(observed)
        self.passed = sorted((seen for seen in passed if seen.answer.status == "ok"), key=lambda seen: seen.work)
        self.found: list[tuple[Mistakes, tuple[str, ...], list[Observed]]] = []

    def singles(self) -> None:
        """Explains cases by one mistake each."""
        skipped: list[Observed] = []
        for _ in range(STARTS):
            if not self.left or self._spent(PATIENCE):
                break
            start = self.left[0]
            if not self._explained(start, self._agreeing(start, ((mistake,) for mistake in CATALOG), PATIENCE)):
                skipped.append(self.left.pop(0))
        self.left = sorted(skipped + self.left, key=lambda seen: seen.work)

    def pairs(self) -> None:
        """Explains what is left by two mistakes, and joins them with what one of them explains alone."""
        skipped: list[Observed] = []
        for _ in range(PAIRED):
            if not self.left or self.left[0].work > WORK or self._spent():
                break
            start = self.left[0]
            known = [mistakes[0] for mistakes, _, _ in self.found if len(mistakes) == 1]
            choices = self._agreeing(start, self._pairs(start, known)) or self._agreeing(start, self._pairs(start))
            if not self._explained(start, choices):
                skipped.append(self.left.pop(0))
        self.left = sorted(skipped + self.left, key=lambda seen: seen.work)

    def _spent(self, patience: int = 1) -> bool:
        return self.trial.effort > patience * EFFORT

    def _agreeing(self, start: Observed, tried: Iterable[Mistakes], patience: int = 1) -> list[Mistakes]:
        """Those that explain a case, as far as the effort allows."""
        found = []
        for mistakes in tried:
            if self._spent(patience):
                break
            if self.trial.agrees(start, mistakes):
                found.append(mistakes)
        return found

    def _pairs(self, start: Observed, known: Sequence[Mistake] | None = None) -> Iterator[Mistakes]:
        """Pairs that may differ from single mistakes in a call; with `known`, those that contain one of these."""
        usable = (mistake for mistake in CATALOG if not mistake.alone)
        one = [mistake for mistake in usable if self.trial.arguments(start, (mistake,)) is not None]
        for number, first in enumerate(one):
            for second in one[number + 1 :]:
                if (known is None or first in known or second in known) and self.trial.has_formula(
                    start, (first, second)
                ):
                    yield first, second

    def _explained(self, start: Observed, choices: list[Mistakes]) -> bool:
        """Notes the best of these mistakes, which explain a case, with all the cases that it explains."""
        if not choices:
            return False
        near = [seen for seen in self.left if seen.work <= WORK or seen is start]
        rated: list[tuple[int, int, Mistakes, list[Observed]]] = []
        for number, mistakes in enumerate(choices):
            if rated and self._spent(PATIENCE):
                break
            cases = [seen for seen in near if seen is start or self.trial.agrees(seen, mistakes)]
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
        far = [seen for seen in self.left if seen.work > WORK and seen is not start and self.trial.agrees(seen, best)]
        self.found.append((best, tuple(alike), cases + far))
        gone = {id(seen) for seen in cases + far}
        self.left = [seen for seen in self.left if id(seen) not in gone]
        return True

    def _contradicted(self, mistakes: Mistakes, start: Observed) -> bool:
        """Whether a passing case would have failed with these mistakes. Cases with fewer keys do not count, because a
        mistake may begin at some size, nor do gradients without a formula.
        """
        return any(
            self.trial.contradicts(seen, mistakes)
            for seen in self.passed
            if seen.work <= WORK and seen.call.dims["K"] >= min(start.call.dims["K"], MANY)
        )

    def explanations(self) -> list[Explanation]:
        """What was found, and the cases that nothing explains."""
        found = self._joined()
        explained = {id(seen) for _, _, cases in found for seen in cases}
        rest = tuple(seen.id for seen in self.failing if id(seen) not in explained)
        result = [Explanation(mistakes, alike, tuple(seen.id for seen in cases)) for mistakes, alike, cases in found]
        result.sort(key=lambda each: -len(each.cases))
        return result + ([Explanation((), (), rest)] if rest else [])

    def _joined(self) -> list[tuple[Mistakes, tuple[str, ...], list[Observed]]]:
        """The cases of a pair of mistakes that were both found alone in other cases are joined with those of the first
        one.
        """
        found = list(self.found)
        alone = {each[0][0]: each for each in found if len(each[0]) == 1}
        for pair in [each for each in found if len(each[0]) == 2 and set(each[0]) <= alone.keys()]:
            found.remove(pair)
            alone[pair[0][0]][2].extend(pair[2])
        return found
