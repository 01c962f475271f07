"""Expressions as text: Python code that builds them, with the fewest parentheses."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..operators import CALL, COMPARE, OPERATORS, UNARY


def written(root: Any, names: dict[int, str], limit: float) -> str:
    """The text of an expression, with the names of its tables, and of parts that have one, by id; text beyond the limit
    is replaced by ….
    """
    pieces: list[str] = []
    ahead: list[Any] = [root]  # the parts to write, the next one last
    while ahead and limit > 0:
        part = ahead.pop()
        if isinstance(part, str):
            pieces.append(part)
            limit -= len(part)
        elif id(part) in names:
            ahead.append(names[id(part)])
        else:
            ahead.extend(reversed(_parts(part, names)))
    return "".join(pieces) + ("…" if ahead else "")


def rank(node: Any) -> int:
    """The precedence of the text of a node."""
    kind = type(node).__name__
    if kind == "Const":
        return UNARY if repr(node.value).startswith("-") and np.isfinite(node.value) else CALL
    if kind != "Op" or OPERATORS[node.name].precedence == CALL:
        return CALL
    return UNARY if len(node.args) == 1 else OPERATORS[node.name].precedence


def _parts(node: Any, names: dict[int, str]) -> list[Any]:
    """The text of a node: strings, and nodes between them. Class names are compared, as `expr` imports this file."""
    match type(node).__name__:
        case "Const":
            return [repr(node.value) if np.isfinite(node.value) else f"float('{node.value}')"]
        case "Read":
            return [f"{names[id(node.table)]}[", *_listed([[part] for part in node.index]), "]"]
        case "Op":
            return _operator(OPERATORS[node.name], node.args)
    return [node.name]


def _operator(row, nodes: tuple) -> list[Any]:
    args: list[list[Any]] = [[arg] for arg in nodes]
    ranks = [rank(arg) for arg in nodes]
    if (row.precedence != CALL or row.text == "abs") and all(type(arg).__name__ == "Const" for arg in nodes):
        args[0], ranks[0] = ["lift(", nodes[0], ")"], CALL  # otherwise Python computes the constant
    if row.precedence == CALL:
        return [f"{row.text}(", *_listed(args), ")"]
    # Comparisons do not chain, and a right operand of equal precedence needs parentheses.
    left = ranks[0] < (row.precedence if len(args) == 2 else CALL) or ranks[0] == row.precedence == COMPARE
    first, *second = (
        ["(", *arg, ")"] if loose else arg
        for arg, loose in zip(args, (left, ranks[-1] <= row.precedence), strict=False)
    )
    return [*first, f" {row.text} ", *second[0]] if second else [row.text, *first]


def _listed(args: list[list[Any]]) -> list[Any]:
    return [part for arg in args for part in (", ", *arg)][1:]
