"""Chapters are read from Markdown; everything that is wrong with a file is listed at once, with its line and the fix."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.common.errors import Refused
from regard.learn import source
from regard.learn.chapter import Claim, Exercise, Question, Reveal, Text
from regard.learn.source import Problems, blocks, read_chapter
from tests.learn.chapter_files import HEAD, SCORES, TESTS, chapter
from tests.support.refusals import reasons_of

QUESTION = """```toml prediction p
ask = "How many?"
form = "number"
answer = 1
```
"""

# ruff: noqa: E501 (a table)


def change(row):
    """A block of wrong answers."""
    return f"```toml wrong scores\n{row}\n```\n"


# What follows the beginning (six lines), the line of the problem, what is said, and the fix.
WRONG = {
    "kind": ("```toml predictoin p\n```\n", 7, "the kind 'toml predictoin' of a block is unknown", "did you mean 'toml pred"),
    "name": ("```python reveal\n1\n```\n", 7, "the block 'python reveal' has no name", "name it"),
    "name-in-capitals": ("```python reveal A\n1\n```\n", 7, "has no name", "name it"),
    "needs": ("```python reveal a needs=jax\n1\n```\n", 7, "needs=jax is unknown", "choose one"),
    "open": ("Text\n```python reveal a\n1\n", 8, "the block does not end", "close the block"),
    "python": ("```python reveal a\n1\nx = (\n```\n", 9, "the code is not Python", "correct this line"),
    "null": ("```python reveal a\nx = '\0'\n```\n", 7, "the code is not Python", "correct this line"),
    "toml": ('```toml question a\nask = "x"\nform = number\n```\n', 9, "the block is not TOML", "correct this line"),
    "toml-end": ('```toml question a\nask = "x\n```\n', 8, "the block is not TOML", "correct this line"),
    "no-ask": ('```toml question a\nform = "number"\nanswer = 1\n```\n', 7, "a has no text", "write the question"),
    "strange-form": ('```toml question a\nask = "x"\nform = [1]\n```\n', 7, "a has no form", "choose one"),
    "no-answer": ('```toml question a\nask = "x"\nform = "number"\n```\n', 7, "a lacks answer", "add answer = …"),
    "type": ('```toml question a\nask = "x"\nform = "number"\nanswer = "1"\n```\n', 7, "answer of a is '1'", "correct it"),
    "boolean": ('```toml question a\nask = "x"\nform = "number"\nanswer = true\n```\n', 7, "answer of a is True", "correct"),
    "field": (QUESTION.replace("```\n", "anwser = 2\n```\n")[3:].join(["```", ""]), 7, "p has a field anwser", "did you mean"),
    "choice": ('```toml question a\nask = "x"\nform = "choice"\nchoices = []\nanswer = 1\n```\n', 7, "choices 1 to 0", "correct"),
    "twice": (QUESTION + QUESTION, 12, "two parts are named p", "rename one of them"),
    "two-reveals": (QUESTION + 2 * "```python reveal p\n1\n```\n", 15, "a second 'python reveal p'", "remove one"),
    "reveal-and-claim": ('```python reveal a\n1\n```\n```python claim a\n"""x"""\n```\n', 10, "two parts are named a", "rename"),
    "break-nowhere": ("<!-- break -->\nText.\n", 7, "no section begins after the break", "move the break"),
    "break-at-the-end": ("## A\n\nText.\n\n<!-- break -->\n", 11, "no section begins after the break", "move"),
    "break-without-minutes": ("<!-- break -->\n<!-- covers 1.1 -->\n## A\n\nText.\n", 1, "minutes has 1 numbers", "for each part"),
    "no-exercise": (SCORES + "```python law score\n1\n```\n", 57, "'python law score' belongs to no exercise", "mean 'scores'"),
    "no-exercises": ("```python law score\n1\n```\n", 7, "'python law score' belongs to no exercise", "add this exercise"),
    "no-solution": (SCORES.replace("solution scores", "result scores"), 7, "scores has no solution", "add it"),
    "two-starts": (SCORES + "```python start scores\n1\n```\n", 57, "there is a second 'python start scores'", "remove"),
    "hints": (SCORES.replace(', "a line"', ""), 7, "scores has not three hints", "write three"),
    "hints-of-numbers": (SCORES.replace('"a line"', "3"), 7, "scores has not three hints", "write three"),
    "no-function": (SCORES.replace('function = "scores"\n', ""), 7, "scores lacks function", "add function = …"),
    "law": (SCORES.replace('"""twice the queries give twice the scores"""', ""), 30, "a law of scores has no words", "begin"),
    "wrong-name": (SCORES.replace("scores keys-not-transposed", "scores"), 41, "is named ''", "python wrong scores NAME"),
    "unexplained": (SCORES.replace("cause: columns", "because columns"), 41, "keys-not-transposed is not explained", "add what"),
    "change-twice": (SCORES + change('x = { replace = "q", with = "k" }'), 58, "x: 'q' occurs 3 times", "correct it"),
    "change-and-body": (SCORES + change('x = [\n    { replace = "q", body = "1" }]'), 58, "x: it must have either", "correct it"),
    "change-of-two": (SCORES + change('x = { replace = ["k.T", "q @"], with = ["k"] }'), 58, "x: zip() argument 2", "correct it"),
    "change-not-python": (SCORES + change('x = { body = "return (" }'), 58, "x: '(' was never closed", "correct it"),
    "body-on-one-line": (SCORES.replace("def scores(q, k):\n    return q @ k.T / q", "def scores(q, k): return q @ k.T / q") + change('x = { body = "1" }'), 57, "x: write the solution's body below", "correct it"),
    "change-of-nothing": (SCORES + change("\nx = 3"), 59, "x is 3", "correct it"),
    "change-unexplained": (SCORES + change('x = { body = "return q", is = "y" }'), 58, "x is not explained", "add what"),
    "solution-of-another": (SCORES.replace("def scores(q, k):\n    return q @ k.T / q", "def score(q, k):\n    return q"), 20, "does not define scores", "use the name"),
    "tests-of": (SCORES + TESTS.replace('tests_of = "scores"', 'tests_of = "score"'), 58, "tests_of of tests-of-scores", "mean 'scores'"),
    "claim": ("```python claim a\n1\n```\n", 7, "the claim a says nothing", "add it"),
    "visual": ("```python visual a softmx\n'x'\n```\n", 7, "a is a visual of kind 'softmx'", "did you mean"),
    "outcome": ('```python claim a maybe\n"""x"""\n```\n', 7, "the outcome 'maybe' of a", "choose one"),
    "condition": ('```python claim a holds if\n"""x"""\n```\n', 7, "the condition of a", "correct one"),
    "no-condition": ('```python claim a holds\n"""x\n\nholds if: y\n"""\n```\n', 7, "the condition of a", "correct one"),
}  # fmt: skip


def reasons(folder, content):
    """Why a chapter with this content is refused."""
    path = folder / "03-scores.md"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return reasons_of(read_chapter, path)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_listed(name, tmp_path):
    """What, in which line of which file, what is expected, and how to fix it."""
    body, line, what, fix = WRONG[name]
    every = reasons(tmp_path, HEAD + "\n" * (not body.startswith("\n")) + body)
    found = [reason for reason in every if what in reason.what]

    assert found, every
    assert found[0].given == f"03-scores.md, line {line}" and found[0].expected
    assert fix in found[0].fix


@pytest.mark.parametrize(
    ("head", "lacks"),
    [
        ("", ["number", "title", "minutes"]),
        ("+++\nnumber = '3'\ntitle = 'x'\nminutes = true\n+++\n", ["number", "minutes"]),
        ("+++\nnumber = 3\ntitle = 'x'\nminutes = []\n+++\n", ["minutes"]),
        ("+++\nnumber = 3\ntitle = 'x'\nminutes = [20, '30']\n+++\n", ["minutes"]),
    ],
)
def test_the_beginning(head, lacks, tmp_path):
    """The fields at the beginning have names and types."""
    found = reasons(tmp_path, head + "## A section\n\nText.\n")
    assert [reason.what for reason in found] == [f"the beginning lacks {each}" for each in lacks]


def test_all_problems_at_once_by_line(tmp_path):
    """A file with every kind of mistake is refused once, with a list in the order of its lines."""
    parts = ["```toml question a\nask = 3\n```\n", "```python claim b\n1\n```\n", "```python law c\n1\n```\n"]
    found = reasons(tmp_path, HEAD + "\n" + "".join(parts))
    assert [reason.given.rpartition(" ")[2] for reason in found] == ["7", "7", "10", "13"]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_a_file_that_cannot_be_read(content, tmp_path):
    """It is not in UTF-8, or missing."""
    assert [reason.what for reason in reasons(tmp_path, content)] == ["the file cannot be read"]


def test_a_chapter_with_everything(tmp_path):
    """Parts in order, without comments; a question has its reveal."""
    body = f"""# Title

