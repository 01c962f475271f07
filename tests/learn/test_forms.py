"""Forms of questions: what people type is read, answers are judged, and unreadable ones say what to type."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.learn.forms import FORMS, Unreadable

NUMBER = {
    "answer": 8,
    "tolerance": 0.4,
    "wrong": [{"answer": 64, "why": "the variance"}, {"answer": 1, "why": "one product"}],
    "otherwise": "variances add",
}
SHAPE = {"answer": [2, 10, 512], "wrong": [{"answer": [2, 512, 10], "why": "exchanged"}], "otherwise": "count"}
CHOICE = {"choices": [{"text": "a", "why": "not a"}, {"text": "b"}, {"text": "c", "why": "not c"}], "answer": 2}
PAIRS = {"left": ["x", "y"], "right_side": ["u", "v", "w"], "answer": [3, 1], "why": ["x has w", "y has u"]}
TABLE = {
    "rows": ["first", "second"],
    "columns": ["a", "b"],
    "answer": [[1, 0.5], [0.25, 2]],
    "why": ["rows sum", "not a row"],
    "tolerance": 0.01,
}
LINE = {
    "code": "one\ntwo\nthree\n",
    "answer": [2, 3],
    "wrong": [{"answer": 1, "why": "this is right"}],
    "otherwise": "read on",
}
FIELDS = {"number": NUMBER, "shape": SHAPE, "choice": CHOICE, "pairs": PAIRS, "table": TABLE, "line": LINE}


TYPED = {
    2: ["+2"],
    4: ["= 4"],
    5: ["5."],
    8: [" 8.0 ", "~8", "≈ 8"],
    8.5: ["8,5"],
    -2: ["−2", "–2"],
    0.5: ["50%", ".5"],
    40_000: ["40\u00a0000", "40\u202f000", "40'000"],
    40_000.5: ["40,000.5"],
    1e-3: ["1e-3"],
    0.125: ["2^-3"],
    1e10: ["10^10", "10**10"],
    4e10: ["4·10^10", "4*10^10", "4 x 10^10", "4×10^10"],
    math.inf: ["inf", "∞", "infinity"],
    -math.inf: ["-inf", "−∞"],
    1 / 3: ["1/3", "1 / 3"],
    2**0.5: ["√2", "sqrt(2)"],
    0.5**0.5: ["1/√2"],
    math.nan: ["nan"],
    math.e: ["e"],
}


@pytest.mark.parametrize(("number", "texts"), TYPED.items())
def test_numbers_as_people_type_them(number, texts):
    """German and English, fractions, powers, per cent, signs of mathematics."""
    found = [FORMS["number"].read(typed, {"answer": number}) for typed in texts]
    assert found == pytest.approx([number] * len(texts), rel=1e-12, nan_ok=True)


NO_NUMBERS = (
    "",
    " ",
    "eight",
    "1/0",
    "1/2/3",
    "1//2",
    "8 or 9",
    "--8",
    "√-2",
    "1e",
    "1e999999999",
    "10^10^10",
    "10^99999",
)
NO_NUMBERS += ("()", "%", "5 %%", "1,2,3", "0x10")


@pytest.mark.parametrize("typed", NO_NUMBERS)
def test_what_is_not_a_number(typed):
    """The message says what was typed, and what to type."""
    with pytest.raises(Unreadable, match="is not a number; type one such as 8, "):
        FORMS["number"].read(typed, NUMBER)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_of_python_is_read(number):
    """With a point or a comma, with either sign for minus; three digits after a comma are a group."""
    text = repr(number)

    assert FORMS["number"].read(text, NUMBER) == number
    grouped = re.fullmatch(r"-?[1-9]\d{0,2}\.\d{3}", text)  # 1.125 with a comma is 1,125: a thousand and more
    if "." in text and not grouped:
        assert FORMS["number"].read(text.replace(".", ",").replace("-", "−"), NUMBER) == number


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_every_grouped_number_is_read(number):
    """Groups of three."""
    for text in (f"{number:,}", f"{number:_}", f"{number:,}".replace(",", " ")):
        assert FORMS["number"].read(text, NUMBER) == number


@given(st.floats(), st.sampled_from([math.inf, -math.inf]))
def test_only_infinity_is_infinite(number, infinity):
    """As a right answer and as a wrong one that is explained."""
    assert FORMS["number"].judge(number, {"answer": infinity}).right == (number == infinity)
    wrong = {"answer": 0.5, "wrong": [{"answer": infinity, "why": "infinite"}], "otherwise": "finite"}
    if number != 0.5:
        assert FORMS["number"].judge(number, wrong).why == ("infinite" if number == infinity else "finite")


@given(st.text(max_size=20), st.sampled_from(sorted(FIELDS)))
def test_any_text_is_an_answer_or_unreadable(text, name):
    """Nothing else is raised, and an answer that is read can be judged."""
    form, fields = FORMS[name], FIELDS[name]
    try:
        answer = form.read(text, fields)
    except Unreadable as unreadable:
        assert "type" in str(unreadable)
        return
    form.judge(answer, fields)


# By form: right answers as people type them, wrong ones with their explanation, and unreadable ones with what is said.
RIGHT = {
    "number": ["8,3"],
    "shape": ["2, 10, 512", "(2,10,512)", "2 x 10 x 512", "[2 10 512]", "2×10×512"],
    "choice": ["2", " 2.", "2)"],
    "pairs": ["3 1", "A3 B1", "3,1", "31"],
    "table": ["1 0.5 | 0.25 2", "1 1/2\n0,25 2", "1; 0.5\n0.25; 2", "1 0.505 | 0.25 2", "1, 0.5 | 0.25, 2"],
    "line": ["2", "line 2"],
}
WRONG = {
    "number": {"64": "the variance", "7": "variances add"},
    "shape": {"2,512,10": "exchanged", "2, 10, 512, 1": "count"},
    "choice": {"3": "not c"},
    "pairs": {"3 2": "B (y): y has u", "1 2": "A (x): x has w\nB (y): y has u"},
    "table": {"1 0.6 | 0.25 2": "first, b: not 0.6, but 0.5\nrows sum"},
    "line": {"1": "this is right"},
}
UNREADABLE = {
    "shape": {
        "": "type sizes such as 2, 10, 512",
        "n, d": "'n, d' is not a shape",
        **dict.fromkeys(("-1, 2", "2.5, 3", ","), "is not a shape"),
    },
    "choice": dict.fromkeys(("0", "4", "b", "1 2"), "1 to 3"),
    "pairs": {"1": "type 2 numbers from 1 to 3", "1 2 3": "type 2 numbers", "1 4": "from 1 to 3"},
    "table": {"1 2": "type 2 rows of 2 numbers", "1 2 | 3 x": "'x' is not a number", "": "2 rows of 2"},
    "line": dict.fromkeys(("0", "4", "²"), "1 to 3"),
}


@pytest.mark.parametrize("name", FORMS)
def test_answers_are_judged(name):
    """Right ones as people type them; each wrong one has its own explanation, and others are told what to type."""
    form, fields = FORMS[name], FIELDS[name]
    for typed, why in (dict.fromkeys(RIGHT[name], "") | WRONG[name]).items():
        judged = form.judge(form.read(typed, fields), fields)
        assert (judged.right, judged.why) == (not why, why)
    for typed, message in UNREADABLE.get(name, {}).items():
        with pytest.raises(Unreadable) as unreadable:
            form.read(typed, fields)
        assert message in str(unreadable.value)


# What a reveal leaves in `answer`: values that agree with the stated answer, and values that do not.
COMPUTED = {
    "number": ([8.2, np.float32(8)], [9, math.nan]),
    "shape": ([(2, 10, 512)], [(2, 10)]),
    "choice": ([2], [1]),
    "pairs": ([(3, 1)], [[1, 3]]),
    "table": ([np.array(TABLE["answer"])], [[[1, 0.5], [0.25, 3]], [[1, 0.5]]]),
    "line": ([2, [2, 3]], [1]),
}


@pytest.mark.parametrize("name", FORMS)
def test_computed_answers(name):
    """They are compared with the stated answer."""
    for values, agrees in zip(COMPUTED[name], (True, False)):
        assert [FORMS[name].judge(value, FIELDS[name]).right for value in values] == [agrees] * len(values)


@pytest.mark.parametrize(
    ("name", "how", "shown"),
    [
        ("number", "a number", "8"),
        ("shape", "a shape, such as 2, 10, 512", "(2, 10, 512)"),
        ("choice", "1 to 3", "2. b"),
        ("pairs", "2 numbers: the partner of A, of B, …", "A with 3, B with 1"),
        ("table", "a row of 2 numbers", "1 0.5 | 0.25 2"),
        ("line", "the number of a line", "line 2 or line 3"),
    ],
)
def test_every_form_says_how_to_answer(name, how, shown):
    """How to type it, and the right answer in words; its fields are right."""
    form, fields = FORMS[name], FIELDS[name]

    assert (form.how(fields), form.shown(fields), list(form.check(fields))) == (how, shown, [])


WRONG_FIELDS = {
    "number": [
        ({"tolerance": -1}, "tolerance must not be negative"),
        ({"wrong": [3]}, "wrong must be a list of"),
        ({"wrong": [{"answer": "x", "why": "y"}]}, "must be an answer of this form"),
    ],
    "shape": [
        ({"answer": [2, -1]}, "answer must be a list of sizes"),
        ({"wrong": [{"answer": 2, "why": "x"}]}, "must be an answer of this form"),
    ],
    "choice": [
        ({"answer": 4}, "there are choices 1 to 3"),
        ({"answer": 1}, "choice 2 is wrong and lacks why"),
        ({"choices": ["a", "b"]}, "choice 1 must be"),
    ],
    "pairs": [({"why": ["x"]}, "must have the same length"), ({"answer": [3, 4]}, "numbers from 1 to 3")],
    "table": [
        ({"answer": [[1, 2]]}, "2 rows of 2 numbers"),
        ({"answer": [[1, 2], [3, "x"]]}, "answer must hold numbers"),
        ({"why": ["x"]}, "why must have 2 texts"),
    ],
    "line": [({"answer": each}, "the code has lines 1 to 3") for each in (4, [])],
}


@pytest.mark.parametrize("name", FORMS)
def test_fields_that_are_wrong(name):
    """A chapter with such fields is refused."""
    for change, problem in WRONG_FIELDS[name]:
        assert any(problem in each for each in FORMS[name].check(FIELDS[name] | change)), change
