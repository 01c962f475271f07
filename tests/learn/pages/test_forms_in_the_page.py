"""Answers are judged in the page as in the terminal: every question of the course, and many ways to type."""

import itertools
import random

import pytest

from regard.learn.forms import FORMS, Unreadable, typed_number
from regard.learn.pages.chapter_html import question_data
from regard.learn.pages.site import FILES
from tests.learn.chapter_files import each_chapter
from tests.learn.test_forms import NO_NUMBERS, TYPED

pytestmark = pytest.mark.browser

NUMBERS = (*itertools.chain(*TYPED.values()), *NO_NUMBERS, "1e999", "10^400", "12,345", "2*pi", "1_000")
SHAPES = ("2, 10, 512", "(2,)", "2 x 3", "2×3", "[4 5]", "()", "", "2; 3", "two", "(3, 5)", "x", ",")


@pytest.fixture(scope="module")
def judging(chromium, tmp_path_factory):
    """The script of the pages, in a page without questions."""
    folder = tmp_path_factory.mktemp("forms")
    (folder / "course.js").write_text(FILES["course.js"](), encoding="utf-8")
    head = '<!doctype html><meta charset="utf-8"><p id="status"></p>'
    data = '<script type="application/json" id="data">{"contents": true}</script><script src="course.js"></script>'
    (folder / "page.html").write_text(head + data, encoding="utf-8")
    tab = chromium.new_page()
    tab.goto((folder / "page.html").as_uri())
    yield tab
    tab.close()


def test_numbers_are_read_alike(judging):
    """However people type them; what the terminal cannot read, the page cannot, either."""
    read = "(texts) => texts.map(typedNumber).map((found) => (found === null ? null : String(found)))"
    for text, found in zip(NUMBERS, judging.evaluate(read, list(NUMBERS)), strict=True):
        try:
            expected = typed_number(text)
        except ValueError:
            assert found is None, text
            continue
        found = float(found.replace("Infinity", "inf"))
        assert found == pytest.approx(expected, rel=1e-15, abs=0, nan_ok=True), text


def typed(question, rng):
    """What people may type for a question, and the same as the fields of the page give it."""
    fields = question.fields
    near = [fields["answer"], *(each["answer"] for each in fields.get("wrong", ()))]
    match question.form:
        case "number":
            shifts = (0, 0.9 * fields.get("tolerance", 0), 0.01)
            texts = [repr(float(each) + shift) for each in near for shift in shifts] + rng.sample(NUMBERS, 8)
        case "shape":
            texts = [*map(str, near), *SHAPES]
        case "choice" | "line":
            count = len(fields.get("choices") or fields["code"].strip("\n").splitlines())
            texts = [str(each) for each in range(1, count + 1)]
        case "pairs":
            count, options = len(fields["left"]), range(1, len(fields["right_side"]) + 1)
            rows = [fields["answer"], *([rng.choice(options) for _ in range(count)] for _ in range(5))]
            return [(" ".join(map(str, row)), [str(each) for each in row]) for row in rows]
        case "table":
            right = fields["answer"]
            rows = [right, [[cell + rng.choice((0, 0, 1)) for cell in row] for row in right]]
            cells = [[[f"{cell!r}" for cell in row] for row in each] for each in rows]
            return [("\n".join(" ".join(row) for row in each), each) for each in cells]
    return [(text, text) for text in texts]


@pytest.mark.one_in(3)
@each_chapter
def test_every_question_is_judged_alike(judging, read):
    """The same answers are readable, right, and explained by the same words."""
    rng = random.Random(read.number)
    judge = """([question, typed]) => {
        const { answer, error } = FORMS[question.form].read(typed, question.fields);
        return error ? null : FORMS[question.form].judge(answer, question.fields);
    }"""
    for question in read.questions:
        form, data = FORMS[question.form], question_data(question)
        for text, given in typed(question, rng):
            shown = judging.evaluate(judge, [data, given])
            try:
                expected = form.judge(form.read(text, question.fields), question.fields)
            except Unreadable:
                assert shown is None, (question.name, text)
                continue
            assert shown is not None and shown["right"] == expected.right, (question.name, text)
            again = judging.evaluate("([text, question]) => typedAgain(text, question)", [text, data])
            assert again == given, (question.name, text)  # what is stored is read again
            if question.form != "table":  # numbers in its words have other digits
                assert shown["why"] == expected.why, (question.name, text)
