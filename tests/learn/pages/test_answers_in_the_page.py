"""Answers in the page: what is said of a wrong one, at once, after a reload, and after one in the terminal."""

from regard.learn.folder import changing
from regard.learn.pages import server
from tests.learn.pages.course import small_course
from tests.learn.pages.reader import Reader

MORE = '''
```toml question twins
ask = "Which partner?"
form = "pairs"
left = ["one", "two"]
right_side = ["odd", "even"]
answer = [1, 2]
why = ["1 is odd.", "2 is even."]
right = "Every second number is even."
```

```toml question fault
ask = "Which line?"
form = "line"
code = """
first()
second()
"""
answer = 2
wrong = [{ answer = 1, why = "The first is called rightly." }]
otherwise = "Read it again."
```
'''


def test_a_wrong_answer_is_explained_in_the_words_of_the_page(contexts, tmp_path):
    """What was chosen and why it is wrong, in words that the page shows; a reload and the terminal show the same."""
    with server.CourseServer(tmp_path / "learner", small_course(tmp_path / "chapters", MORE)) as running:
        page = Reader(contexts(), running.address).open("03-scores.html")
        page.answer("size", "9")
        page.tab.check("#last input[value='1']")
        page.tab.check("#fault input[value='1']")
        for select in page.tab.locator("#twins select").all():
            select.select_option("2")
        for name in ("last", "twins", "fault"):
            page.tab.click(f"#{name} [type=submit]")
        page.until("progress.answers['3/fault'].at")  # stored
        for _ in range(2):
            shown = {name: page.text(f"#{name} .judged").split("\n\n") for name in ("size", "last", "twins", "fault")}
            assert shown == {
                "size": ["You answered 9; the answer is 8.", "Count them."],
                "last": ["You answered “this”; the answer is “that”.", "No."],
                "twins": ["The answer is A odd; B even.", "A (one): 1 is odd."],
                "fault": ["You answered line 1; the answer is line 2.", "The first is called rightly."],
            }
            page.tab.reload()
            page.ready()
        assert page.tab.input_value("#size .typed") == "9" and page.tab.is_checked("#last input[value='1']")
        assert [each.input_value() for each in page.tab.locator("#twins select").all()] == ["2", "2"]
        assert page.said == []


TERMINAL = (  # a question, what was typed, and words that explain it
    ("last", "1.", "You answered “this”; the answer is “that”."),
    ("twins", "22", "A (one): 1 is odd."),
    ("fault", "line 1", "The first is called rightly."),
    ("fault", "7", "You answered 7; the answer is line 2."),
    ("size", "of another course", "You answered of another course; the answer is 8."),
)


def test_answers_of_the_terminal_are_explained_too(contexts, tmp_path):
    """As they were typed there; one that no longer fits the question is shown as it is."""
    chapters, folder = small_course(tmp_path / "chapters", MORE), tmp_path / "learner"
    with server.CourseServer(folder, chapters) as running:
        page = Reader(contexts(), running.address)
        for key, text, words in TERMINAL:
            with changing(folder) as progress:
                progress.answers.clear()
                progress.answered("3/size", "7", False)
                progress.answers.pop("3/" + key, None)
                progress.answered("3/" + key, text, False)
            page.open("03-scores.html")
            assert words in page.text(f"#{key} .judged") and page.said == [], text
