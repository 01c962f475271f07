"""The page on cost counters: its scripts still show the differences, and its numbers are those that they print."""

import ast
import importlib.util
import re
import runpy
import subprocess
import sys

import pytest

from tests import ROOT

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

FOLDER = ROOT / "bench" / "counters"
PAGE = ROOT / "docs" / "explanation" / "counters.md"
HELPERS = {"shown", "subject"}
SCRIPTS = sorted({path.stem for path in FOLDER.glob("*.py")} - HELPERS)
ROW = re.compile(r"^\|.*\]\(\.\./\.\./bench/counters/(\w+)\.py\) \|$", re.M)
NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+")


def missing(script: str) -> list[str]:
    """Packages that a script imports and that are not installed."""
    tree = ast.walk(ast.parse((FOLDER / f"{script}.py").read_text(encoding="utf-8")))
    names = {
        name.split(".")[0]
        for node in tree
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
    }
    return sorted(name for name in names - HELPERS if importlib.util.find_spec(name) is None)


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a script here, which saves the import of torch, and gives what it prints; without its difference it raises
    SystemExit.
    """
    monkeypatch.syspath_prepend(str(FOLDER))

    def printed(script: str) -> str:
        if absent := missing(script):
            pytest.skip(f"not installed: {', '.join(absent)}")
        runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")
        return capsys.readouterr().out

    yield printed
    torch._dynamo.reset()  # below FlopCounterMode torch marks the frame of FlexAttention as one to skip from then on
    for name in HELPERS & sys.modules.keys():
        del sys.modules[name]


def rows(script: str) -> list[str]:
    """The rows of the page that are about a script."""
    return [found[0] for found in ROW.finditer(PAGE.read_text(encoding="utf-8")) if found[1] == script]


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_difference_is_still_there_with_the_numbers_of_the_page(script, run):
    """Every number in a row of the page is one that its script prints."""
    assert {number for row in rows(script) for number in NUMBER.findall(row)} <= set(NUMBER.findall(run(script)))


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_page_has_a_row_for_every_script_and_its_versions(script):
    """A reader finds each script, and the versions that its first line names."""
    assert rows(script)
    first = ast.get_docstring(ast.parse((FOLDER / f"{script}.py").read_text(encoding="utf-8")))
    versions = re.findall(r"\d+\.\d+\.\d+(?:\.\w+)?", first)
    assert [version for version in versions if version not in PAGE.read_text(encoding="utf-8")] == []


def test_every_script_of_the_page_exists():
    """Rows name files that are there."""
    assert {found[1] for found in ROW.finditer(PAGE.read_text(encoding="utf-8"))} == set(SCRIPTS)


@pytest.mark.parametrize(
    ("wrong", "exact", "said"),
    [(True, True, ""), (False, True, "the difference is gone"), (True, False, "do not agree")],
)
def test_a_script_ends_with_an_error_unless_its_difference_is_there(wrong, exact, said):
    """A version that corrects a counter is noticed, and so is a fault of regard."""
    code = f"from shown import shown; shown('torch', {{'a': 1}}, wrong={wrong}, exact={exact})"
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True)
    assert (done.returncode == 0) == (wrong and exact)
    assert said in done.stderr


@pytest.mark.parametrize("tokens", [1, 5, 12])
def test_the_closed_form_of_a_window(tokens):
    """w·n − w(w − 1)/2 for every w ≤ n, as the page derives it."""
    for window in range(1, tokens + 1):
        seen = sum(0 <= query - key < window for query in range(tokens) for key in range(tokens))
        assert seen == window * tokens - window * (window - 1) // 2
