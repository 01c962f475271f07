"""The imports of the package as a graph, read from the source: which file imports which, at its top or inside a
function.
"""

import ast
import functools
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests import ROOT

SOURCE = ROOT / "src" / "regard"


class Import(NamedTuple):
    """One import statement's target: a module of the package. inside: it stands in a function and runs when that is
    called.
    """

    module: str
    inside: bool


def modules(root: Path = SOURCE) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join([root.name, *(parts[:-1] if parts[-1] == "__init__" else parts)])] = path
    return found


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file, read once."""
    return ast.parse(path.read_text())


def _statements(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The import statements below a node, and whether they stand in a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, inside
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _statements(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def imports(name: str, files: dict[str, Path]) -> Iterator[Import]:
    """The modules of the package that a module imports."""
    path = files[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node, inside in _statements(parsed(path)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            targets = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in files else base for alias in node.names]
        yield from (Import(target, inside) for target in targets if target in files)


def reached(starts: list[str]) -> set[Path]:
    """Every file that is loaded with these modules, their packages' __init__ left out: what can decide what they do."""
    files = modules()
    seen: set[str] = set()
    waiting = deque(starts)
    while waiting:
        name = waiting.popleft()
        if name not in seen:
            seen.add(name)
            waiting.extend(target for target, _ in imports(name, files))
    return {files[name] for name in seen if name != SOURCE.name}


def long_signatures(root: Path = SOURCE, most: int = 6) -> list[str]:
    """Functions that take more arguments by position. Those of a command are its options."""
    found = []
    for name, path in modules(root).items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not name.startswith(f"{root.name}.cli"):
                given = [
                    each.arg for each in (*node.args.posonlyargs, *node.args.args) if each.arg not in ("self", "cls")
                ]
                if len(given) > most:
                    found.append(f"{name}: {node.name}({', '.join(given)})")
    return found
