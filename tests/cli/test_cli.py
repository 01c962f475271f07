"""The command line: help that is light, one clear sentence for whatever is wrong, shells, pipes, a bare install."""

import json
import math
import subprocess
import sys

import pytest

import regard as rg
from regard import __version__
from regard.cli import terminal
from tests import ROOT
from tests.support.command import regard
from tests.support.engines import normal
from tests.support.kernels import fresh

LIGHT = """
import sys
heavy = {"torch", "transformers", "llvmlite"}
from regard.cli import app
loaded = [heavy & set(sys.modules)]
from tests.support.command import regard
status, out, err = regard("plan", "--tokens", "999", "--ranks", "2")
assert (status, err) == (0, "") and out.startswith("place   999 tokens over 2 ranks"), (out, err)
assert regard("look", "")[0] == 2
import regard.common.module_settings, regard.audits
loaded.append({"torch"} & set(sys.modules))
print(loaded)
"""


def test_the_version_and_help_are_there_and_light():
    """Help lists the commands and loads no compiler; a plan, a refusal and the audits of a run load no torch."""
    assert regard("--version") == (0, f"regard {__version__}\n", "")
    status, out, _ = regard("--help")
    assert status == 0 and "look" in out and "conform" in out
    assert fresh(LIGHT) == "[set(), set()]"


@pytest.mark.parametrize("words", ["look words --hed 1", "look words --head one", "look words --port 70000", "lok"])
def test_wrong_options_are_explained(words):
    """An option that does not exist, or a number that is none, gets the command's own explanation and status 2."""
    status, _, err = regard(*words.split())
    assert status == 2 and "Traceback" not in err and ("Error" in err or "No such" in err)


def test_a_full_disk_is_one_sentence():
    """Not a traceback."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "regard", "conform", "--help"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr.startswith("regard: the output cannot be written") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        "audit run",
        "look run --out page.html",
        "plan --tokens 4096 --ranks 2 --json",
    ],
)
def test_a_closed_pipe_changes_nothing(command, tmp_path):
    """Neither `| head -1` nor `| true` changes the status or brings a traceback, and the page is written."""
    q, k, v = normal(3, 2, 12, 8)
    rg.look(q, k=k, v=v, mask=rg.causal()).save(tmp_path / "run")
    reader = "head -1 >/dev/null" if command.startswith(("audit", "look")) else "true"
    script = f"set -o pipefail; {sys.executable} -m regard {command} | {reader}; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0" and "Traceback" not in done.stderr, done
    assert not command.startswith("look") or (tmp_path / "page.html").stat().st_size > 100_000


def test_json_of_every_command_is_strict(capsys):
    """What JSON has no name for is null, and what a terminal may not show is escaped."""
    terminal.emit_json({"loss": [1.5, math.nan, (math.inf, -math.inf)], "text": "größer …", "count": 3})
    out = capsys.readouterr().out
    assert out.isascii()
    found = json.loads(out, parse_constant=pytest.fail)
    commands = (ROOT / "src/regard/cli").rglob("*.py")
    assert [path.name for path in commands if "json.dumps" in path.read_text(encoding="utf-8")] == ["terminal.py"]
    assert found == {"loss": [1.5, None, [None, None]], "text": "größer …", "count": 3}


SHELLS = {"bash": "complete -o", "zsh": "compdef", "fish": "complete --command"}
CALLS = """
import json, sys
from tests.support.command import regard
print(json.dumps([regard(*words, **environment)[1] for words, environment in json.loads(sys.argv[1])]))
"""


def test_shell_completion():
    """The script of each shell, and what it gets for `regard a` and for an option."""
    calls, expected = [], []
    for shell, begin in SHELLS.items():
        # Not the shell that runs tests.
        calls.append((["--show-completion", shell], {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}))
        expected.append(begin)
        for words, word in (("regard a", "audit"), ("regard plan --ra", "--ranks")):
            typed = {"_REGARD_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
            calls.append(([], typed | {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}))
            expected.append(word)
    shown = json.loads(fresh(CALLS, json.dumps(calls)))
    assert all(word in out for word, out in zip(expected, shown, strict=True)), shown
