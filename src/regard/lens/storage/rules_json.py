"""Rules as JSON: expressions as a list of nodes, with their tables as separate arrays. Reading executes nothing.

    {"const": 256} · {"var": "query"} · {"op": "sub", "of": [1, 2]} · {"read": 0, "at": [1]}

Nodes follow their operands and are referenced by their index in the list; "read" references a table by its index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...common.errors import Reason, Refused, did_you_mean, page, refuse
from ...common.files.strict_json import FIX
from ...language.expr import Const, Expr, Op, Read, Table, Var, fold_all
from ...language.operators import OPERATORS

# The forms of a node, as `strict_json.wrong` takes them.
NODE = ({"const": (bool, int, float)}, {"var": str}, {"op": str, "of": [int]}, {"read": int, "at": [int]})


def pack(rules: Mapping[str, Expr | None]) -> tuple[dict[str, Any], list[Table]]:
    """(rules as JSON, the tables that they read, in order). Shared nodes are stored once.

    >>> from regard.language.expr import key, query
    >>> pack({"mask": key <= query, "score": None})[0]
    {'nodes': [{'var': 'key'}, {'var': 'query'}, {'op': 'le', 'of': [0, 1]}], 'mask': 2, 'score': None}
    """
    nodes: list[dict[str, Any]] = []
    tables: list[Table] = []

    def place(described: dict[str, Any]) -> int:
        nodes.append(described)
        return len(nodes) - 1

    def read(node: Read, *index: int) -> int:
        if node.table not in tables:
            tables.append(node.table)
        return place({"read": tables.index(node.table), "at": list(index)})

    places: dict[int, int] = fold_all(
        [rule for rule in rules.values() if rule is not None],
        lambda node: place({"const": node.value}),
        lambda node: place({"var": node.name}),
        read,
        lambda node, *args: place({"op": node.name, "of": list(args)}),
        {},
    )
    return {
        "nodes": nodes,
        **{name: None if rule is None else places[id(rule)] for name, rule in rules.items()},
    }, tables


def unpack(described: Mapping[str, Any], tables: Sequence[Table]) -> dict[str, Expr | None]:
    """The rules of nodes that have these forms. Refused, listing every problem: what `pack` cannot have written."""
    reasons: list[Reason] = []
    made: list[Expr | None] = []
    for number, node in enumerate(described["nodes"]):
        try:
            made.append(_node(node, made, tables, f"node {number}"))
        except Refused as refused:
            reasons.extend(refused.reasons)
            made.append(None)
    roots = {name: place for name, place in described.items() if name != "nodes"}
    for name, place in roots.items():
        reasons += _earlier([] if place is None else [place], made, name)
    if reasons:
        raise Refused("open", reasons)
    return {name: None if place is None else made[place] for name, place in roots.items()}


def _node(node: Mapping[str, Any], made: Sequence[Expr | None], tables: Sequence[Table], at: str) -> Expr | None:
    """The node, or None if one of its operands was invalid."""
    if "const" in node:
        return Const(node["const"])
    if "var" in node:
        return Var(node["var"])
    places = node["of"] if "op" in node else node["at"]
    if missing := _earlier(places, made, at):
        raise Refused("rules", missing)
    parts = [made[place] for place in places]
    whole = all(part is not None for part in parts)
    if "op" in node:
        row, given = OPERATORS.get(node["op"]), f"{at}: {node['op'][:80]}"
        if row is None:
            fix = did_you_mean(node["op"][:80], OPERATORS, page("The language of masks and scores"))
            raise refuse("rules", "an unknown operator", given, "an operator of regard", fix)
        if len(parts) != len(row.takes):
            expected = f"{len(row.takes)}"
            raise refuse("rules", "the wrong number of arguments", f"{given} of {len(parts)}", expected, FIX)
        return Op(row.name, *parts) if whole else None
    if not 0 <= node["read"] < len(tables):
        raise refuse("rules", "a missing table", f"{at}: table {node['read']}", f"one of {len(tables)}", FIX)
    return Read(tables[node["read"]], *parts) if whole else None


def _earlier(places: Sequence[int], made: Sequence[Any], at: str) -> list[Reason]:
    return [
        Reason("a missing node", f"{at}: {str(place)[:80]}", f"an index below {len(made)}", FIX)
        for place in places
        if not 0 <= place < len(made)
    ]
