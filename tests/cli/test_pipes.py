"""Commands in a pipeline and on a bare install: closed pipes and missing packages do not change what they do."""

import subprocess
import sys

import numpy as np
import pytest

import regard as rg
from regard import __version__


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


def test_the_version():
    """`regard --version`."""
    done = subprocess.run([sys.executable, "-m", "regard", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"regard {__version__}\n"


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
