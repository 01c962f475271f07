"""Commands in a pipeline and on a bare install: closed pipes and missing packages do not change what they do."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

import regard as rg
from regard import __version__
from regard.cli import terminal
from tests import ROOT


@pytest.fixture
def run(tmp_path):
    """The folder of a healthy recorded run."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 12, 8), dtype=np.float32)
    rg.look(q, k=k, v=v, mask=rg.causal()).save(tmp_path / "run")
    return tmp_path / "run"


def piped(command: str, folder) -> str:
    """What a shell prints for the status of regard, whose reader stops after a line."""
    script = f"set -o pipefail; {sys.executable} -m regard {command} | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    return subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("command", ["audit run", "audit run --json", "look run --out page.html"])
def test_a_closed_pipe_changes_nothing(run, command):
    """`| head -1` ends neither the command nor its status, and the page is written."""
    assert piped(command, run.parent) == "0"
    assert command.startswith("audit") or (run.parent / "page.html").stat().st_size > 100_000


def test_json_of_every_command_is_strict(capsys):
    """What JSON has no name for is null, and what a terminal may not show is escaped."""
    values = {"loss": [1.5, math.nan, (math.inf, -math.inf)], "text": "größer …", "count": 3}
    terminal.emit_json(values)
    out = capsys.readouterr().out
    assert out.isascii()
    found = json.loads(out, parse_constant=pytest.fail)
    commands = (ROOT / "src/regard/cli").rglob("*.py")
    assert [path.name for path in commands if "json.dumps" in path.read_text(encoding="utf-8")] == ["terminal.py"]
    assert found == {"loss": [1.5, None, [None, None]], "text": "größer …", "count": 3}


def test_the_version():
    """`regard --version`."""
    done = subprocess.run([sys.executable, "-m", "regard", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"regard {__version__}\n"


SHELLS = {"bash": "complete -o", "zsh": "compdef", "fish": "complete --command"}


@pytest.mark.parametrize("shell", SHELLS)
def test_shell_completion(shell):
    """The script of each shell, and what it gets for `regard a` and for an option."""
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # not the shell that runs tests
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'regard'; from regard.cli import main; main()"]
    done = subprocess.run([*command, "--show-completion", shell], capture_output=True, text=True, env=environment)
    assert SHELLS[shell] in done.stdout and "_REGARD_COMPLETE" in done.stdout, done

    for words, expected in (("regard a", "audit"), ("regard plan --ra", "--ranks")):
        count = str(len(words.split()) - 1)
        given = {"_REGARD_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": count}
        given |= {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **given})
        assert expected in done.stdout, done


CLOSED = [
    "plan --tokens 4096 --ranks 2 --json",
    "learn --list",
    "models bert --json",
    "cost table1 --lengths 8 --width 8",
]


@pytest.mark.parametrize("command", CLOSED)
def test_closed_pipes_of_other_commands(tmp_path, command):
    """No traceback, and the usual status."""
    script = f"set -o pipefail; {sys.executable} -m regard {command} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0" and "Traceback" not in done.stderr, done


BARE = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "tokenizers", "safetensors", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in ("torch", "transformers", "tokenizers",
    "safetensors", "matplotlib") else found(name, package)
from regard.cli import main
sys.argv = ["regard", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["look", "Hello there."], "look"),
        (["look", "somewhere", "Hello there."], "look"),
        (["audit", "somewhere"], "look"),
        (["audit"], "look"),
        (["models", "llama"], "look"),
        (["train", "text.txt", "--out", "run"], "train"),
        (["generate", "run", "Hello"], "train"),
    ],
)
def test_a_bare_install_names_the_extra(tmp_path, arguments, extra):
    """Every command says in a sentence what is missing and how to install it; the status is 2."""
    (tmp_path / "text.txt").write_text("a text of some words " * 100)
    done = subprocess.run([sys.executable, "-c", BARE, *arguments], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and f"regard[{extra}]" in done.stderr
