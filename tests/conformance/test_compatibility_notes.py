"""Every note of the compatibility table is a script that shows what its first line says."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTES = Path(__file__).resolve().parents[2] / "bench" / "compatibility" / "notes"
SCRIPTS = sorted(NOTES.glob("*/*.py"))
LIBRARIES = sorted({script.parent.name for script in SCRIPTS})

# Each script runs in a process of its own, forked from one that has imported torch, which takes seconds.
RUNNER = """
import json, os, runpy, sys, traceback
try:
    import torch
except ImportError:
    pass
status = {}
for number, script in enumerate(sys.argv[2:]):
    child = os.fork()
    if child == 0:
        printed = os.open(f"{sys.argv[1]}/{number}", os.O_WRONLY | os.O_CREAT)
        os.dup2(printed, 1), os.dup2(printed, 2)
        ended = 0
        try:
            runpy.run_path(script, run_name="__main__")
        except BaseException:
            traceback.print_exc()
            ended = 1
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(ended)
    status[script] = os.waitpid(child, 0)[1]
print(json.dumps(status))
"""


def test_there_are_scripts():
    """The folder of scripts is where this test looks, with one folder for each library."""
    assert len(SCRIPTS) > 20
    assert {*LIBRARIES} == {each.name for each in NOTES.iterdir()}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.parent.name}-{script.stem}")
def test_a_note_is_short_and_asserts_what_it_says(script):
    """A few lines, a doc string, and an assertion; regard is only used by its own notes."""
    source = script.read_text()
    tree = ast.parse(source)
    assert ast.get_docstring(tree) and source.count("\n") <= 26
    assert any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(tree))
    assert ("regard" in source) == (script.parent.name == "regard")


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_notes_of_a_library_are_shown_by_their_scripts(library, tmp_path):
    """Each script runs to its end and prints the numbers."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    scripts = [str(script) for script in SCRIPTS if script.parent.name == library]
    words = [sys.executable, "-c", RUNNER, str(tmp_path), *scripts]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]

    printed = {script: (tmp_path / str(number)).read_text() for number, script in enumerate(scripts)}
    failed = {script: printed[script][-2000:] for script, status in json.loads(done.stdout).items() if status}
    assert failed == {}
    assert all(text.strip() for text in printed.values())
