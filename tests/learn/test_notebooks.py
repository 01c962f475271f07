"""`regard learn --notebooks` and `--scripts`: every notebook runs from its first to its last cell, every script too."""

import json
import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.common.errors import Refused
from regard.learn.chapter import Chapter, Claim, Exercise
from regard.learn.export import FOLDER, notebook, scripts, write_notebooks, write_scripts
from regard.learn.running import installed
from regard.learn.source import chapters, read_chapter

from .chapter_files import HEAD, SCORES, chapter

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

COURSE = chapters()
STEPS = 2  # of reveals that train

PARTS = '''
## Why

One screen of text.

```toml prediction mean
ask = "The mean of 1 and 3?"
form = "choice"
choices = [{ text = "2" }, { text = "4", why = "That is the sum." }]
answer = 1
```

```python reveal mean
steps = 300
answer = 1
print("trained for", steps)
```

```python claim one-is-two fails
"""One is two.

source: nobody
"""

holds = False
print("no")
```
'''


@pytest.mark.slow
@pytest.mark.one_in(20)  # the first; each takes up to a minute in a kernel of its own
@pytest.mark.parametrize("read", COURSE, ids=lambda read: read.path.stem)
def test_a_notebook_runs(read: Chapter, tmp_path, monkeypatch):
    """No cell raises an error; each check of an exercise answers; what trains does so for a few steps."""
    if any(installed(getattr(part, "needs", "")) for part in [*read.parts, *(each.reveal for each in read.questions)]):
        pytest.skip("torch or the trained model is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    found = nbformat.reads(json.dumps(notebook(read, STEPS)), as_version=4)

    nbclient.NotebookClient(found, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()

    printed = ["".join(each.get("text", "") for each in cell.get("outputs", ())) for cell in found.cells]
    checks = [text for cell, text in zip(found.cells, printed) if "regard learn --check" in cell.source]
    assert len(checks) == len(read.exercises)
    assert all("not yet" in text for text in checks), checks
    assert sorted(each.name for each in (tmp_path / FOLDER).glob("*.py")) == sorted(
        {read.file_of(each) for each in read.exercises}
    )


@pytest.mark.parametrize("read", COURSE, ids=lambda read: read.path.stem)
def test_a_notebook_has_every_part_and_no_answer_before_it(read: Chapter):
    """It is a valid notebook, the same each time; no cell is empty; an answer follows its cell, folded up."""
    found = notebook(read)
    nbformat.validate(found)
    assert found == notebook(read)

    sources = ["".join(cell["source"]) for cell in found["cells"]]
    assert all(text.strip() for text in sources)
    for question in read.questions:
        (place,) = [at for at, text in enumerate(sources) if question.ask.strip() in text and "**" in text]
        assert "my_answer" in sources[place + 1]
        if question.reveal:
            assert sources[place + 2] == question.reveal.code.strip("\n")
        assert sources[place + 2 + bool(question.reveal)].startswith("<details>")
    for part in read.parts:
        if isinstance(part, Exercise):
            assert any(part.start.strip("\n") in text for text in sources)
            assert not any(part.solution.strip("\n") in text for text in sources if text.startswith("%%writefile"))
        if isinstance(part, Claim):
            assert any(part.code.strip("\n") == text for text in sources)


def test_what_trains_can_be_cut_short(tmp_path):
    """Only the line `steps = …` changes."""
    read = chapter(tmp_path, PARTS)
    whole, short = json.dumps(notebook(read)), json.dumps(notebook(read, STEPS))
    assert "steps = 300" in whole and short == whole.replace("steps = 300", "steps = 2")


def test_a_notebook_is_never_overwritten(tmp_path):
    """It may hold a learner's answers; then nothing is written at all."""
    (tmp_path / "04-softmax.ipynb").write_text("mine")
    with pytest.raises(Refused, match="the notebook exists"):
        CliRunner().invoke(app, ["learn", "--notebooks", str(tmp_path)], catch_exceptions=False)
    assert [each.name for each in tmp_path.iterdir()] == ["04-softmax.ipynb"]

    result = CliRunner().invoke(app, ["learn", "--notebooks", str(tmp_path / "new"), "--only", "3-4"])
    assert result.exit_code == 0 and "2 notebooks" in result.output
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == ["03-scores.ipynb", "04-softmax.ipynb"]


def test_exercises_of_a_notebook_are_checked_as_in_the_lesson(tmp_path, monkeypatch):
    """The cell with the solution in place of the start passes."""
    read = next(each for each in COURSE if each.number == 3)
    exercise = read.exercises[0]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    found = nbformat.reads(json.dumps(notebook(read)), as_version=4)
    starts, writes = "import sys\nfrom pathlib", f"%%writefile {FOLDER}/{read.file_of(exercise)}"
    first = next(at for at, cell in enumerate(found.cells) if cell.source.startswith(writes))
    found.cells = found.cells[first - 1 : first + 2]  # makes the folder, writes the file, checks it
    assert found.cells[0].source.startswith(starts)
    found.cells[1].source = f"{writes}\n{exercise.solution}"
    nbclient.NotebookClient(found, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()

    assert "is right" in "".join(each.get("text", "") for each in found.cells[-1].outputs)


@pytest.mark.sweep
def test_scripts_run_and_print_what_stands_below_them(tmp_path):
    """Each script of a chapter, run as a program, prints the comment at its end."""
    read = next(each for each in COURSE if each.number == 3)
    paths = list(write_scripts(tmp_path / "scripts", [read]))

    assert [path.stem for path in paths] == [name for name, _, _ in scripts(read)] and len(paths) > 5
    plain = [path for path in paths if "torch" not in path.read_text() and "regard" not in path.read_text()]
    for path in plain[:4]:
        ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True, cwd=tmp_path)
        said = path.read_text().partition("# It prints:\n")[2]
        shown = [line.removeprefix("#").removeprefix(" ") for line in said.splitlines()]
        printed = [line.rstrip() for line in ran.stdout.rstrip("\n").splitlines()]
        assert shown[: len(printed)] == printed and printed
        assert all(re.match(r"$|So the claim (holds|fails)", line) for line in shown[len(printed) :])


def test_scripts_name_the_question_and_the_outcome(tmp_path):
    """A question is at the top, what came out of a claim at the end."""
    list(write_scripts(tmp_path / "s", [chapter(tmp_path, PARTS)]))
    folder = tmp_path / "s" / "03-scores"
    assert (folder / "mean.py").read_text().startswith("# Chapter 3, Scores\n#\n# The mean of 1 and 3?\n")
    assert (folder / "one-is-two.py").read_text().endswith("# It prints:\n# no\n#\n# So the claim fails.\n")
    with pytest.raises(Refused, match="the scripts exist"):
        list(write_scripts(tmp_path / "s", [chapter(tmp_path, PARTS)]))


def test_write_notebooks_makes_the_folder(tmp_path):
    """Parents included."""
    (path,) = write_notebooks(tmp_path / "a" / "b", [chapter(tmp_path, SCORES)])
    assert path.is_file() and HEAD not in path.read_text()


@pytest.mark.parametrize("option", ["--notebooks", "--scripts"])
@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_where_nothing_can_be_written(tmp_path, option, folder):
    """The path and the reason of the system are said."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "own").mkdir()
    text = HEAD.replace("number = 3", "number = 70") + PARTS
    (tmp_path / "own" / "70-mine.md").write_text(text, encoding="utf-8")
    words = ["learn", option, str(tmp_path / folder), "--chapters", str(tmp_path / "own"), "--only", "70"]
    with pytest.raises(Refused, match="cannot be written"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert (tmp_path / "file").read_text() == "mine"


def test_scripts_of_a_chapter_that_fails(tmp_path):
    """The part that fails is named, and nothing of its chapter is written; whole chapters before it stay."""
    good = chapter(tmp_path, PARTS)
    (tmp_path / "bad").mkdir()
    bad = chapter(tmp_path / "bad", PARTS.replace('holds = False\nprint("no")', "holds = 1 / 0"))
    with pytest.raises(Refused, match=r"one-is-two in 03-scores\.md: ZeroDivisionError"):
        list(write_scripts(tmp_path / "s", [bad]))
    assert not (tmp_path / "s").exists()
    bad.path.rename(bad.path.with_name("04-bad.md"))
    second = read_chapter(bad.path.with_name("04-bad.md"))
    with pytest.raises(Refused, match="the code of a chapter fails"):
        list(write_scripts(tmp_path / "s", [good, second]))
    assert [each.name for each in (tmp_path / "s").iterdir()] == ["03-scores"]


def test_the_command_that_opens_notebooks_can_be_copied(tmp_path):
    """One or several; a folder with a space is quoted."""
    for only, count in (("3", "1 notebook,"), ("3-4", "2 notebooks,")):
        folder = tmp_path / f"my notes {only}"
        result = CliRunner().invoke(app, ["learn", "--notebooks", str(folder), "--only", only])
        said = " ".join(result.output.split())
        assert count in said and "jupyter lab '" in said, result.output
