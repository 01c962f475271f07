"""Pickled trees: nodes as a list, because pickle's own way down a deep tree ends at Python's limit of recursion."""

from __future__ import annotations

from typing import Any

from .interning import walk


def reduced(root: Any) -> tuple[Any, ...]:
    """What `__reduce__` returns for an operator or a read: each node below it once, children before parents."""
    places: dict[int, int] = {}
    steps: list[tuple[Any, ...]] = []
    for node in walk(root):
        steps.append((*_made(node), *(places[id(part)] for part in node.children)))
        places[id(node)] = len(places)
    return _rebuilt, (steps,)


def _made(node: Any) -> tuple[Any, Any]:
    """The class and the first argument of an operator or a read; None and the node itself of a variable or constant."""
    kind = type(node)
    if hasattr(kind, "table"):  # of the class: for a node without it, Python would write out the whole tree
        return kind, node.table
    return (kind, node.name) if node.children else (None, node)


def _rebuilt(steps: list[tuple[Any, ...]]) -> Any:
    nodes: list[Any] = []
    for make, first, *places in steps:
        nodes.append(first if make is None else make(first, *(nodes[place] for place in places)))
    return nodes[-1]
