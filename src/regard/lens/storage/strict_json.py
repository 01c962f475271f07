"""JSON that is taken at its word: one meaning per text, checked against a form before anything is made of it.

JSON has no word for NaN and ±infinity, which faulty models are full of: they are written {"float": "nan"}, "inf" or
"-inf".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from ...common.errors import Reason, refuse

__all__ = ["Each", "dumps", "loads", "wrong"]

NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
EXACT = 1 << 53  # up to here a whole number is a float as well
SHOWN = 80  # characters of a foreign value in a message


class Each:
    """The form of an object with any names, whose values all have one form."""

    def __init__(self, form: Any):
        self.form = form


def dumps(value: Any, where: str) -> str:
    """JSON in one line of ASCII. Refused: what JSON cannot say, by its place.

    >>> dumps({"a": (1, 0.5, float("nan"), None)}, "save")
    '{"a": [1, 0.5, {"float": "nan"}, null]}'
    """
    return json.dumps(_plain(value, where, ""), allow_nan=False)


def loads(raw: bytes) -> Any:
    """The value of a JSON text. ValueError: no JSON, two values under one name, NaN as a bare word, nested too deep."""
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def wrong(value: Any, form: Any, at: str) -> Iterator[Reason]:
    """Every place where a value departs from a form.

    A type stands for its values (float for whole numbers too, object for all), None for null, (a, b) for either, [a]
    for a list of such, {"name": a} for an object of just these names, `Each(a)` for one of any names.
    """
    if isinstance(form, tuple):
        if not any(next(wrong(value, one, at), None) is None for one in form):
            yield from wrong(value, form[0], at)
    elif isinstance(form, type) or form is None:
        if not _is(value, form):
            yield _reason(at, value, "null" if form is None else form.__name__)
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield _reason(at, value, "a list")
        elif not (isinstance(form[0], type) and all(_is(one, form[0]) for one in value)):
            for number, one in enumerate(value):
                yield from wrong(one, form[0], f"{at}[{number}]")
    elif not isinstance(value, dict):
        yield _reason(at, value, "an object")
    elif isinstance(form, Each):
        for name, one in value.items():
            yield from wrong(one, form.form, f"{at}.{name[:SHOWN]}")
    else:
        for name in form.keys() - value.keys():
            yield Reason(
                "something is missing",
                given=f"{at} without {name!r}",
                expected=f"an object with {', '.join(form)}",
                fix=FIX,
            )
        for name in value.keys() - form.keys():
            yield Reason(
                "something unknown",
                given=f"{at}.{name[:SHOWN]}",
                expected=f"an object with {', '.join(form)}",
                fix=FIX,
            )
        for name in form.keys() & value.keys():
            yield from wrong(value[name], form[name], f"{at}.{name}")


FIX = "use the run as regard wrote it, or record it again"


def _reason(at: str, value: Any, expected: str) -> Reason:
    return Reason("something else than expected", given=f"{at} is {str(value)[:SHOWN]}", expected=expected, fix=FIX)


def _is(value: Any, kind: type | None) -> bool:
    if kind is None:
        return value is None
    return kind is object or type(value) is kind or (kind is float and type(value) is int and abs(value) <= EXACT)


def _plain(value: Any, where: str, at: str) -> Any:
    """The value in the types that JSON has, the numbers it lacks as objects."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, dict) and all(isinstance(name, str) for name in value) and not _named(value):
        return {name: _plain(one, where, f"{at}.{name}") for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, where, f"{at}[{number}]") for number, one in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise refuse(
        where,
        "something that a file of JSON cannot hold",
        given=f"{at.lstrip('.')}: {type(value).__name__} {str(value)[:SHOWN]}",
        expected="numbers, text, true, false, None, and lists and dictionaries of them",
        fix="turn it into one of these",
    )


def _object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it gives two values under one name")
    return NAMES[found["float"]] if _named(found) else found


def _named(value: dict) -> bool:
    """Whether this is how a number is written that JSON lacks."""
    return value.keys() == {"float"} and isinstance(value["float"], str) and value["float"] in NAMES


def _constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
