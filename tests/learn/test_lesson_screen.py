"""The lesson in a terminal: nothing that is printed is cut off, and no screen is empty."""

import pytest

from regard.cli.terminal import Console
from regard.learn.checking.problem import Checked, Problem
from regard.learn.folder import read
from regard.learn.lesson import Lesson
from regard.learn.screen import Screen
from regard.learn.source import chapters, read_chapter
from tests.learn.chapter_files import HEAD, SCORES, chapter

EXERCISE = chapters()[3].exercises[0]
CLAIM = '```python claim a\n"""Two is even."""\nholds = 2 % 2 == 0\n```\n'


class Pages(Screen):
    """Counts what is shown until Enter is pressed."""

    count = 0

    def pause(self):
        self.count += 1


def test_headings_are_shown_with_what_follows(tmp_path):
    """A title, a section with words, two sections that begin with a program: three screens."""
    screen = Pages(Console())
    text = f"# Scores\n\n## A\n\nWords.\n\n## B\n\n{CLAIM}\n## C\n\n{CLAIM.replace('claim a', 'claim b')}"
    Lesson(tmp_path / "learner", [chapter(tmp_path, text)], screen).teach()

    assert screen.count == 3


SHORT = """## A

Words.

```toml prediction two
ask = "1 + 1?"
form = "number"
answer = 2
```

```python reveal two folded
line = input("A number of yours")
print("typed", line)
answer = 2
```

{exercise}
<!-- deeper -->
## B

More words.
"""


class Typing(Pages):
    """A terminal at which somebody types these lines; None: nothing is typed for a moment."""

    def __init__(self, lines):
        super().__init__(Console())
        self.interactive, self.lines = True, list(lines)

    def answer(self, how):
        print(how)
        return self.lines.pop(0)

    def line_soon(self):
        line = self.lines.pop(0)
        return line() if callable(line) else line


def of_short_path(folder, number):
    path = folder / f"0{number}.md"
    head = HEAD.replace("number = 3", f"number = {number}").replace("= 25", "= [5, 25]")
    path.write_text(head + SHORT.format(exercise=SCORES), encoding="utf-8")
    return read_chapter(path)


def test_the_short_path_goes_from_chapter_to_chapter(tmp_path, here, capsys):
    """The verdict comes before the program, which asks; each save is checked; the learner goes on, or deeper, to the
    end of the course, and begins no chapter again.
    """
    course, folder = [of_short_path(tmp_path, number) for number in (4, 5)], tmp_path / "learner"

    def save(number, text):
        return lambda: (folder / f"0{number}_scores.py").write_text(text) and None

    right, wrong = course[0].exercises[0].solution, course[0].exercises[0].wrong[0].code
    screen = Typing(["what?", "2", "mine", None, "h", save(4, wrong), save(4, right), "", "?", "", save(5, right), "d"])
    lesson = Lesson(folder, course, screen)
    lesson.teach()
    lesson.teach()
    lesson.teach()
    shown = " ".join(capsys.readouterr().out.split())

    order = [
        "Chapter 4",
        "is not a number",
        "Right: 2.",
        "A number of yours",
        "typed mine",
        "Hint 1 of 3",
        "scale-missing",
        "is right",
    ]
    order += ["predicted 1 of 1", "Chapter 5", "the answer is 2", "end of the short path", "More words", "finished"]
    assert [shown.index(each) for each in order] == sorted(shown.index(each) for each in order)
    assert screen.lines == [] and shown.count("More words") == 2 and read(folder).place == {"4": "", "5": ""}


@pytest.mark.parametrize("text", [" ".join(f"word{number}" for number in range(200)), "x" * 200])
def test_long_lines_are_wrapped(text, capsys):
    """Details of a problem and what the learner's code prints, such as an error of PyTorch or a row of numbers."""
    Screen(Console()).checked(Checked(Problem("raises", "not right", (text,)), text), EXERCISE)

    assert "".join(capsys.readouterr().out.split()).count(text.replace(" ", "")) == 2