<!-- covers 1.1 1.2 -->
## First

Text, and a block:

```text
## not a heading
```

<!-- covers 1.3 -->
{QUESTION}
<!-- covers 1.4 -->
```python reveal p needs=torch
answer = 1
```

```python reveal alone
print(1)
```
{SCORES}{TESTS}
```markdown after scores
Well.
```

<!-- covers 2.1 -->
```python claim c holds if
\"\"\"It holds,
as it seems.

holds if: it
    must
source: a page
\"\"\"
holds = False
```
"""
    read = chapter(tmp_path, body)

    assert (read.number, read.title, read.minutes) == (3, "Scores", (25,))
    assert [type(part) for part in read.parts] == [Text, Question, Reveal, Exercise, Exercise, Claim]
    first, question, alone, claim = read.parts[0], read.part("p"), read.part("alone"), read.part("c")
    assert isinstance(first, Text) and "## not a heading" in first.text and "covers" not in first.text
    assert isinstance(question, Question) and question.predicts
    assert question.reveal is not None and question.reveal.needs == "torch" and isinstance(alone, Reveal)
    assert vars(claim) | {"line": 0} == vars(claim) | {
        "line": 0, "statement": "It holds, as it seems.", "condition": "it must", "source": "a page", "outcome": "holds if",
    }  # fmt: skip
    scores, tests = read.exercises
    assert scores.after == "Well.\n"
    assert [each.mistake for each in scores.wrong][:2] == ["scale-missing", "keys-not-transposed"]
    assert scores.wrong[1].cause == "columns of k are not keys" and tests.tests_of == "scores"
    assert scores.laws[0][0] == "twice the queries give twice the scores" and scores.file_name == "03_scores.py"


def test_what_is_wrong_with_checks_has_the_line_of_their_file(tmp_path):
    """Other blocks do not belong there. (Right ones: test_chapters.)"""
    (tmp_path / "03-scores.checks.md").write_text("\n```python reveal a\n1\n```\n```python law scores\n1\n```\n")
    given = [reason.given for reason in reasons(tmp_path, HEAD + SCORES)]
    assert given == ["03-scores.checks.md, line 2", "03-scores.checks.md, line 5"]


WORDS = st.text("abc #`~\n-", max_size=60)


@given(st.lists(st.tuples(st.sampled_from(["text", "python reveal", "toml question", "covers"]), WORDS), max_size=8))
def test_no_line_is_lost(parts):
    """Whatever a file holds, each line of text is in a text block, and each block begins where it says."""
    lines, outside = [], []
    for number, (kind, words) in enumerate(parts):
        words = "\n".join(line for line in words.splitlines() if not re.match(r"`{3}|~{3}", line))
        if kind == "text":
            lines += words.splitlines()
            outside += [line.strip() for line in words.splitlines() if line.strip()]
        elif kind == "covers":
            lines.append("<!-- covers 1.2 -->")
        else:
            lines += [f"```{kind} n{number}", *words.splitlines(), "```"]

    found = list(blocks("\n".join(lines), 1, Problems("x.md")))

    kept = [line.strip() for block in found if not block.kind for line in block.text.splitlines() if line.strip()]
    assert kept == outside
    assert [lines[block.line - 1].split()[:3] for block in found if block.kind] == [
        [f"```{block.kind.split()[0]}", block.kind.split()[1], block.name] for block in found if block.kind
    ]
    texts = [block for block in found if not block.kind]
    assert [lines[block.line - 1].strip() for block in texts] == [
        block.text.strip().split("\n")[0].strip() for block in texts
    ]


@given(st.text(max_size=200), st.data())
def test_any_text_is_read_or_refused(text, data):
    """A chapter of which a piece was replaced by anything is a chapter, or is refused with lines of the file."""
    whole = HEAD + SCORES + TESTS
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 40)))
    changed = whole[:start] + text + whole[end:]
    try:
        source._Reader(Path("03-scores.md")).chapter(changed)
    except Refused as refused:
        for reason in refused.reasons:
            match = re.fullmatch(r"03-scores.md, line (\d+)", reason.given)
            assert match and 1 <= int(match[1]) <= changed.count("\n") + 1
            assert reason.what and reason.expected and reason.fix
