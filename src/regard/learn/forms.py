"""The forms of questions: how an answer is typed, when it is right, and what is said of a wrong one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from .chapter import Question

Fields = Mapping[str, Any]  # those of a question


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

    fields: those of a question, with their types; NoneType: it may be left out · check: what is wrong with fields of
    these types · how: what to type · read: an answer from what was typed · judge: whether that, or what code computed,
    is right · shown: the right answer, in words
    """

    fields: Mapping[str, type | tuple[type, ...]]
    check: Callable[[Fields], Iterator[str]]
    how: Callable[[Fields], str]
    read: Callable[[str, Fields], Any]
    judge: Callable[[Any, Fields], Judged]
    shown: Callable[[Fields], str]


# ---- a number --------------------------------------------------------------------------------------------------------

# As people type it: 8,5 · 40 000 · 40,000 · 4·10^10 · 1e-3 · 1/√2 · 50% · −2 · ∞.
SIGNS = {"−": "-", "–": "-", "**": "^", "·": "*", "×": "*", " x ": "*", "∞": "inf", "infinity": "inf", "π": "pi"}
NAMED = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e}
GROUPED = re.compile(r"[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
GROUPED_BY_POINTS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+,\d+")
PLAIN = re.compile(r"(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")
FACTOR = re.compile(r"(?P<sign>[-+]?)(?P<root>√?)(?P<base>[^\^√%]+)(\^(?P<power>[^\^%]+))?(?P<percent>%?)")


def typed_number(text: str) -> float:
    """The number that a text means: one, or a product, power or quotient. Raises ValueError.

    >>> typed_number("4·10^10"), typed_number("8,5"), typed_number("1/4")
    (40000000000.0, 8.5, 0.25)
    """
    plain = text.strip().lower().lstrip("~≈=")
    for sign, instead in SIGNS.items():
        plain = plain.replace(sign, instead)
    plain = "".join(plain.split())
    plain = re.sub(r"(?<=\d)[_'](?=\d)", "", plain)
    plain = re.sub(r"sqrt\(([^()]*)\)", r"√\1", plain)
    above, slash, below = plain.partition("/")
    try:
        number = _product(above) / (_product(below) if slash else 1.0)
    except (ZeroDivisionError, OverflowError) as error:
        raise ValueError(str(error)) from error
    if math.isinf(number) and "inf" not in plain:
        raise ValueError("too large")
    return number


def _product(text: str) -> float:
    return math.prod(_factor(each) for each in text.split("*"))


def _factor(text: str) -> float:
    match = FACTOR.fullmatch(text)
    if match is None:
        raise ValueError(text)
    number = _single(match["base"])
    if match["root"]:
        number = math.sqrt(number)
    if match["power"]:
        power = match["power"]
        number = number ** (-_single(power[1:]) if power.startswith("-") else _single(power))
    return (-number if match["sign"] == "-" else number) / (100 if match["percent"] else 1)


def _single(text: str) -> float:
    if text in NAMED:
        return NAMED[text]
    if GROUPED.fullmatch(text):
        text = text.replace(",", "")
    elif GROUPED_BY_POINTS.fullmatch(text):
        text = text.replace(".", "")
    text = text.replace(",", ".")
    if not PLAIN.fullmatch(text):
        raise ValueError(text)
    return float(text)


def _number(text: str) -> float:
    try:
        return typed_number(text)
    except ValueError:
        raise Unreadable(f"{text.strip()!r} is not a number; type one such as 8, 0.25, 1/3 or 1e10") from None


def _near(given: float, wanted: float, tolerance: float) -> bool:
    if math.isnan(wanted):
        return math.isnan(given)
    finite = math.isfinite(wanted)  # 1e-12 times infinity would be infinite, too
    return given == wanted or (finite and abs(given - wanted) <= tolerance + 1e-12 * abs(wanted))


def _compared(fields: Fields, same: Callable[[Any], bool]) -> Judged:
    """Whether the right answer is the same as what was typed; if not, the explanation of the wrong answer that is, or
    of all others.
    """
    if same(fields["answer"]):
        return Judged(True)
    expected = (each["why"] for each in fields.get("wrong", ()) if same(each["answer"]))
    return Judged(False, next(expected, fields.get("otherwise", "")))


# ---- a shape ---------------------------------------------------------------------------------------------------------


def _read_shape(text: str, fields: Fields) -> list[int]:
    if not re.fullmatch(r"[\s\d,×x()\[\]]*", text) or not (re.search(r"\d", text) or text.strip() in ("()", "[]")):
        raise Unreadable(f"{text.strip()!r} is not a shape; type sizes such as 2, 10, 512")
    return [int(size) for size in re.findall(r"\d+", text)]


# ---- a choice, and pairs ---------------------------------------------------------------------------------------------


def _read_one(text: str, count: int, what: str) -> int:
    """The number of an answer or of a line."""
    match = re.fullmatch(r"(?:line\s*)?(\d+)[.)]*", text.strip().lower())
    if match is None or not 1 <= int(match[1]) <= count:
        raise Unreadable(f"type the number of {what}, 1 to {count}")
    return int(match[1])


def _judge_choice(given: int, fields: Fields) -> Judged:
    whys = [each.get("why", "") for each in fields["choices"]]
    return Judged(True) if given == fields["answer"] else Judged(False, "".join(whys[given - 1 : given]))


def _read_pairs(text: str, fields: Fields) -> list[int]:
    count = len(fields["left"])
    apart = text.strip().isdecimal() and len(text.strip()) == count <= 9  # "312" is 3 1 2
    numbers = [int(number) for number in re.findall(r"\d" if apart else r"\d+", text)]
    if len(numbers) != count or not all(1 <= each <= len(fields["right_side"]) for each in numbers):
        raise Unreadable(
            f"type {count} numbers from 1 to {len(fields['right_side'])}: the partner of A, of B, … such as "
            f"{' '.join(str(1 + each % len(fields['right_side'])) for each in range(count))}"
        )
    return numbers


def _judge_pairs(given: Sequence[int], fields: Fields) -> Judged:
    missed = [number for number, (mine, right) in enumerate(zip(given, fields["answer"])) if mine != right]
    why = "\n".join(f"{chr(65 + each)} ({fields['left'][each]}): {fields['why'][each]}" for each in missed)
    return Judged(list(given) == fields["answer"], why)


# ---- a table ---------------------------------------------------------------------------------------------------------


def _read_table(text: str, fields: Fields) -> list[list[float]]:
    rows = [re.sub(r";|,(?=\s)|,$", " ", line).split() for line in re.split(r"\n|\|", text) if line.strip()]
    height, width = len(fields["rows"]), len(fields["columns"])
    if [len(row) for row in rows] != [width] * height:
        raise Unreadable(f"type {height} rows of {width} numbers")
    return [[_number(cell) for cell in row] for row in rows]


def _judge_table(given: Sequence[Sequence[float]], fields: Fields) -> Judged:
    tolerance = fields.get("tolerance", 0)
    lines, whys = [], {}
    for name, mine, answer, why in zip(fields["rows"], given, fields["answer"], fields["why"]):
        for column, cell, number in zip(fields["columns"], mine, answer):
            if not _near(cell, number, tolerance):
                lines.append(f"{name}, {column}: not {cell:g}, but {number:g}")
                whys[name] = why
    whole = [len(row) for row in given] == [len(fields["columns"])] * len(fields["rows"])
    return Judged(whole and not lines, "\n".join([*lines, *whys.values()]))


# ---- a line ----------------------------------------------------------------------------------------------------------


def code_lines(fields: Fields) -> list[str]:
    """The lines of the code in which one is searched for."""
    return str(fields["code"]).strip("\n").splitlines()


def _lines(answer: int | list[int]) -> list[int]:
    """The lines that are accepted."""
    return answer if isinstance(answer, list) else [answer]


# ---- a question as text ----------------------------------------------------------------------------------------------


def judge(question: Question, text: str) -> Judged:
    """How an answer is judged. Raises Unreadable."""
    form = FORMS[question.form]
    return form.judge(form.read(text, question.fields), question.fields)


def right_answer(question: Question) -> str:
    """The right answer, in words."""
    return FORMS[question.form].shown(question.fields)


def options(question: Question) -> str:
    """What a question shows to choose from."""
    fields = question.fields
    match question.form:
        case "choice":
            return "\n".join(f"{at}. {each['text']}" for at, each in enumerate(fields["choices"], 1))
        case "pairs":
            left = "\n".join(f"- **{chr(65 + at)}** {text}" for at, text in enumerate(fields["left"]))
            return left + "\n\n" + "\n".join(f"{at}. {text}" for at, text in enumerate(fields["right_side"], 1))
        case "table":
            return f"Rows: {', '.join(map(str, fields['rows']))}. Columns: {', '.join(map(str, fields['columns']))}."
        case "line":
            lines = code_lines(fields)
            width = len(str(len(lines)))
            return "```text\n" + "\n".join(f"{at:{width}} {line}" for at, line in enumerate(lines, 1)) + "\n```"
    return ""


def whys(question: Question) -> Iterator[str]:
    """Why the other answers are wrong."""
    fields = question.fields
    match question.form:
        case "choice":
            for at, each in enumerate(fields["choices"], 1):
                if each.get("why"):
                    yield f"{at}: {each['why']}"
        case "pairs" | "table":
            for name, why in zip(fields["left" if question.form == "pairs" else "rows"], fields["why"]):
                yield f"{name}: {why}"
        case _:
            for each in fields.get("wrong", ()):
                yield f"{each['answer']}: {each['why']}"


# ---- the fields of a chapter -----------------------------------------------------------------------------------------


def _check_wrong(fields: Fields, kind: type | tuple[type, ...]) -> Iterator[str]:
    """What is wrong with the list of wrong answers."""
    for each in fields.get("wrong", ()):
        if not isinstance(each, Mapping) or each.keys() != {"answer", "why"}:
            yield "wrong must be a list of { answer = …, why = … }"
        elif not isinstance(each["answer"], kind) or not isinstance(each["why"], str):
            yield f"wrong: {each['answer']!r} must be an answer of this form, and why a text"


def _check_number(fields: Fields) -> Iterator[str]:
    yield from _check_wrong(fields, NUMBER)
    if fields.get("tolerance", 0) < 0:
        yield "tolerance must not be negative"


def _check_shape(fields: Fields) -> Iterator[str]:
    if not all(type(size) is int and size >= 0 for size in fields["answer"]):
        yield "answer must be a list of sizes"
    yield from _check_wrong(fields, list)


def _check_choice(fields: Fields) -> Iterator[str]:
    choices, answer = fields["choices"], fields["answer"]
    if not 1 <= answer <= len(choices):
        yield f"answer = {answer}: there are choices 1 to {len(choices)}"
    for number, each in enumerate(choices, 1):
        if not isinstance(each, Mapping) or not isinstance(each.get("text"), str) or each.keys() - {"text", "why"}:
            yield f'choice {number} must be {{ text = "…", why = "…" }}'
        elif number != answer and not isinstance(each.get("why"), str):
            yield f"choice {number} is wrong and lacks why"


def _check_pairs(fields: Fields) -> Iterator[str]:
    count = len(fields["left"])
    if not len(fields["answer"]) == len(fields["why"]) == count:
        yield "left, answer and why must have the same length"
    if not all(type(each) is int and 1 <= each <= len(fields["right_side"]) for each in fields["answer"]):
        yield f"answer must hold numbers from 1 to {len(fields['right_side'])}"


def _check_table(fields: Fields) -> Iterator[str]:
    height, width = len(fields["rows"]), len(fields["columns"])
    rows = fields["answer"]
    if len(rows) != height or not all(isinstance(row, list) and len(row) == width for row in rows):
        yield f"answer must have {height} rows of {width} numbers"
    elif not all(isinstance(cell, NUMBER) for row in rows for cell in row):
        yield "answer must hold numbers"
    if len(fields["why"]) != height:
        yield f"why must have {height} texts, one for each row"


def _check_line(fields: Fields) -> Iterator[str]:
    count = len(code_lines(fields))
    if not all(type(each) is int and 1 <= each <= count for each in _lines(fields["answer"])) or not fields["answer"]:
        yield f"answer: the code has lines 1 to {count}"
    yield from _check_wrong(fields, int)


NUMBER, LIST, WORDS = (int, float), list, str
EXPLAINED: Fields = {"wrong": (LIST, NoneType), "otherwise": (WORDS, NoneType)}
TOLERANCE: Fields = {"tolerance": (*NUMBER, NoneType)}

FORMS: dict[str, Form] = {
    "number": Form(
        {"answer": NUMBER, **TOLERANCE, **EXPLAINED},
        check=_check_number,
        how=lambda fields: "a number",
        read=lambda text, fields: _number(text),
        judge=lambda given, fields: _compared(fields, lambda each: _near(given, each, fields.get("tolerance", 0))),
        shown=lambda fields: f"{fields['answer']:.15g}",
    ),
    "shape": Form(
        {"answer": LIST, **EXPLAINED},
        check=_check_shape,
        how=lambda fields: "a shape, such as 2, 10, 512",
        read=_read_shape,
        judge=lambda given, fields: _compared(fields, lambda each: list(each) == list(given)),
        shown=lambda fields: str(tuple(fields["answer"])),
    ),
    "choice": Form(
        {"choices": LIST, "answer": int},
        check=_check_choice,
        how=lambda fields: f"1 to {len(fields['choices'])}",
        read=lambda text, fields: _read_one(text, len(fields["choices"]), "one of the answers"),
        judge=_judge_choice,
        shown=lambda fields: f"{fields['answer']}. {fields['choices'][fields['answer'] - 1]['text']}",
    ),
    "pairs": Form(
        {"left": LIST, "right_side": LIST, "answer": LIST, "why": LIST},
        check=_check_pairs,
        how=lambda fields: f"{len(fields['left'])} numbers: the partner of A, of B, …",
        read=_read_pairs,
        judge=_judge_pairs,
        shown=lambda fields: ", ".join(f"{chr(65 + at)} with {each}" for at, each in enumerate(fields["answer"])),
    ),
    "table": Form(
        {"rows": LIST, "columns": LIST, "answer": LIST, "why": LIST, **TOLERANCE},
        check=_check_table,
        how=lambda fields: f"a row of {len(fields['columns'])} numbers",
        read=_read_table,
        judge=_judge_table,
        shown=lambda fields: " | ".join(" ".join(f"{cell:g}" for cell in row) for row in fields["answer"]),
    ),
    "line": Form(
        {"code": WORDS, "answer": (int, list), **EXPLAINED},
        check=_check_line,
        how=lambda fields: "the number of a line",
        read=lambda text, fields: _read_one(text, len(code_lines(fields)), "a line"),
        judge=lambda given, fields: _compared(fields, lambda each: given == each or given in _lines(each)),
        shown=lambda fields: " or ".join(f"line {each}" for each in _lines(fields["answer"])),
    ),
}
