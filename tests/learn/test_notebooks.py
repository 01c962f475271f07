"""`regard learn --notebooks` and `--scripts`: every notebook runs from its first to its last cell, every script too."""

import copy
import json
import os
import re
import runpy
import sys

import pytest

from regard.learn.chapter import Claim, Exercise
from regard.learn.export import FOLDER, notebook, scripts, write_scripts
from regard.learn.running import installed
from regard.learn.source import read_chapter
from tests.support.command import done, refused
from tests.support.refusals import refusing
from tests.support.waiting import HANG

from .chapter_files import chapter, each_chapter

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

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
@each_chapter
def test_a_notebook_runs(read, tmp_path, monkeypatch):
    """No cell raises an error; a check says "not yet" of the start and "is right" of the solution; what trains does so
    for a few steps.
    """
    if any(installed(getattr(part, "needs", "")) for part in [*read.parts, *(each.reveal for each in read.questions)]):
        pytest.skip("torch or the trained model is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    found = nbformat.reads(json.dumps(notebook(read)), as_version=4)
    for cell in found.cells:
        cell.source = re.sub(r"^steps = \d+", f"steps = {STEPS}", cell.source, flags=re.M)
    writes = f"%%writefile {FOLDER}/{read.exercises[0].file_name}\n"
    first = next(at for at, cell in enumerate(found.cells) if cell.source.startswith(writes))
    solved = copy.deepcopy(found.cells[first : first + 2])
    solved[0].source = writes + read.exercises[0].solution
    found.cells += solved

    nbclient.NotebookClient(found, timeout=HANG, resources={"metadata": {"path": str(tmp_path)}}).execute()

    printed = ["".join(each.get("text", "") for each in cell.get("outputs", ())) for cell in found.cells]
    *checks, last = [text for cell, text in zip(found.cells, printed) if "regard learn --check" in cell.source]
    assert len(checks) == len(read.exercises) and "is right" in last
    assert all("not yet" in text for text in checks), checks
    assert {each.name for each in (tmp_path / FOLDER).glob("*.py")} == {each.file_name for each in read.exercises}


@each_chapter
def test_a_notebook_has_every_part_and_no_answer_before_it(read):
    """It is a valid notebook, the same each time; no cell is empty; an answer follows its cell, folded up."""
    found = notebook(read)
    nbformat.validate(found)
    assert found == notebook(read)

    sources = ["".join(cell["source"]) for cell in found["cells"]]
    assert all(text.strip() for text in sources)
    assert not any("input(" in text for text in sources)  # a run of all cells waits for nobody
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


def test_a_notebook_is_never_overwritten(tmp_path):
    """It may hold a learner's answers; then nothing is written at all."""
    (tmp_path / "04-softmax.ipynb").write_text("mine")
    assert "the notebook exists" in refused("learn", "--notebooks", tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["04-softmax.ipynb"]


def test_the_command_that_opens_notebooks_can_be_copied(tmp_path):
    """Folders are made, and one with a space is quoted."""
    folder = tmp_path / "my own" / "notes"
    said = " ".join(done("learn", "--notebooks", folder, "--only", "3-4").split())
    assert "2 notebooks," in said and "jupyter lab '" in said
    assert sorted(path.stem for path in folder.iterdir()) == ["03-scores", "04-softmax"]


def test_scripts_name_the_question_and_the_outcome(tmp_path, capsys):
    """A question is at the top, what came out of a claim at the end; each script prints what stands below it."""
    read = chapter(tmp_path, PARTS)
    paths = list(write_scripts(tmp_path / "s", [read]))
    assert [path.stem for path in paths] == [each.name for each in scripts(read)] == ["mean", "one-is-two"]
    mean, claim = (path.read_text() for path in paths)
    assert mean.startswith("# Chapter 3, Scores\n#\n# The mean of 1 and 3?\n")
    assert claim.endswith("# It prints:\n# no\n#\n# So the claim fails.\n")
    for path in paths:
        runpy.run_path(str(path))
        assert f"# It prints:\n# {capsys.readouterr().out}" in path.read_text()
    with refusing("the scripts exist"):
        list(write_scripts(tmp_path / "s", [read]))


def test_scripts_of_a_chapter_that_fails(tmp_path):
    """The part that fails is named, and nothing of its chapter is written; whole chapters before it stay."""
    good = chapter(tmp_path, PARTS)
    (tmp_path / "bad").mkdir()
    bad = chapter(tmp_path / "bad", PARTS.replace('holds = False\nprint("no")', "holds = 1 / 0"))
    with refusing(r"one-is-two in 03-scores\.md: ZeroDivisionError"):
        list(write_scripts(tmp_path / "s", [bad]))
    assert not (tmp_path / "s").exists()
    bad.path.rename(bad.path.with_name("04-bad.md"))
    second = read_chapter(bad.path.with_name("04-bad.md"))
    with refusing("the code of a chapter fails"):
        list(write_scripts(tmp_path / "s", [good, second]))
    assert [each.name for each in (tmp_path / "s").iterdir()] == ["03-scores"]
