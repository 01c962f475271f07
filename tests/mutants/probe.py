"""Notes which test runs each mutant's statement, in every process of a test run.

`tests.mutants reach` puts a .pth file beside the installed packages, which runs this file when $REGARD_REACH names a
folder. It changes the source of regard while it is imported: a call that takes a note, before the statement.
"""

import ast
import builtins
import contextlib
import csv
import fcntl
import importlib.machinery
import os
from pathlib import Path

FOLDER = Path(os.environ["REGARD_REACH"])
ROOT = Path(__file__).resolve().parents[2]


def _listed() -> dict[str, list[tuple[int, int, int]]]:
    """By file, the number of each mutant with its line and column."""
    listed: dict[str, list[tuple[int, int, int]]] = {}
    with open(FOLDER / "mutants.tsv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            path, start = ROOT / row["path"], int(row["start"])
            source = path.read_bytes()[:start]
            place = int(row["number"]), source.count(b"\n") + 1, start - source.rfind(b"\n") - 1
            listed.setdefault(str(path), []).append(place)
    return listed


def _call(number: int, at: ast.stmt) -> ast.stmt:
    call = ast.Call(ast.Name("__reached__", ast.Load()), [ast.Constant(number)], [])
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), at))


def _within(node: ast.stmt, line: int, column: int) -> bool:
    return (node.lineno, node.col_offset) <= (line, column) < (node.end_lineno, node.end_col_offset)


def _insert(tree: ast.Module, number: int, line: int, column: int) -> None:
    """A call before the innermost statement at a place; in each function of the file where that is in none."""
    bodies, inside = [(tree, tree.body)], None
    while bodies:
        owner, body = bodies.pop()
        for at, statement in enumerate(body):
            if not _within(statement, line, column):
                continue
            if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef) or inside:
                inside = body, at
            parts = [(statement, getattr(statement, name, [])) for name in ("body", "orelse", "finalbody")]
            parts += [(statement, part.body) for name in ("handlers", "cases") for part in getattr(statement, name, [])]
            bodies = parts
            break
    if inside:
        body, at = inside
        body.insert(at, _call(number, body[at]))
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False) is not None
            node.body.insert(docstring, _call(number, node.body[min(docstring, len(node.body) - 1)]))


def _start() -> None:
    listed, seen = _listed(), set()
    opened = os.open(FOLDER / f"reached-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    log = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 1000)  # above what tests close
    os.close(opened)
    environment = os.environ._data

    def reached(number: int) -> None:
        test = environment.get(b"PYTEST_CURRENT_TEST", b"")
        if (number, test) not in seen:
            seen.add((number, test))
            with contextlib.suppress(OSError):  # in a process that closes everything
                os.write(log, b"%d\t%s\n" % (number, test))

    builtins.__reached__ = reached
    compiled = importlib.machinery.SourceFileLoader.source_to_code

    def source_to_code(self, data, path, *, _optimize=-1):
        places = listed.get(str(path))
        if not places or not isinstance(data, bytes | bytearray | memoryview):
            return compiled(self, data, path, _optimize=_optimize)
        tree = ast.parse(bytes(data))
        for place in places:
            _insert(tree, *place)
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    importlib.machinery.SourceFileLoader.source_to_code = source_to_code


_start()
