"""The forms of questions: how an answer is typed, when it is right, and what is said of a wrong one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .typed_number import typed_number


class Unreadable(ValueError):
    """What was typed is not an answer of this form; the message says what is."""


@dataclass(frozen=True)
class Judged:
    """Whether an answer is right, and why not."""

    right: bool
    why: str = ""


@dataclass(frozen=True)
class Form:
    """One form of question.

    required, optional: its fields, with their types · check: what is wrong with fields of these types · how: what to
    type · read: an answer from what was typed ·
    judge: whether it is right · shown: the right answer, in words · agrees: whether the answer that code computed is
    the stated one
    """

    required: Mapping[str, type | tuple[type, ...]]
    optional: Mapping[str, type | tuple[type, ...]]
    check: Callable[[Mapping[str, Any]], Iterator[str]]
    how: Callable[[Mapping[str, Any]], str]
    read: Callable[[str, Mapping[str, Any]], Any]
    judge: Callable[[Any, Mapping[str, Any]], Judged]
    shown: Callable[[Mapping[str, Any]], str]
    agrees: Callable[[Any, Mapping[str, Any]], bool]


# ---- a number --------------------------------------------------------------------------------------------------------


def _number(text: str) -> float:
    try:
        return typed_number(text)
    except ValueError:
        raise Unreadable(f"{text.strip()!r} is not a number; type one such as 8, 0.25, 1/3 or 1e10") from None


def _near(given: float, wanted: float, tolerance: float) -> bool:
    if math.isnan(wanted) or math.isnan(given):
        return math.isnan(wanted) and math.isnan(given)
    if math.isinf(wanted):  # 1e-12 times it would be infinite, too
        return given == wanted
    return given == wanted or abs(given - wanted) <= tolerance + 1e-12 * abs(wanted)


def _judge_number(given: float, fields: Mapping[str, Any]) -> Judged:
    tolerance = fields.get("tolerance", 0)
    if _near(given, fields["answer"], tolerance):
        return Judged(True)
    return Judged(False, _why(fields, lambda each: _near(given, each, tolerance)))


def _why(fields: Mapping[str, Any], same: Callable[[Any], bool]) -> str:
    """The explanation of a wrong answer that was expected, or of all others."""
    expected = (each["why"] for each in fields.get("wrong", ()) if same(each["answer"]))
    return next(expected, fields.get("otherwise", ""))


# ---- a shape ---------------------------------------------------------------------------------------------------------


def _read_shape(text: str, fields: Mapping[str, Any]) -> list[int]:
    if not re.fullmatch(r"[\s\d,×x()\[\]]*", text) or not (re.search(r"\d", text) or text.strip() in ("()", "[]")):
        raise Unreadable(f"{text.strip()!r} is not a shape; type sizes such as 2, 10, 512")
    return [int(size) for size in re.findall(r"\d+", text)]


def _judge_shape(given: list[int], fields: Mapping[str, Any]) -> Judged:
    if list(given) == list(fields["answer"]):
        return Judged(True)
    return Judged(False, _why(fields, lambda each: list(each) == list(given)))


def _shape_words(shape: Any) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


# ---- a choice, and pairs ---------------------------------------------------------------------------------------------


def _read_choice(text: str, fields: Mapping[str, Any]) -> int:
    count = len(fields["choices"])
    if not text.strip().rstrip(".)").isdecimal() or not 1 <= int(text.strip().rstrip(".)")) <= count:
        raise Unreadable(f"type the number of one of the answers, 1 to {count}")
    return int(text.strip().rstrip(".)"))


def _judge_choice(given: int, fields: Mapping[str, Any]) -> Judged:
    right = given == fields["answer"]
    return Judged(right, "" if right else fields["choices"][given - 1]["why"])


def _read_pairs(text: str, fields: Mapping[str, Any]) -> list[int]:
    count = len(fields["left"])
    apart = text.strip().isdecimal() and len(text.strip()) == count <= 9  # "312" is 3 1 2
    numbers = [int(number) for number in re.findall(r"\d" if apart else r"\d+", text)]
    if len(numbers) != count or not all(1 <= each <= len(fields["right_side"]) for each in numbers):
        raise Unreadable(
            f"type {count} numbers from 1 to {len(fields['right_side'])}: the partner of A, of B, … such as "
            f"{' '.join(str(1 + each % len(fields['right_side'])) for each in range(count))}"
        )
    return numbers


def _judge_pairs(given: list[int], fields: Mapping[str, Any]) -> Judged:
    missed = [number for number, (mine, right) in enumerate(zip(given, fields["answer"])) if mine != right]
    why = "\n".join(f"{chr(65 + each)} ({fields['left'][each]}): {fields['why'][each]}" for each in missed)
    return Judged(not missed, why)


# ---- a table ---------------------------------------------------------------------------------------------------------


def _read_table(text: str, fields: Mapping[str, Any]) -> list[list[float]]:
    rows = [re.sub(r";|,(?=\s)|,$", " ", line).split() for line in re.split(r"\n|\|", text) if line.strip()]
    height, width = len(fields["rows"]), len(fields["columns"])
    if [len(row) for row in rows] != [width] * height:
        raise Unreadable(f"type {height} rows of {width} numbers")
    return [[_number(cell) for cell in row] for row in rows]


def _judge_table(given: list[list[float]], fields: Mapping[str, Any]) -> Judged:
    tolerance = fields.get("tolerance", 0)
    wrong = [
        (row, column)
        for row, (mine, right) in enumerate(zip(given, fields["answer"]))
        for column, (cell, number) in enumerate(zip(mine, right))
        if not _near(cell, number, tolerance)
    ]
    lines = [
        f"{fields['rows'][row]}, {fields['columns'][column]}: not {given[row][column]:g}, but "
        f"{fields['answer'][row][column]:g}"
        for row, column in wrong
    ]
    lines += [fields["why"][row] for row in dict.fromkeys(row for row, _ in wrong)]
    return Judged(not wrong, "\n".join(lines))


# ---- a line ----------------------------------------------------------------------------------------------------------


def _lines(fields: Mapping[str, Any]) -> list[int]:
    answer = fields["answer"]
    return list(answer) if isinstance(answer, list) else [answer]


def _read_line(text: str, fields: Mapping[str, Any]) -> int:
    count = len(fields["code"].strip("\n").splitlines())
    match = re.fullmatch(r"(?:line\s*)?(\d+)\.?", text.strip().lower())
    if match is None or not 1 <= int(match[1]) <= count:
        raise Unreadable(f"type the number of a line, 1 to {count}")
    return int(match[1])


def _judge_line(given: int, fields: Mapping[str, Any]) -> Judged:
    right = given in _lines(fields)
    return Judged(right, "" if right else _why(fields, lambda each: each == given))


def _numbers_agree(computed: Any, fields: Mapping[str, Any]) -> bool:
    return _near(float(computed), fields["answer"], fields.get("tolerance", 0))


def _tables_agree(computed: Any, fields: Mapping[str, Any]) -> bool:
    rows = [[float(cell) for cell in row] for row in computed]
    same = [len(row) for row in rows] == [len(fields["columns"])] * len(fields["rows"])
    return same and _judge_table(rows, fields).right


# ---- the fields of a chapter -----------------------------------------------------------------------------------------


def _check_wrong(fields: Mapping[str, Any], kind: type | tuple[type, ...]) -> Iterator[str]:
    """What is wrong with the list of wrong answers."""
    for each in fields.get("wrong", ()):
        if not isinstance(each, Mapping) or each.keys() != {"answer", "why"}:
            yield "wrong must be a list of { answer = …, why = … }"
        elif not isinstance(each["answer"], kind) or not isinstance(each["why"], str):
            yield f"wrong: {each['answer']!r} must be an answer of this form, and why a text"


def _check_number(fields: Mapping[str, Any]) -> Iterator[str]:
    yield from _check_wrong(fields, NUMBER)
    if fields.get("tolerance", 0) < 0:
        yield "tolerance must not be negative"


def _check_shape(fields: Mapping[str, Any]) -> Iterator[str]:
    if not all(type(size) is int and size >= 0 for size in fields["answer"]):
        yield "answer must be a list of sizes"
    yield from _check_wrong(fields, list)


def _check_choice(fields: Mapping[str, Any]) -> Iterator[str]:
    choices, answer = fields["choices"], fields["answer"]
    if not 1 <= answer <= len(choices):
        yield f"answer = {answer}: there are choices 1 to {len(choices)}"
    for number, each in enumerate(choices, 1):
        if not isinstance(each, Mapping) or not isinstance(each.get("text"), str) or each.keys() - {"text", "why"}:
            yield f'choice {number} must be {{ text = "…", why = "…" }}'
        elif number != answer and not isinstance(each.get("why"), str):
            yield f"choice {number} is wrong and lacks why"


def _check_pairs(fields: Mapping[str, Any]) -> Iterator[str]:
    count = len(fields["left"])
    if not len(fields["answer"]) == len(fields["why"]) == count:
        yield "left, answer and why must have the same length"
    if not all(type(each) is int and 1 <= each <= len(fields["right_side"]) for each in fields["answer"]):
        yield f"answer must hold numbers from 1 to {len(fields['right_side'])}"


def _check_table(fields: Mapping[str, Any]) -> Iterator[str]:
    height, width = len(fields["rows"]), len(fields["columns"])
    rows = fields["answer"]
    if len(rows) != height or not all(isinstance(row, list) and len(row) == width for row in rows):
        yield f"answer must have {height} rows of {width} numbers"
    elif not all(isinstance(cell, NUMBER) for row in rows for cell in row):
        yield "answer must hold numbers"
    if len(fields["why"]) != height:
        yield f"why must have {height} texts, one for each row"


def _check_line(fields: Mapping[str, Any]) -> Iterator[str]:
    count = len(fields["code"].strip("\n").splitlines())
    if not all(type(each) is int and 1 <= each <= count for each in _lines(fields)) or not _lines(fields):
        yield f"answer: the code has lines 1 to {count}"
    yield from _check_wrong(fields, int)


NUMBER, LIST, WORDS = (int, float), list, str

FORMS: dict[str, Form] = {
    "number": Form(
        required={"answer": NUMBER},
        optional={"tolerance": NUMBER, "wrong": LIST, "otherwise": WORDS},
        check=_check_number,
        how=lambda fields: "a number",
        read=lambda text, fields: _number(text),
        judge=_judge_number,
        shown=lambda fields: f"{fields['answer']:.15g}",
        agrees=_numbers_agree,
    ),
    "shape": Form(
        required={"answer": LIST},
        optional={"wrong": LIST, "otherwise": WORDS},
        check=_check_shape,
        how=lambda fields: "a shape, such as 2, 10, 512",
        read=_read_shape,
        judge=_judge_shape,
        shown=lambda fields: _shape_words(fields["answer"]),
        agrees=lambda computed, fields: list(computed) == list(fields["answer"]),
    ),
    "choice": Form(
        required={"choices": LIST, "answer": int},
        optional={},
        check=_check_choice,
        how=lambda fields: f"1 to {len(fields['choices'])}",
        read=_read_choice,
        judge=_judge_choice,
        shown=lambda fields: f"{fields['answer']}. {fields['choices'][fields['answer'] - 1]['text']}",
        agrees=lambda computed, fields: computed == fields["answer"],
    ),
    "pairs": Form(
        required={"left": LIST, "right_side": LIST, "answer": LIST, "why": LIST},
        optional={},
        check=_check_pairs,
        how=lambda fields: f"{len(fields['left'])} numbers: the partner of A, of B, …",
        read=_read_pairs,
        judge=_judge_pairs,
        shown=lambda fields: ", ".join(f"{chr(65 + at)} with {each}" for at, each in enumerate(fields["answer"])),
        agrees=lambda computed, fields: list(computed) == list(fields["answer"]),
    ),
    "table": Form(
        required={"rows": LIST, "columns": LIST, "answer": LIST, "why": LIST},
        optional={"tolerance": NUMBER},
        check=_check_table,
        how=lambda fields: f"a row of {len(fields['columns'])} numbers",
        read=_read_table,
        judge=_judge_table,
        shown=lambda fields: " | ".join(" ".join(f"{cell:g}" for cell in row) for row in fields["answer"]),
        agrees=_tables_agree,
    ),
    "line": Form(
        required={"code": WORDS, "answer": (int, list)},
        optional={"wrong": LIST, "otherwise": WORDS},
        check=_check_line,
        how=lambda fields: "the number of a line",
        read=_read_line,
        judge=_judge_line,
        shown=lambda fields: " or ".join(f"line {each}" for each in _lines(fields)),
        agrees=lambda computed, fields: computed in _lines(fields) or computed == fields["answer"],
    ),
}
