"""Draws small changes of the source, spread over all packages by their size."""

import ast
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT

PACKAGE = ROOT / "src/regard"

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes from `start` to `end` of a file are replaced."""

    path: str
    line: int
    kind: str
    before: str
    after: str
    start: int
    end: int

    def applied(self, source: bytes) -> bytes:
        assert source[self.start : self.end].decode() == self.before, "the source is not the one that was sampled"
        return source[: self.start] + self.after.encode() + source[self.end :]


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every change of one node: its kind and the new node."""
    new = copy.copy(node)
    match node:
        case ast.Compare(ops=[operator]):
            new.ops = [COMPARISONS[type(operator)]()]
            yield "comparison", new
        case ast.BinOp(op=operator) if type(operator) in OPERATORS:
            new.op = OPERATORS[type(operator)]()
            yield "operator", new
        case ast.BoolOp(op=operator):
            new.op = ast.And() if isinstance(operator, ast.Or) else ast.Or()
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


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that compute: no annotations, and no f-strings, whose places Python 3.11 does not know."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.FormattedValue):
                yield child
                yield from _code(child)


def mutants(path: Path) -> list[Mutant]:
    """Every change of a file."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in _code(ast.parse(source)):
        for kind, new in changes(node):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            before, after = source[start:end].decode(), ast.unparse(new)
            if not isinstance(new, ast.Pass | ast.Constant):
                after = f"({after})"
            if ast.dump(ast.parse(ast.unparse(node))) != ast.dump(ast.parse(ast.unparse(new))):
                name = path.relative_to(ROOT).as_posix()
                found.append(Mutant(name, node.lineno, kind, before, after, start, end))
    return found


def sample(count: int, seed: int) -> list[Mutant]:
    """A sample: packages by their size, kinds of changes evenly."""
    draw = random.Random(seed)
    packages: dict[str, list[Mutant]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        package = path.relative_to(PACKAGE).parts[0]
        packages.setdefault(package if package.isidentifier() else "", []).extend(mutants(path))
    whole = sum(map(len, packages.values()))
    chosen = []
    for all_of in packages.values():
        kinds = sorted({mutant.kind for mutant in all_of})
        for _ in range(max(1, round(count * len(all_of) / whole))):
            kind = draw.choice(kinds)
            chosen.append(draw.choice([mutant for mutant in all_of if mutant.kind == kind]))
    return sorted(set(chosen), key=lambda mutant: (mutant.path, mutant.start, mutant.kind))
