"""The page on cost counters: its scripts still show the differences, and its numbers are those that they print."""

import ast
import contextlib
import re
import runpy
import sys

import pytest
import torch
import transformers  # noqa: F401, without which all is skipped

from tests import ROOT

FOLDER = ROOT / "bench" / "counters"
PAGE = ROOT / "docs" / "explanation" / "counters.md"
HELPERS = {"shown", "subject"}
SCRIPTS = sorted({path.stem for path in FOLDER.glob("*.py")} - HELPERS)
ROW = re.compile(r"^\|.*\]\(\.\./\.\./bench/counters/(\w+)\.py\) \|$", re.M)
NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+")


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a script here, which saves the import of torch, and gives what it prints; without its difference it raises
    SystemExit.
    """
    monkeypatch.syspath_prepend(str(FOLDER))

    def printed(script):
        try:
            runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")
        except ModuleNotFoundError as error:
            if error.name.startswith("regard"):
                raise
            pytest.skip(f"not installed: {error.name}")
        return capsys.readouterr().out

    yield printed
    torch._dynamo.reset()  # below FlopCounterMode torch marks the frame of FlexAttention as one to skip from then on
    for name in HELPERS & sys.modules.keys():
        del sys.modules[name]


TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_difference_is_still_there_with_the_numbers_of_the_page(script, run):
    """Every number in a row of the page is one that its script prints."""
    rows = [found[0] for found in ROW.finditer(TEXT) if found[1] == script]
    assert set(NUMBER.findall("".join(rows))) <= set(NUMBER.findall(run(script)))


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_page_has_the_versions_of_every_script(script):
    """A reader finds the versions that the first line of a script names."""
    first = ast.get_docstring(ast.parse((FOLDER / f"{script}.py").read_text(encoding="utf-8")))
    assert [version for version in re.findall(r"\d+\.\d+\.\d+(?:\.\w+)?", first) if version not in TEXT] == []


def test_the_page_has_a_row_for_every_script():
    """And for no other."""
    assert {found[1] for found in ROW.finditer(TEXT)} == set(SCRIPTS)


@pytest.mark.parametrize(
    ("wrong", "exact", "said"),
    [(True, True, ""), (False, True, "the difference is gone"), (True, False, "do not agree")],
)
def test_a_script_ends_with_an_error_unless_its_difference_is_there(wrong, exact, said):
    """A version that corrects a counter is noticed, and so is a fault of regard."""
    shown = runpy.run_path(str(FOLDER / "shown.py"))["shown"]
    with pytest.raises(SystemExit, match=said) if said else contextlib.nullcontext():
        shown("torch", {"a": 1}, wrong=wrong, exact=exact)
