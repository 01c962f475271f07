"""The compatibility page says what the stored results say, and its notes are there."""

import importlib.util
import json
import re
import subprocess
import sys

import pytest

from bench.compatibility.listed import IMPLEMENTATIONS
from bench.compatibility.measure import cells_of, column
from bench.compatibility.page import MEANING, NOTES, TABLES, cell_words, page
from tests import ROOT

RESULTS = json.loads((ROOT / "bench" / "compatibility" / "results.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")


def test_the_page_is_made_from_the_results():
    """`python -m bench.compatibility --from-results` changes nothing."""
    assert page(RESULTS) == PAGE


def test_every_implementation_has_results():
    """The results are those of the implementations that are listed, each with a level that its cases allow; every cell
    with failing cases leads to a script that shows why.
    """
    assert [each["name"] for each in RESULTS["implementations"]] == [each.name for each in IMPLEMENTATIONS]
    for each, listed in zip(RESULTS["implementations"], IMPLEMENTATIONS):
        counts = {name: cell["counts"] for name, cell in each["cells"].items()}
        failing = [name for name, count in counts.items() if count.get("fail")]
        assert sum(sum(count.values()) for count in counts.values()) == each["cases"]
        assert not failing or each["level"] < each["requested"], each["name"]
        assert all(listed.notes.get(name) for name in failing), each["name"]


def test_regard_keeps_its_own_laws():
    """Through its public functions regard reaches level 5, bit by bit."""
    marks = {each["name"]: each["mark"] for each in RESULTS["implementations"] if each["package"] == "regard"}
    del marks["regard, reference"]  # it builds the matrix of weights
    assert set(marks.values()) == {"5b"}, marks
    assert len(marks) == 4


def test_notes_are_there_and_used():
    """Every note that a cell names is a script, every script is a note of some cell, and the page links each once."""
    named = {name for each in IMPLEMENTATIONS for names in each.notes.values() for name in names}
    assert named == {f"{file.parent.name}/{file.stem}" for file in NOTES.glob("*/*.py")}
    assert {name for _, _, columns in TABLES for name in columns} == set(MEANING)
    numbers = re.findall(r'<a id="note-(\d+)"></a>', PAGE)
    assert numbers == [str(number) for number in range(1, len(named) + 1)]
    assert set(re.findall(r"\(#note-(\d+)\)", PAGE)) == set(numbers)


@pytest.mark.parametrize(
    ("counts", "worst", "words"),
    [
        ({"pass": 3, "absent": 2}, None, "✓"),
        ({"pass": 2, "fail": 1, "absent": 4}, 0.25, "✗ 1 of 3"),
        ({"pass": 2, "refused": 1}, 0.5, "✓ 0.5, 1 refused"),
        ({"refused": 2, "absent": 1}, None, "refuses"),
        ({"unexpected-pass": 1, "pass": 1}, 0.1, "✗ 1 of 2"),
    ],
)
def test_a_cell_says_what_was_run(counts, worst, words):
    """A cell counts what ran; nothing that ran is left out."""
    result = {"cells": {"masks": {"counts": counts, "worst": worst, "failing": [], "grades": []}}, "requested": 5}
    assert cell_words(result, "masks") == words
    assert cell_words(result | {"requested": 2}, "gradients") == "not run"


def test_each_case_counts_in_one_column():
    """Every case of the suite has a column, and none is lost."""
    from regard.conformance.cases.case import Result
    from regard.conformance.conventions.fields import ROLES, Adapter
    from regard.conformance.run import Limits
    from regard.conformance.run import cases as listed

    adapter = Adapter(
        parameters={role: role for role in ROLES},
        arrays="torch",
        gradients="torch",
        dtypes=("float32", "float16"),
        returns=("out", "lse"),
    )
    found = [Result(case=each, status="pass", call=each.call, ratio=0.5) for each in listed(Limits(adapter), 5, 0)]
    assert {column(each.case) for each in found} == set(MEANING)
    assert sum(cell["counts"]["pass"] for cell in cells_of(found).values()) == len(found)


# ---- the notes -------------------------------------------------------------------------------------------------------

SCRIPTS = sorted(NOTES.glob("*/*.py"))


@pytest.mark.sweep
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.parent.name}-{script.stem}")
def test_a_note_is_shown_by_its_script(script):
    """Each script runs to its end and prints the numbers."""
    if importlib.util.find_spec(script.parent.name) is None:
        pytest.skip(f"{script.parent.name} is not installed")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr[-2000:]
