"""Rules as JSON: expressions as a list of nodes, with their tables as separate arrays. Reading validates the nodes and
executes nothing.

    {"const": 256} · {"var": "query"} · {"op": "sub", "of": [1, 2]} · {"read": 0, "at": [1]}

Nodes follow their operands and are referenced by their index in the list; "read" references a table by its index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...common.errors import Reason, Refused, did_you_mean, page, refuse
from ...language.expr import Const, Expr, Op, Read, Table, Var, fold_all
from ...language.operators import OPERATORS

UNCHANGED = "use the file as it was written"
SHAPES = ({"const"}, {"var"}, {"op", "of"}, {"read", "at"})


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
    """The rules that `pack` described. Refused, listing every problem: anything that `pack` cannot have written."""
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


def _node(node: Any, made: Sequence[Expr | None], tables: Sequence[Table], at: str) -> Expr | None:
    """The node, or None if one of its operands was invalid."""
    if not isinstance(node, dict) or set(node) not in SHAPES:
        raise _refused("not a node of a rule", f"{at}: {str(node)[:80]}", "const, var, op with of, or read with at")
    if "const" in node:
        if type(node["const"]) not in (bool, int, float):
            raise _refused("not a constant", f"{at}: {str(node['const'])[:80]}", "a number, true or false")
        return Const(node["const"])
    if "var" in node:
        return Var(node["var"])
    places = node.get("of", node.get("at"))
    if not isinstance(places, list):
        raise _refused("not a list of nodes", f"{at}: {str(places)[:80]}", "indices of earlier nodes")
    if missing := _earlier(places, made, at):
        raise Refused("rules", missing)
    parts = [made[place] for place in places]
    whole = all(part is not None for part in parts)
    if "op" in node:
        row = OPERATORS.get(node["op"]) if isinstance(node["op"], str) else None
        if row is None:
            fix = did_you_mean(str(node["op"])[:80], OPERATORS, page("The language of masks and scores"))
            raise _refused("an unknown operator", f"{at}: {str(node['op'])[:80]}", "an operator of regard", fix)
        if len(parts) != len(row.takes):
            raise _refused("the wrong number of arguments", f"{at}: {row.name} of {len(parts)}", f"{len(row.takes)}")
        return Op(row.name, *parts) if whole else None
    if type(node["read"]) is not int or not 0 <= node["read"] < len(tables):
        raise _refused("a missing table", f"{at}: table {str(node['read'])[:80]}", f"one of {len(tables)}")
    return Read(tables[node["read"]], *parts) if whole else None


def _earlier(places: Sequence[Any], made: Sequence[Any], at: str) -> list[Reason]:
    return [
        Reason("a missing node", f"{at}: {str(place)[:80]}", f"an index below {len(made)}", UNCHANGED)
        for place in places
        if type(place) is not int or not 0 <= place < len(made)
    ]


def _refused(what: str, given: str, expected: str, fix: str = UNCHANGED) -> Refused:
    return refuse("rules", what, given, expected, fix)
