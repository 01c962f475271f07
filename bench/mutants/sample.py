"""Draws small changes of the source, spread over all packages by their size."""

import ast
import copy
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from tests import ROOT

PACKAGE = ROOT / "src/regard"
PAIRS = [
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn),
    (ast.Add, ast.Sub), (ast.BitAnd, ast.BitOr), (ast.LShift, ast.RShift), (ast.And, ast.Or),
]  # fmt: skip
OTHER = {ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult}
OTHER |= dict(PAIRS) | {y: x for x, y in PAIRS}
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """One change: what a file has at `start` is replaced.

    function: the first line of the function around it, 0 if there is none
    """

    path: str
    line: int
    kind: str
    before: str
    after: str
    start: int
    function: int

    def applied(self, source: bytes) -> bytes:
        before, rest = self.before.encode(), source[self.start :]
        assert rest.startswith(before), "the source is not the one that was sampled"
        return source[: self.start] + self.after.encode() + rest.removeprefix(before)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every change of one node: its kind and the new node."""
    new = copy.copy(node)
    match node:
        case ast.Compare(ops=[operator]):
            new.ops = [OTHER[type(operator)]()]
            yield "comparison", new
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in OTHER:
            new.op = OTHER[type(operator)]()
            yield "operator", new
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "operator", operand
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float() as value):
            yield "constant", ast.Constant(2 * value or 1.0)
        case ast.Call(args=[first, second, *rest]) if not any(isinstance(a, ast.Starred) for a in (first, second)):
            new.args = [second, first, *rest]
            yield "arguments", new
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Return() | ast.Raise() | ast.Delete():
            yield "statement", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", ast.Pass()


def code(tree: ast.AST, function: int = 0) -> Iterator[tuple[ast.AST, int]]:
    """The nodes that compute, and the first line of the function around each: no annotations, and no f-strings, whose
    places Python 3.11 does not know.
    """
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.FormattedValue):
                yield child, function
                first = [each.lineno for each in (*child.decorator_list, child)] if isinstance(child, FUNCTION) else []
                yield from code(child, min(first, default=function))


def mutants(path: Path) -> list[Mutant]:
    """Every change of a file."""
    source = path.read_bytes()
    starts = list(accumulate(map(len, source.splitlines(keepends=True)), initial=0))
    found = []
    for node, function in code(ast.parse(source)):
        for kind, new in changes(node):
            start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            before, after = source[start:end].decode(), ast.unparse(new)
            if ast.unparse(node) != after:
                after = after if isinstance(new, ast.Pass | ast.Constant) else f"({after})"
                name = path.relative_to(ROOT).as_posix()
                found.append(Mutant(name, node.lineno, kind, before, after, start, function))
    return found


def sample(count: int, seed: int) -> list[Mutant]:
    """A sample: packages by their size, kinds of changes evenly."""
    draw = random.Random(seed)
    kinds = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for mutant in mutants(path):
            kinds[mutant.kind].append(mutant)
    chosen = {draw.choice(kinds[draw.choice(sorted(kinds))]) for _ in range(count)}
    return sorted(chosen, key=lambda mutant: (mutant.path, mutant.start, mutant.kind))
