"""Every note of the compatibility table is a script that shows what its first line says."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

NOTES = Path(__file__).resolve().parents[2] / "bench" / "compatibility" / "notes"
SCRIPTS = sorted(NOTES.glob("*/*.py"))


def test_there_are_scripts():
    """The folder of scripts is where this test looks, with one folder for each library."""
    assert len(SCRIPTS) > 20
    assert {script.parent.name for script in SCRIPTS} == {each.name for each in NOTES.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.parent.name}-{script.stem}")
def test_a_note_is_shown_by_its_script(script):
    """The script ends by asserting what its first line says, prints the numbers, and does not use regard."""
    if importlib.util.find_spec(script.parent.name) is None:
        pytest.skip(f"{script.parent.name} is not installed")
    source = script.read_text()
    tree = ast.parse(source)
    assert ast.get_docstring(tree) and source.count("\n") <= 26
    assert any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(tree))
    assert ("regard" in source) == (script.parent.name == "regard")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
