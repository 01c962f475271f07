"""The command line in processes of its own: help that is light, and one clear sentence for whatever is wrong."""

import os
import subprocess
import sys

from typer.testing import CliRunner

from regard.cli import app
from tests.support.command import SRC, refused, regard


def test_help_is_there_and_light():
    """`regard --help` lists the commands, and loads neither torch nor the compiler for it."""
    status, out, _ = regard("--help")
    assert status == 0
    assert "look" in out and "bench" in out
    code = (
        "import sys; from regard.cli import app; print(sorted({'torch', 'transformers', 'llvmlite'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONPATH": SRC}, check=True
    )
    assert done.stdout.decode().strip() == "[]"


def test_a_refusal_is_a_sentence_and_a_status():
    """Whatever is refused is one line on standard error and status 2, and torch is not loaded for it."""
    assert "not UTF-8: byte 1 of the argument" in refused("look", b"a\xff")
    assert "no text" in refused("look", "-", input=b"\n")
    code = (
        "import sys; from regard.cli import main; sys.argv = ['regard', 'look', '']\ntry: "
        "main()\nfinally: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONPATH": SRC})
    assert (done.returncode, done.stdout.decode().strip()) == (2, "False")


def test_wrong_options_are_explained():
    """An option that does not exist, or a number that is none, gets the command's own explanation and status 2."""
    for arguments in (
        ["look", "words", "--hed", "1"],
        ["look", "words", "--head", "one"],
        ["look", "words", "--port", "70000"],
        ["lok"],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert "Traceback" not in result.output
        assert "Error" in result.output or "No such" in result.output
