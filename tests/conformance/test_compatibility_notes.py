"""Every note of the compatibility table is a script that shows what its first line says."""

import importlib.util
import subprocess
import sys

import pytest

from bench.compatibility.page import NOTES

SCRIPTS = sorted(NOTES.glob("*/*.py"))


@pytest.mark.sweep
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.parent.name}-{script.stem}")
def test_a_note_is_shown_by_its_script(script):
    """Each script runs to its end and prints the numbers."""
    if importlib.util.find_spec(script.parent.name) is None:
        pytest.skip(f"{script.parent.name} is not installed")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr[-2000:]
