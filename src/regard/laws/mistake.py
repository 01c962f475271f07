"""Mistake: one entry of the catalog, a small change of the law with a name, a likely cause and a fix; the changes that
many entries are made of: of masks and scores by name, of weights by a function, of the input arrays; and the base of
findings, which report what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..common.text.terminal_text import printable
from ..language.analysis import substituted
from ..language.expr import Const, Expr, key, query
from .arguments import Arguments, Inputs


@printable
@dataclass(frozen=True, kw_only=True)
class BaseFinding:
    """One thing that is wrong: what `audits.Finding` and `conformance.Finding` share.

    Args:
        measured: what was measured.
        cause: the likely cause.
        fix: what to do about it.
    """

    measured: str
    cause: str
    fix: str

    @property
    def title(self) -> str:
        """What is wrong, in one line."""
        raise NotImplementedError

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What is said below the title: names, and words for each."""
        return [("cause", self.cause), ("fix", self.fix)]

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data.

        Returns:
            A dict that `json.dumps` accepts, with one entry for each field.

        Examples:
            >>> from regard.conformance import Finding
            >>> found = Finding(law=1, level=1, kind="law", measured="", mistake=None, cause="", fix="")
            >>> found.to_json()["law"]
            1
        """
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {name:8}  {words}" for name, words in self.rows)])


BLOCKS = (16, 32, 64, 128)  # keys in a tile of the kernels that people write
Change = Callable[[Arguments], Arguments | None]


@dataclass(frozen=True, eq=False)
class Mistake:
    """A known mistake.

    name: such as "scale-missing" · description: completes "the output is that of attention with …" · cause: the likely
    one · fix: what to do · change: the arguments of a call that is computed with this mistake; None if it makes no
    difference to such a call · law: the number of the law that it breaks · checks: the checks of an audit that report
    it; none, if recorded outputs cannot show it · numbers: what the description says of one call, from its arguments
    and the changed ones · alone: it is not combined with others, because arrays have other shapes inside
    """

    name: str
    description: str
    cause: str
    fix: str
    change: Change
    law: int = 1
    checks: tuple[str, ...] = ()
    numbers: Callable[[Arguments, Arguments], str] | None = None
    alone: bool = False

    def described(self, arguments: Arguments) -> str:
        """The description, with the numbers of a call."""
        changed = self.change(arguments) if self.numbers else None
        return self.description if changed is None else f"{self.description}: {self.numbers(arguments, changed)}"  # type: ignore[misc]


def apply(mistakes: Iterable[Mistake], arguments: Arguments) -> Arguments:
    """The arguments with these mistakes, one after the other; the same object if none makes a difference."""
    for mistake in mistakes:
        arguments = mistake.change(arguments) or arguments
    return arguments


def only_if(condition: Callable[[Arguments], bool], change: Change) -> Change:
    """The change in calls for which a condition is true; it makes no difference to others."""
    return lambda arguments: change(arguments) if condition(arguments) else None


def with_a_mask(change: Change) -> Change:
    """The change in calls with a mask."""
    return only_if(lambda arguments: bool(arguments.masks), change)


def with_both_masks(change: Change) -> Change:
    """The change in causal calls with another mask."""
    return only_if(lambda arguments: {"mask", "causal"} <= set(arguments.masks), change)


def with_sinks(change: Change) -> Change:
    """The change in calls with sinks."""
    return only_if(lambda arguments: arguments.sinks is not None, change)


def without_masks(*names: str) -> Change:
    """Without the masks of these names."""
    return _without("masks", names)


def without_scores(*names: str) -> Change:
    """Without the scores of these names."""
    return _without("scores", names)


def _without(field: str, names: tuple[str, ...]) -> Change:
    def change(arguments: Arguments) -> Arguments | None:
        rules = getattr(arguments, field)
        fields: dict[str, Any] = {field: {name: rule for name, rule in rules.items() if name not in names}}
        return None if len(fields[field]) == len(rules) else replace(arguments, **fields)

    return change


def masks_changed(new: Callable[[Arguments, Expr], Expr | None], *names: str) -> Change:
    """With another expression for each mask of these names."""
    return _changed("masks", new, names)


def scores_changed(new: Callable[[Arguments, Expr], Expr | None], *names: str) -> Change:
    """With another expression for each score of these names."""
    return _changed("scores", new, names)


def _changed(field: str, new: Callable[[Arguments, Expr], Expr | None], names: tuple[str, ...]) -> Change:
    def change(arguments: Arguments) -> Arguments | None:
        given = getattr(arguments, field)
        other = {name: new(arguments, rule) if name in names else rule for name, rule in given.items()}
        if any(rule is None for rule in other.values()) or all(other[name] is given[name] for name in given):
            return None
        fields: dict[str, Any] = {field: other}
        return replace(arguments, **fields)

    return change


def transposed(arguments: Arguments, rule: Expr) -> Expr | None:
    """A rule with rows and keys exchanged; None if their numbers differ."""
    if arguments.queries != arguments.keys:
        return None
    return substituted(rule, {query: key + arguments.start, key: query - arguments.start})


def of_first(variable: Expr) -> Callable[[Arguments, Expr], Expr]:
    """A rule that is read at index 0 of an axis everywhere."""
    return lambda arguments, rule: substituted(rule, {variable: Const(0)})


def restricted_to(rule: Callable[[Arguments], Expr | None]) -> Change:
    """With another condition for a pair to be allowed."""

    def change(arguments: Arguments) -> Arguments | None:
        more = rule(arguments)
        return None if more is None else replace(arguments, masks={**arguments.masks, "more": more})

    return change


@dataclass(frozen=True, eq=False)
class Softmax:
    """The scores of a call on their way to the weights, or to the lse. usual: the step that a mistake replaces."""

    usual: Callable[..., np.ndarray]
    scores: np.ndarray
    allowed: np.ndarray
    sinks: np.ndarray | None
    arguments: Arguments

    @property
    def kept(self) -> np.ndarray:
        """The scores, −∞ where they are masked."""
        return np.where(self.allowed, self.scores, -np.inf)

    @property
    def everything(self) -> np.ndarray:
        """Which pairs are allowed, if nothing is masked."""
        return np.ones_like(self.allowed)

    def of(self, scores: np.ndarray | None = None, allowed: np.ndarray | None = None) -> np.ndarray:
        """The usual step, with other scores or another mask if they are given."""
        scores, allowed = self.scores if scores is None else scores, self.allowed if allowed is None else allowed
        return self.usual(scores, allowed, self.sinks)


def weights_by(step: Callable[[Softmax], np.ndarray]) -> Change:
    """With other weights."""
    return _softmax_by("to_weights", step)


def lse_by(step: Callable[[Softmax], np.ndarray]) -> Change:
    """With another lse."""
    return _softmax_by("to_lse", step)


def _softmax_by(field: str, step: Callable[[Softmax], np.ndarray]) -> Change:
    def change(arguments: Arguments) -> Arguments:
        usual = getattr(arguments, field)
        fields: dict[str, Any] = {
            field: lambda scores, allowed, sinks: step(Softmax(usual, scores, allowed, sinks, arguments))
        }
        return replace(arguments, **fields)

    return change


def both(first: Change, second: Change) -> Change:
    """One change after the other; None if the first makes no difference."""

    def change(arguments: Arguments) -> Arguments | None:
        found = first(arguments)
        return found if found is None else second(found)

    return change


def inputs_by(inputs: Inputs) -> Change:
    """With other q, k and v."""

    def change(arguments: Arguments) -> Arguments:
        usual = arguments.inputs
        return replace(arguments, inputs=lambda q, k, v: inputs(*usual(q, k, v)))

    return change
