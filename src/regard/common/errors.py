"""Refusals: what was given, what was expected, how to fix it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

NEAR = 0.65  # of two spellings that may be one name: "jot" for jit has 0.67, "nosuchmodel" for neucodec 0.63


@dataclass(frozen=True)
class Reason:
    """One problem of a call, in three parts: `given`, `expected` and `fix`; `what` is its title."""

    what: str
    given: str
    expected: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}\n  given     {self.given}\n  expected  {self.expected}\n  fix       {self.fix}"


class Refused(ValueError, RuntimeError):
    """A call that regard rejects, with every problem listed, not only the first.

    It is a ValueError, as NumPy raises, and a RuntimeError, as torch raises for the same arguments.

    Args:
        where: the function that rejects the call, such as "attention".
        reasons: the problems; each has `what`, `given`, `expected` and `fix`. They are also the attribute `reasons`.

    Examples:
        >>> import numpy as np, regard as rg
        >>> try:
        ...     rg.attention(*np.zeros((3, 4, 8), np.float32), scale=float("nan"), dropout=2.0, seed=0)
        ... except rg.Refused as refused:
        ...     print(refused)
        attention: scale is not a number
          given     nan
          expected  a finite number
          fix       omit it for 1/√D
        attention: dropout is not a rate
          given     2.0
          expected  a number in [0, 1)
          fix       omit it for no dropout
    """

    def __init__(self, where: str, reasons: Iterable[Reason]):
        self.where = where
        self.reasons = tuple(reasons)
        super().__init__("\n".join([f"{where}: {reason}" for reason in self.reasons]))

    def __reduce__(self):
        return Refused, (self.where, self.reasons)


def refuse(where: str, what: str, given: str, expected: str, fix: str) -> Refused:
    """A refusal with a single reason, to be raised by the caller."""
    return Refused(where, [Reason(what, given, expected, fix)])


def refuse_all(where: str, reasons: Iterable[Reason]) -> None:
    """Raises `Refused` if there are reasons."""
    if listed := tuple(reasons):
        raise Refused(where, listed)


def alike(reasons: Iterable[Reason], names: Iterable[str] = ("q", "k", "v")) -> list[Reason]:
    """The reasons, with those that differ in the name of the argument only as one.

    >>> one, two = (Reason(f"{x} is odd", "7", "8", f"double {x}") for x in "qk")
    >>> print(*alike([one, two]))
    q is odd; the same is true of k
      given     7
      expected  8
      fix       double q
    """
    word = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b(?!=)")
    groups: dict[tuple[str, ...], list[tuple[str, Reason]]] = {}
    for number, reason in enumerate(reasons):
        name = word.match(reason.what)
        texts = (reason.what, reason.expected, reason.fix)
        kind = (str(number),) if name is None else tuple(re.sub(rf"\b{name[0]}\b", "·", text) for text in texts)
        groups.setdefault(kind, []).append(("" if name is None else name[0], reason))
    found = []
    for group in groups.values():
        (_, first), *rest = group
        given = dict.fromkeys(reason.given for _, reason in group)
        if rest:
            shown = first.given if len(given) == 1 else "; ".join(f"{name} {reason.given}" for name, reason in group)
            others = " and ".join(name for name, _ in rest)
            first = replace(first, what=f"{first.what}; the same is true of {others}", given=shown)
        found.append(first)
    return found


def first_line(error: BaseException, silent: str = "") -> str:
    """The first line of an error's message. silent: what replaces an empty message, by default the type of the error.

    >>> first_line(ValueError("no such file: a\\nb")), first_line(KeyError())
    ('no such file: a', 'KeyError')
    """
    return (str(error).strip() or silent or type(error).__name__).splitlines()[0]


def page(title: str) -> str:
    """A page of the documentation by its title, for errors: an installed package has no docs/.

    >>> page("Adapters")
    'the page “Adapters” of the documentation'
    """
    return f"the page “{title}” of the documentation"


def did_you_mean(word: str, known: Iterable[str], where: str = "") -> str:
    """`choose one of …`, preceded by the closest spelling if there is one. where: what lists the names, if there is
    such a place: more than twelve are then not written out.
    """
    known = list(known)
    close = nearest(word, known)
    short = f"choose one of {', '.join(map(repr, known))}"
    listed = short if len(known) <= 12 or not where else f"{where} lists them all"
    return f"did you mean {close!r}? {listed}" if close else listed


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The name whose spelling is near a word; None if none is.

    >>> nearest("lama", ["llama", "bert"]), nearest("nosuchmodel", ["neucodec"])
    ('llama', None)
    """
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=NEAR)), None)
