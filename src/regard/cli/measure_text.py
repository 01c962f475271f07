"""Rules as text: the option --measure NAME=EXPR, an own detector over query, key and token, and masks of other options.

The text is parsed, never executed: only the operators below, numbers and these names have a meaning.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ..common.errors import Reason, Refused, refuse, refuse_all
from ..language.expr import Expr, Op, Var, lift
from ..lens.runs.detectors import checked, token

EXAMPLE = "after_same=(key > 0) & (token[query] == token[key - 1])"
TOKEN = "token"
LONGEST = 1000  # characters
DEEPEST = 50  # nested parts
# The operators of Python by their nodes, as those of the language.
OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.And: "and",
    ast.Or: "or",
    ast.USub: "neg",
    ast.Invert: "not",
    ast.Not: "not",
}
SYNTAX = "with numbers, comparisons, & | ~ ^ and + - * / // %"


@dataclass(frozen=True)
class Option:
    """An option that takes a rule: its command and name, what it gives, the names that it may read, and an example."""

    command: str
    name: str
    noun: str
    names: tuple[str, ...]
    example: str

    @property
    def expected(self) -> str:
        names = [f"{TOKEN}[…]" if name == TOKEN else name for name in self.names]
        return f"a rule over {', '.join(names[:-1])} and {names[-1]}, {SYNTAX}"


MEASURE = Option("look", "--measure", "measure", ("query", "key", TOKEN), EXAMPLE)


def parse_measures(texts: Sequence[str]) -> dict[str, Expr]:
    """The rules of `look(measures=)` from texts NAME=EXPR. Refused: every text that is not such a rule.

    >>> parse_measures(["next=key == query + 1"])
    {'next': key == query + 1}
    """
    reasons: list[Reason] = []
    found: dict[str, Expr] = {}
    for text in texts:
        name, separator, rule = text.partition("=")
        name = name.strip()
        if not separator or not rule.strip() or rule.startswith("="):
            reasons.append(
                Reason(
                    "invalid --measure",
                    f"--measure {text[:80]!r}",
                    "NAME=EXPR",
                    f"pass, for example, --measure '{EXAMPLE}'",
                )
            )
            continue
        if name in found:
            reasons.append(Reason("a measure is given twice", name, "different names", "rename one of them"))
            continue
        try:
            found |= checked({name: parse_rule(text, len(text) - len(rule), MEASURE)})
        except Refused as refused:
            reasons += refused.reasons
    refuse_all("look", reasons)
    return found


def parse_rule(text: str, begin: int, option: Option) -> Expr:
    """The rule in a text from a position on, as a condition. Every refusal names the column in the whole text."""
    return _Rule(text, begin, option).parse()


class _Rule:
    """The rule in a text from a position on."""

    def __init__(self, text: str, begin: int, option: Option):
        self.option = option
        self.text = text.replace("\n", " ").replace("\r", " ")  # of the same length, and on one line
        rule = self.text[begin:]
        self.rule = rule.lstrip()
        self.begin = begin + len(rule) - len(self.rule)

    def parse(self) -> Expr:
        if len(self.rule) > LONGEST:
            raise self._wrong("the rule is too long", 0, f"{len(self.rule)} characters", f"at most {LONGEST}")
        try:
            tree = ast.parse(self.rule, mode="eval").body
        except SyntaxError as error:
            offset = error.offset or 0
            at_end = offset < 1 or (error.lineno or 1) > 1
            column = len(self.rule) if at_end else min(offset - 1, len(self.rule))
            raise self._wrong(error.msg or "the text is not a rule", column) from error
        found = self._read(tree, 0)
        if found.kind != "bool":
            raise self._wrong(
                f"a {self.option.noun} that is not a condition",
                self._column(tree),
                f"`{found}`, which is a number",
                "a condition, such as key == query - 1",
            )
        return found

    def _read(self, node: ast.expr, depth: int) -> Expr:
        """The expression of a node."""
        if depth > DEEPEST:
            expected = f"at most {DEEPEST}"
            raise self._wrong("too many nested parts", self._column(node), "a deeper part", expected)

        def parts(*nodes: ast.expr) -> list[Expr]:
            return [self._read(each, depth + 1) for each in nodes]

        match node:
            case ast.Constant(value=value) if type(value) in (int, float):
                return self._built(node, lift, value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if (
                type(value) is not bool
            ):
                return self._built(node, lift, -value)
            case ast.Name(id=name) if name in self.option.names and name != TOKEN:
                return Var(name)
            case ast.Subscript(value=ast.Name(id=name), slice=place) if name == TOKEN and name in self.option.names:
                if isinstance(place, ast.Constant) and isinstance(place.value, str):
                    return token[place.value]
                (index,) = parts(place)
                if index.kind != "int":
                    wrong, expected = f"`{index}`", "an integer, such as key - 1; // divides integers"
                    raise self._wrong("a position that is not an integer", self._column(place), wrong, expected)
                return token[index]
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return parts(operand)[0]
            case ast.UnaryOp(op=op, operand=operand):
                return self._built(node, Op, OPERATORS[type(op)], *parts(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return self._built(node, Op, OPERATORS[type(op)], *parts(left, right))
            case ast.BoolOp(op=op, values=values):
                return self._joined(node, OPERATORS[type(op)], parts(*values))
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in OPERATORS for op in ops):
                sides = parts(left, *rights)
                pairs = zip(ops, sides, sides[1:], strict=False)
                compared = [self._built(node, Op, OPERATORS[type(op)], *pair) for op, *pair in pairs]
                return self._joined(node, "and", compared)
        raise self._unknown(node)

    def _joined(self, node: ast.expr, name: str, parts: list[Expr]) -> Expr:
        return reduce(lambda left, right: self._built(node, Op, name, left, right), parts)

    def _built(self, node: ast.expr, build: Callable[..., Expr], *parts: Any) -> Expr:
        """What `build` makes of the parts; a refusal of the language gets the column of the node."""
        try:
            return build(*parts)
        except Refused as refused:
            reason = refused.reasons[0]
            given = f"{reason.given}, {self._place(self._column(node))}"
            raise refuse(self.option.command, reason.what, given, reason.expected, reason.fix) from None

    def _unknown(self, node: ast.expr) -> Refused:
        piece = ast.get_source_segment(self.rule, node) or ""
        if isinstance(node, ast.Name) and node.id == TOKEN and TOKEN in self.option.names:
            return self._wrong(
                "token without a position", self._column(node), "token", "token[query] or token[key - 1]"
            )
        what = "an unknown name" if isinstance(node, ast.Name) else f"a part that a {self.option.noun} cannot contain"
        return self._wrong(what, self._column(node), piece[:40])

    def _column(self, node: ast.expr) -> int:
        """The position of a node in the rule, in characters; `ast` counts bytes."""
        return len(self.rule.encode()[: node.col_offset].decode(errors="ignore"))

    def _place(self, column: int) -> str:
        """A position in the rule as people find it: in the whole option."""
        quoted = f"{self.option.name} '{self.text[:200]}{' …' if len(self.text) > 200 else ''}'"
        return f"at column {self.begin + column + 1} of {quoted}"

    def _wrong(self, what: str, column: int, piece: str = "", expected: str = "") -> Refused:
        given = f"{f'{piece}, ' if piece else ''}{self._place(column)}"
        fix = f"for example: '{self.option.example}'"
        return refuse(self.option.command, what, given, expected or self.option.expected, fix)
