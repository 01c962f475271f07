"""What the documents say is true: their code runs, their examples print what they show, their tables match the
source.
"""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

import regard
from regard.language.operators import OPERATORS
from tests import ROOT
from tests.support.import_graph import modules

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = [name for name, path in modules().items() if ">>>" in path.read_text()]


class Runner(doctest.DocTestRunner):
    """Examples print what they show; an error that none of them shows ends the test as it would end any other."""

    def report_unexpected_exception(self, out, test, example, exc_info):
        raise exc_info[1]


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a language, each moved down to its own line so that a failure names the right one."""
    text = path.read_text()
    return [
        "\n" * text[: found.start(1)].count("\n") + found[1]
        for found in re.finditer(rf"```{language}\n(.*?)```", text, re.S)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_code_of_a_document_runs(path, tmp_path, monkeypatch):
    """Every Python block runs, in order, in one namespace; what stands behind >>> prints what is shown."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks(path, "python"):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, path.name, str(path), 0)
            runner = Runner(optionflags=doctest.ELLIPSIS)
            assert runner.run(test, clear_globs=False).failed == 0, f"{path.name}: an example prints something else"
            names = test.globs
        else:
            exec(compile(block, str(path), "exec"), names)


PARTLY_RUN = [*sorted((ROOT / "src/regard/learn/chapters").glob("*.md")), *sorted((ROOT / "bench").rglob("*.py"))]


@pytest.mark.parametrize("path", PARTLY_RUN, ids=lambda path: path.name)
def test_what_is_imported_exists(path):
    """In chapters and benchmarks, of which no test runs every line."""
    for line in re.findall(r"^ *(from regard[\w.]* import [\w, ]+)", path.read_text(), re.M):
        exec(line, {})


class Finder(doctest.DocTestFinder):
    """Examples of what a file itself defines: public classes say another module, the package of which they are part."""

    def _from_module(self, module, object):
        if isinstance(object, type):
            tree = ast.parse(Path(module.__file__).read_text())
            return object.__name__ in {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        return super()._from_module(module, object)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    """Every docstring example prints what it shows."""
    runner = Runner(optionflags=doctest.ELLIPSIS)
    for test in Finder().find(importlib.import_module(name)):
        assert runner.run(test).failed == 0, f"{test.name}: an example prints something else"


def test_the_table_of_operators_is_the_table_of_operators():
    """docs/reference/language.md lists every operator as operators.py has it."""
    kinds = {"n": "number", "i": "int", "b": "condition", "x": "any"}
    rows = ["| written | takes | gives | slope | cost |", "|---|---|---|---|---|"]
    for row in OPERATORS.values():
        arguments = "c, x, y" if len(row.takes) == 3 else ", ".join("xy"[: len(row.takes)])
        infix = f"x {row.text} y" if len(row.takes) == 2 else f"{row.text}x"
        written = f"{row.text}({arguments})" if row.text.isidentifier() else infix.replace("|", "\\|")
        slope = "–" if row.derivative is None else "yes"
        gives = {"promote": "int or float", "bool": "condition"}.get(row.gives, row.gives)
        rows.append(
            f"| `{written}` | {', '.join(kinds[letter] for letter in row.takes)} | {gives} | {slope} | {row.cost} |"
        )

    assert "\n".join(rows) in (ROOT / "docs" / "reference" / "language.md").read_text()


def test_every_public_name_is_in_the_language():
    """docs/reference/language.md or the README names everything that `import regard` offers."""
    told = "\n".join(path.read_text() for path in DOCUMENTS)

    assert [name for name in regard.__all__ if not re.search(rf"\b{name}\b", told)] == []


def test_every_law_names_tests_that_exist():
    """docs/reference/laws.md points at tests by name, and each is there."""
    text = (ROOT / "docs" / "reference" / "laws.md").read_text()
    files = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    named = set(re.findall(r"`(test_\w+)`", text)) - {path.stem for path in files}
    defined = set(re.findall(r"^def (test_\w+)", "\n".join(files.values()), re.M))

    assert named and named - defined == set()
    assert re.findall(r"^## (\d+)\. ", text, re.M) == [str(number) for number in range(1, 14)]


def test_links_lead_somewhere():
    """Every relative link of the documents points at a file of the repository."""
    for path in DOCUMENTS:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
            assert (path.parent / link).exists(), f"{path.name} links to {link}"


def test_the_page_on_architecture_names_every_package():
    """The page on architecture shows every package, and every folder and file of the packages that compute."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    source = ROOT / "src" / "regard"
    packages = {path.name for path in source.iterdir() if path.is_dir() and path.name != "__pycache__"}
    parts = {path.stem for package in ("language", "engines", "api") for path in (source / package).iterdir()}

    assert sorted(package for package in packages if f"`{package}/`" not in text) == []
    assert sorted(name for name in parts - {"__init__", "__pycache__"} if name not in text) == []
