"""Strict JSON: duplicate names and bare NaN are rejected, and values are validated against a form before use.

JSON has no NaN and ±infinity, which faulty models produce: they are written {"float": "nan"}, "inf" or "-inf".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from ..errors import Reason, refuse

NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
EXACT = 1 << 53  # integers up to here are exact as floats
FIX = "use the unchanged files of the run, or record it again"  # of a recorded run, unless another is passed
SHOWN = 80  # characters of an untrusted value in a message


class Each:
    """The form of an object with arbitrary names whose values all have one form."""

    def __init__(self, form: Any):
        self.form = form


def dumps(value: Any, where: str) -> str:
    """JSON in one line of ASCII. Refused: values that JSON cannot represent, with their path.

    >>> dumps({"a": (1, 0.5, float("nan"), None)}, "save")
    '{"a": [1, 0.5, {"float": "nan"}, null]}'
    """
    return json.dumps(_plain(value, where, ""), allow_nan=False)


def loads(raw: bytes) -> Any:
    """The value of a JSON text. ValueError: invalid JSON, duplicate names, bare NaN, or nesting that is too deep."""
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def wrong(value: Any, form: Any, at: str, fix: str = FIX) -> Iterator[Reason]:
    """A reason for every place where a value does not match a form.

    A type matches its values (float also integers, object everything), None matches null, (a, b) either form, [a] a
    list of that form, {"name": a} an object with exactly these names, `Each(a)` an object with any names.
    """
    if isinstance(form, tuple):
        if not any(next(wrong(value, one, at, fix), None) is None for one in form):
            yield from wrong(value, form[0], at, fix)
    elif isinstance(form, type) or form is None:
        if not _is(value, form):
            yield _reason(at, value, "null" if form is None else form.__name__, fix)
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield _reason(at, value, "a list", fix)
        elif not (isinstance(form[0], type) and all(_is(one, form[0]) for one in value)):
            for number, one in enumerate(value):
                yield from wrong(one, form[0], f"{at}[{number}]", fix)
    elif not isinstance(value, dict):
        yield _reason(at, value, "an object", fix)
    elif isinstance(form, Each):
        for name, one in value.items():
            yield from wrong(one, form.form, f"{at}.{name[:SHOWN]}", fix)
    else:
        for name in form.keys() - value.keys():
            yield Reason("a missing name", f"{at} without {name!r}", f"an object with {', '.join(form)}", fix)
        for name in value.keys() - form.keys():
            yield Reason("an unknown name", f"{at}.{name[:SHOWN]}", f"an object with {', '.join(form)}", fix)
        for name in form.keys() & value.keys():
            yield from wrong(value[name], form[name], f"{at}.{name}", fix)


def _reason(at: str, value: Any, expected: str, fix: str) -> Reason:
    return Reason("an unexpected value", f"{at} is {str(value)[:SHOWN]}", expected, fix)


def _is(value: Any, kind: type | None) -> bool:
    if kind is None:
        return value is None
    return kind is object or type(value) is kind or (kind is float and type(value) is int and abs(value) <= EXACT)


def _plain(value: Any, where: str, at: str) -> Any:
    """The value in the types of JSON; NaN and infinities as objects."""
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
        "a value that JSON cannot represent",
        f"{at.lstrip('.')}: {type(value).__name__} {str(value)[:SHOWN]}",
        "numbers, text, true, false, None, and lists and dictionaries of them",
        "convert it to one of these",
    )


def _object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it has two values under one name")
    return NAMES[found["float"]] if _named(found) else found


def _named(value: dict) -> bool:
    """Whether this object represents NaN or an infinity."""
    return value.keys() == {"float"} and isinstance(value["float"], str) and value["float"] in NAMES


def _constant(word: str) -> None:
    raise ValueError(f"{word} is not valid JSON")
