"""Rules as text: the option --measure NAME=EXPR, an own detector over query, key and token, and masks of other options.

The text is parsed, never executed: only the operators below, numbers and these names have a meaning.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from ..common.errors import Reason, Refused
from ..language.expr import Expr, Op, Var, lift
from ..lens.runs.detectors import checked, token

EXAMPLE = "after_same=(key > 0) & (token[query] == token[key - 1])"
NAMES = {name: Var(name) for name in ("query", "key", "head")}
TOKEN = "token"
LONGEST = 1000  # characters
DEEPEST = 50  # nested parts
# The operators of Python by their nodes, as those of the language.
BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
COMPARED = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
BOOLEAN = {ast.And: "and", ast.Or: "or"}
UNARY = {ast.USub: "neg", ast.Invert: "not", ast.Not: "not"}
SYNTAX = "with numbers, comparisons, & | ~ ^ and + - * / // %"


@dataclass(frozen=True)
class Option:
    """An option that takes a rule: its command and name, what it gives, the names that it may read besides query and
    key, whether it may read token[…], and an example.
    """

    command: str
    name: str
    noun: str
    more: tuple[str, ...]
    tokens: bool
    example: str

    @property
    def expected(self) -> str:
        names = ["query", "key", *self.more, *([f"{TOKEN}[…]"] if self.tokens else [])]
        return f"a rule over {', '.join(names[:-1])} and {names[-1]}, {SYNTAX}"


MEASURE = Option("look", "--measure", "measure", more=(), tokens=True, example=EXAMPLE)


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
    if reasons:
        raise Refused("look", reasons)
    return found


def parse_rule(text: str, begin: int, option: Option) -> Expr:
    """The rule in a text from a position on, as a condition. Every refusal names the column in the whole text."""
    return _Rule(text, begin, option).parse()


class _Rule:
    """The rule in a text from a position on."""

    def __init__(self, text: str, begin: int, option: Option):
        self.option = option
        self.names = {name: NAMES[name] for name in ("query", "key", *option.more)}
        rule = text[begin:].replace("\n", " ").replace("\r", " ")  # of the same length, and on one line
        self.text, self.rule = text, rule.lstrip()
        self.begin = begin + len(rule) - len(self.rule)

    def parse(self) -> Expr:
        if len(self.rule) > LONGEST:
            raise self._wrong("the rule is too long", 0, f"{len(self.rule)} characters", f"at most {LONGEST}")
        if "\0" in self.rule:
            raise self._wrong("a NUL character", self.rule.index("\0"))
        try:
            tree = ast.parse(self.rule, mode="eval").body
        except SyntaxError as error:
            at_end = error.offset is None or error.offset < 1 or (error.lineno or 1) > 1
            column = len(self.rule) if at_end or error.offset is None else min(error.offset - 1, len(self.rule))
            raise self._wrong(error.msg or "the text is not a rule", column) from error
        except (RecursionError, MemoryError) as error:  # too many nested parts
            raise self._wrong("the text is not a rule", 0) from error
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
        deeper = depth + 1
        match node:
            case ast.Constant(value=value) if type(value) in (int, float):
                return self._built(node, lambda: lift(value))
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Subscript(value=ast.Name(id=name), slice=place) if name == TOKEN and self.option.tokens:
                index = self._read(place, deeper)
                if index.kind != "int":
                    wrong, expected = f"`{index}`", "an integer, such as key - 1; // divides integers"
                    raise self._wrong("a position that is not an integer", self._column(place), wrong, expected)
                return token[index]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                return self._operation(node, BINARY[type(op)], (left, right), deeper)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if (
                type(value) is not bool
            ):
                return self._built(node, lambda: lift(-value))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._read(operand, deeper)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
                return self._operation(node, UNARY[type(op)], (operand,), deeper)
            case ast.BoolOp(op=op, values=values):
                parts = [self._read(value, deeper) for value in values]
                return self._joined(node, BOOLEAN[type(op)], parts)
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in COMPARED for op in ops):
                sides = [self._read(side, deeper) for side in (left, *rights)]
                names = [COMPARED[type(op)] for op in ops]
                pairs = [
                    self._built(node, lambda each=each: Op(*each))
                    for each in zip(names, sides, sides[1:], strict=False)
                ]
                return self._joined(node, "and", pairs)
        raise self._unknown(node)

    def _operation(self, node: ast.expr, name: str, parts: tuple[ast.expr, ...], depth: int) -> Expr:
        read = [self._read(part, depth) for part in parts]
        return self._built(node, lambda: Op(name, *read))

    def _joined(self, node: ast.expr, name: str, parts: list[Expr]) -> Expr:
        found = parts[0]
        for part in parts[1:]:
            left = found
            found = self._built(node, lambda left=left, part=part: Op(name, left, part))
        return found

    def _built(self, node: ast.expr, build) -> Expr:
        """What `build` makes; a refusal of the language gets the column of the node."""
        try:
            return build()
        except Refused as refused:
            reason = refused.reasons[0]
            given = f"{reason.given}, at column {self._shown(self._column(node))} of {self._quoted()}"
            raise Refused(self.option.command, [Reason(reason.what, given, reason.expected, reason.fix)]) from None

    def _unknown(self, node: ast.expr) -> Refused:
        piece = ast.get_source_segment(self.rule, node) or ""
        if isinstance(node, ast.Name) and node.id == TOKEN and self.option.tokens:
            return self._wrong(
                "token without a position", self._column(node), "token", "token[query] or token[key - 1]"
            )
        what = "an unknown name" if isinstance(node, ast.Name) else f"a part that a {self.option.noun} cannot contain"
        return self._wrong(what, self._column(node), piece[:40])

    def _column(self, node: ast.expr) -> int:
        """The position of a node in the rule, in characters; `ast` counts bytes."""
        return len(self.rule.encode()[: node.col_offset].decode(errors="ignore"))

    def _shown(self, column: int) -> int:
        return self.begin + column + 1

    def _quoted(self) -> str:
        shown = self.text.replace("\n", " ").replace("\r", " ")
        return f"{self.option.name} '{shown[:200]}{' …' if len(shown) > 200 else ''}'"

    def _wrong(self, what: str, column: int, piece: str = "", expected: str = "") -> Refused:
        given = f"{f'{piece}, ' if piece else ''}at column {self._shown(column)} of {self._quoted()}"
        fix = f"for example: '{self.option.example}'"
        expected = expected or self.option.expected
        return Refused(self.option.command, [Reason(what, given, expected, fix)])
