"""Changes: a program with one place changed, in the ways in which people go wrong and put things right."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import permutations
from typing import Any

BINARY = ["+", "-", "*", "/", "//", "%", "@", "&", "|"]  # no power: whole numbers could become too large
COMPARISONS = ["<", "<=", ">", ">=", "==", "!="]
FAMILIES = [
    each.split()
    for each in (
        "sum max min mean prod median argmax argmin any all",
        "exp exp2 expm1 log log2 log10 sqrt cbrt square abs sin cos",
        "maximum minimum add subtract multiply divide logical_and logical_or",
        "zeros ones tril triu",
        "concatenate stack hstack vstack repeat tile repeat_interleave",
    )
]
GROWING = ("append", "extend", "insert")
STATEMENTS = ast.Assign, ast.AugAssign, ast.Expr, ast.If, ast.For

Texts = Iterator[tuple[str, str]]


def changes(tree: ast.Module, parts: list[str]) -> Iterator[tuple[Any, str]]:
    """The place of each change, and what is there instead, in words; until the next one the tree has it. Likely changes
    of small places come first.

    parts: expressions that may be in any place
    """
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    names |= {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)}
    places = sorted(_places(tree, names), key=lambda place: len(ast.unparse(place[2])))

    # Something else that is returned would say nothing; a loop over a list that it appends to would never end.
    fixed: list[Any] = [each.value for each in ast.walk(tree) if isinstance(each, ast.Return)]
    for each in ast.walk(tree):
        fixed += ast.walk(getattr(each, "iter", ast.Pass()))

    # A list that contains itself would never become an array.
    methods = [each.func for each in ast.walk(tree) if isinstance(each, ast.Call)]
    lists = {ast.unparse(each.value) for each in methods if isinstance(each, ast.Attribute) and each.attr in GROWING}

    def others(node: Any) -> Texts:
        if not isinstance(node, ast.stmt) and node not in fixed:
            for text in sorted(names) + parts:
                if lists.isdisjoint(re.findall(r"\w+", text)):
                    yield text, "something else"

    for texts in (_alike, _less, others):
        for holder, at, node in places:
            for text, says in texts(node):
                try:
                    new: Any = ast.parse(text).body[0]
                except SyntaxError:
                    continue
                holder[at] = new if isinstance(node, ast.stmt) else new.value
                yield node, says
            holder[at] = node


def _places(tree: ast.Module, names: set[str]) -> Iterator[tuple[Any, Any, Any]]:
    """The expressions and statements that may be changed, each with what has it and where there."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            for at, node in enumerate(value) if isinstance(value, list) else [(field, value)]:
                is_known = not isinstance(node, ast.Name) or node.id in names
                if (
                    isinstance(node, (ast.expr, *STATEMENTS))
                    and is_known
                    and field not in ("func", "target", "targets")
                ):
                    yield value if isinstance(value, list) else vars(parent), at, node


def _less(node: ast.AST) -> Texts:
    """A part of an expression alone, and nothing in the place of a statement."""
    if isinstance(node, ast.stmt):
        yield "pass", "nothing"
        return
    for text in [ast.unparse(each) for each in ast.walk(node) if isinstance(each, ast.expr)][1:5]:
        yield text, f"`{text}` alone"


def _alike(node: ast.AST) -> Texts:
    """Another operator, value, order or function."""
    texts: list[str] = []
    match node:
        case ast.Assign([target], value) | ast.AugAssign(target, _, value):
            texts = [f"{ast.unparse(target)} {each} {ast.unparse(value)}" for each in ("=", "+=")]
        case ast.BinOp(left, _, right) | ast.Compare(left, [_], [right]):
            both = f"({ast.unparse(left)})", f"({ast.unparse(right)})"
            signs = BINARY if isinstance(node, ast.BinOp) else COMPARISONS
            texts = [f" {sign} ".join(each) for sign in signs for each in (both, both[::-1])]
        case ast.Constant(int() | float() as number):
            texts = [*map(str, (not number, 0, 1, 2, number + 1, number - 1, number * 2))]
        case ast.Tuple(values) | ast.List(values) if len(values) < 5:
            texts = [ast.unparse(type(node)(list(each), ast.Load())) for each in permutations(values)]
        case ast.Call(function, values, named):
            call, name = ast.unparse(node), ast.unparse(function).split(".")[-1]
            texts = [ast.unparse(ast.Call(function, list(each), named)) for each in permutations(values[:3])]
            family = next((each for each in FAMILIES if name in each), [])
            texts += [call.replace(f"{name}(", f"{other}(", 1) for other in family]
    yield from ((each, "another operator, value, order or function") for each in texts if each != ast.unparse(node))
