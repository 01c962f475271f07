"""Formula: the plain notation of formulas in chapters, such as softmax(Q Kᵀ / √d) V, as MathML that reads the same.

The notation is described in docs/how-to/write-a-chapter.md. It raises Refused for what cannot be read, with its line.
"""

from __future__ import annotations

import html
import re
import textwrap
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ...common.errors import Refused, page, refuse

RELATIONS = "=→≈"
RELATION = re.compile(rf"(?<!\S)[{RELATIONS}](?!\S)")
JOINS = f"{RELATIONS}+−·/@"  # wide spaces beside these are there for alignment
GAP = re.compile(r" {2,}")
UNSEEN = '<mphantom><mo form="infix" lspace="0.28em" rspace="0.28em">=</mo></mphantom>'  # as wide as an equals sign


@dataclass(frozen=True)
class Piece:
    """What is between wide spaces. at: its column in the plain text · line: its number"""

    text: str
    at: int
    line: int

    @property
    def goes_on(self) -> bool:
        """Whether it continues the formula of the line above."""
        return self.text[0] in JOINS and self.text[1:2] == " "

    @property
    def sides(self) -> tuple[str, str] | None:
        """Left of the first relation outside brackets, and the rest."""
        for match in RELATION.finditer(self.text):
            if _balanced(self.text[: match.start()]):
                return self.text[: match.start()].strip(), self.text[match.start() :]
        return None


def formula(text: str, first: int = 1) -> str:
    """A block of formulas as HTML: MathML, whose alternative text is the plain text. first: the number of its line.

    Raises Refused for what cannot be read.

    >>> formula("a / 2").partition("<mfrac>")[2].partition("</mfrac>")[0]
    '<mi class="italic">a</mi><mn>2</mn>'
    """
    numbered = enumerate(text.rstrip().split("\n"), first)
    groups = groupby(numbered, key=lambda pair: bool(pair[1].strip()))
    made = "".join(_group(list(lines)) for filled, lines in groups if filled)
    return f'<div class="formula" tabindex="0" role="group" aria-label="Formula">{made}</div>\n'


def checked(text: str, first: int = 1) -> str:
    """What is wrong with a block of formulas, or an empty text."""
    try:
        formula(text, first)
    except Refused as refused:
        return "; ".join(f"{each.what}: {each.given}" for each in refused.reasons)
    return ""


def _group(lines: Sequence[tuple[int, str]]) -> str:
    """Lines that belong together, with their numbers: one formula, or a table whose columns are aligned."""
    said = textwrap.dedent("\n".join(line for _, line in lines))
    pieces = [_pieces(line, number) for number, line in lines]
    first = pieces[0][0]
    inner = _made(first.text, first.line) if sum(map(len, pieces)) == 1 else _table(pieces)
    return f'<math display="block" alttext="{html.escape(said, quote=True)}">{inner}</math>'


def _pieces(line: str, number: int) -> list[Piece]:
    """The parts of a line between wide spaces. A sign between wide spaces joins both sides."""
    found: list[Piece] = []
    at = len(line) - len(line.lstrip())
    gaps = [gap.span() for gap in GAP.finditer(line) if gap.start() >= at and _balanced(line[: gap.start()])]
    for end, following in [*gaps, (len(line), len(line))]:
        text = line[at:end].strip()
        before = found[-1] if found else None
        if text and before and ((text[0] in JOINS and text[1:2] in ("", " ")) or before.text[-1] in JOINS):
            found[-1] = Piece(f"{before.text} {text}", before.at, number)
        elif text:
            found.append(Piece(text, at, number))
        at = following
    return found


def _balanced(text: str) -> bool:
    """Whether no bracket is open at its end."""
    return sum(map(text.count, "([{")) == sum(map(text.count, ")]}"))


def _table(lines: list[list[Piece]]) -> str:
    """Lines of pieces, those that begin below each other in one column, which may be aligned at its relations."""
    margin = min(line[0].at for line in lines)
    indented = [line[0] for line in lines if line[0].goes_on or line[0].at > margin]  # they go on in a column
    starts = sorted({margin, *(piece.at for line in lines for piece in line if piece not in indented)})
    rows = [{bisect(starts, piece.at) - 1: piece for piece in line} for line in lines]
    split = set()
    for column in range(len(starts)):
        pieces = [row[column] for row in rows if column in row]
        relations = sum(piece.sides is not None for piece in pieces)
        if len(pieces) > 1 and relations >= (1 if column == 0 else 2):
            split.add(column)
    made = "".join(
        f"<mtr>{''.join(_cells(row.get(at), start, at in split) for at, start in enumerate(starts))}</mtr>"
        for row in rows
    )
    return f'<mtable displaystyle="true">{made}</mtable>'


def _cells(piece: Piece | None, start: int, split: bool) -> str:
    """The cells of a column in one line, which may have nothing there. start: where the column begins"""
    if piece is None:
        return _cell("left") + _cell("right") if split else _cell("only")
    if split and piece.sides is not None:
        left, right = (_made(side, piece.line) for side in piece.sides)
        return _cell("left", left) + _cell("right", right)
    made = _made(piece.text, piece.line)
    if split and (piece.goes_on or piece.at > start):
        return _cell("left") + _cell("right", made if piece.text[0] in RELATIONS else UNSEEN + made)
    return _cell("only", made, ' columnspan="2"' if split else "")


def _cell(side: str, made: str = "", span: str = "") -> str:
    return f'<mtd class="{side}"{span}>{made}</mtd>'


def _made(text: str, line: int) -> str:
    return _Reader(text, line).whole()


CHARACTER = "A-Za-zα-ωΑ-ΟΡΤ-Ωϕℓ"  # Π and Σ are signs
TOKEN = re.compile(
    rf"""(?P<space>\s+)|(?P<number>\d+(?:,\d{{3}})*(?:\.\d+)?)|(?P<word>[{CHARACTER}]+(?:[-’'][{CHARACTER}]+)*)"""
    rf"""|(?P<quoted>“[^”]*”|"[^"]*")|(?P<sup>[ᵀ⁰¹²³⁴-⁹⁻⁺ⁿ]+)|(?P<sub>[₀-₉₋₊]+)|(?P<sign>.)"""
)
PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿᵀ₀₁₂₃₄₅₆₇₈₉₋₊", "0123456789−+nT0123456789−+")
OPENING = {"(": ")", "[": "]", "|": "|", "{": "}"}
BIG = ("Σ", "Π")
ATOMS = ("…", "∞", "∂", "∅")
TERM_ENDS = "=≠≈<>≤≥∝→←∈+−±,;:"  # a fraction ends there
SPACE = {**dict.fromkeys("=≠≈<>≤≥∝→←∈", (0.28, 0.28)), **dict.fromkeys("+−±", (0.22, 0.22)), "/": (0.05, 0.05)}
SPACE |= {**dict.fromkeys("·×∘@", (0.2, 0.2)), ",": (0, 0.22), ";": (0, 0.28), ":": (0.05, 0.28)}
UNDER = ("max", "min", "argmax")  # their subscript is below them
PROSE = {"and", "else", "first", "for", "if", "of", "or", "otherwise", "over", "the", "then", "where", "with"}
INSTEAD = {"-": "−, the minus sign U+2212", "*": "· or ×", "'": "a quotation in “…”"}


@dataclass(frozen=True)
class Token:
    """kind: a group of TOKEN · spaced: whether a space precedes it"""

    kind: str
    text: str
    spaced: bool


@dataclass
class Item:
    """A piece of a row.

    kind: "operator", "word" (which may be prose) or "factor" · bare: without its own parentheses
    """

    kind: str
    made: str
    spaced: bool = False
    bare: str = ""
    text: str = ""


class _Reader:
    """Reads one formula from left to right."""

    def __init__(self, text: str, line: int):
        self.text, self.line, self.at = text, line, 0
        self.tokens: list[Token] = []
        spaced = False
        for match in TOKEN.finditer(text):
            if match.lastgroup != "space":
                self.tokens.append(Token(str(match.lastgroup), match[0], spaced))
            spaced = match.lastgroup == "space"

    def wrong(self, what: str, expected: str, fix: str) -> Refused:
        return refuse("formula", what, f"line {self.line}: {self.text.strip()}", expected, fix)

    @property
    def next(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def whole(self) -> str:
        items = self.items("")
        if self.next is not None:
            raise self.wrong(f"{self.next.text} closes nothing", "pairs of brackets", "open it, or leave it out")
        return _row(items)

    def items(self, end: str) -> list[Item]:
        """The pieces up to a closing bracket."""
        found: list[Item] = []
        while (token := self.next) is not None and token.text != end and token.text not in ")]}":
            if token.text == "/" and token.kind == "sign":
                self.slash(found)
            elif token.kind == "sign" and token.text in SPACE:
                self.take()
                found.append(Item("operator", "", token.spaced, text=token.text))
            else:
                found.append(self.factor())
        return found

    def slash(self, found: list[Item]) -> None:
        """A fraction, if the slash has spaces around it; else a slash in the line, as in d/2."""
        slash = self.take()
        following = self.next
        if following is None or not found or _ends(found[-1]):
            fix = "write both: a / b; a sum in parentheses: (a + b) / c"
            raise self.wrong("a slash lacks one of its sides", "a term before and after it", fix)
        if not slash.spaced or not following.spaced:
            found.append(Item("operator", "", text="/"))
            return
        if following.text in BIG:
            raise self.wrong("it is open where the fraction ends", "a / (Σ …)", "write parentheses around the sum")
        above: list[Item] = []
        while found and not _ends(found[-1]):
            above.insert(0, found.pop())
        below = [self.factor()]
        while (token := self.next) is not None and not token.spaced and self.begins(token):
            below.append(self.factor())
        parts = "".join(_one(_bare(part)) for part in (above, below))
        found.append(Item("factor", f"<mfrac>{parts}</mfrac>", above[0].spaced))

    @staticmethod
    def begins(token: Token) -> bool:
        """Whether a factor begins with a token."""
        return token.kind in ("number", "word", "quoted") or token.text in ("(", "[", "√", *BIG, *ATOMS)

    def factor(self) -> Item:
        token = self.take()
        kind = "factor"
        match token.kind, token.text:
            case "number", text:
                made = f"<mn>{text}</mn>"
            case "word", text:
                made = _name(text)
                kind = "factor" if text in UNDER else "word"
            case "quoted", text:
                made = f'<mi class="prose">{html.escape(text, quote=False)}</mi>'
            case "sign", "√":
                if self.next is None or not self.begins(self.next):
                    raise self.wrong("√ has nothing below it", "√d, √(a + b)", "write it beside its number or name")
                below = self.factor()
                return Item(kind, f"<msqrt>{below.bare or below.made}</msqrt>", token.spaced)
            case "sign", text if text in BIG:
                sign = "∑" if text == "Σ" else "∏"
                made = f'<mo largeop="true" movablelimits="false" lspace="0" rspace="0.16em">{sign}</mo>'
            case "sign", text if text in ATOMS:
                made = f"<mi class='name'>{text}</mi>"
            case "sign", text if text in ("(", "[", "|"):
                return self.scripted(self.group(token))
            case _, text:
                expected = INSTEAD.get(
                    text, "names, numbers, brackets, + − · × / √ Σ = and other signs of the notation"
                )
                raise self.wrong(
                    f"{text} has no meaning here",
                    expected,
                    f"{page('How to write a chapter of the course')} lists the signs",
                )
        item = Item(kind, made, token.spaced, text=text if token.kind == "word" else "")
        return self.scripted(item, under=text in BIG or text in UNDER, named=token.kind == "word")

    def group(self, token: Token) -> Item:
        """What is between brackets, which were opened by a token."""
        inner = self.closed(token.text, empty=True)
        bare = _row(inner)
        fence = ' stretchy="true"' if "<mfrac>" in bare or "largeop" in bare else ' stretchy="false"'
        left, right = (f'<mo{fence} lspace="0" rspace="0">{each}</mo>' for each in (token.text, OPENING[token.text]))
        return Item("factor", f"<mrow>{left}{bare}{right}</mrow>", token.spaced, bare if token.text == "(" else "")

    def scripted(self, item: Item, under: bool = False, named: bool = False) -> Item:
        """A factor with what follows directly: subscripts, superscripts, indices, and arguments of a name."""
        below: list[str] = []
        above = ""
        while (token := self.next) is not None and not token.spaced:
            if token.text == "(" and named:
                item = Item("factor", _scripts(item.made, below, above, under), item.spaced)
                below, above = [], ""
                item.made = f"<mrow>{item.made}<mo>&#x2061;</mo>{self.group(self.take()).made}</mrow>"
                named = False
            elif token.text == "[" and token.kind == "sign":
                self.take()
                below.append(_row(self.closed("[")))
            elif token.kind == "sub":
                below.append(f"<mn>{self.take().text.translate(PLAIN)}</mn>")
            elif token.kind == "sup":
                text = self.take().text.translate(PLAIN)
                above += f"<mi class='name'>{text}</mi>" if text in ("T", "n") else f"<mn>{text}</mn>"
            elif token.kind == "sign" and token.text == "_":
                self.take()
                below.append(self.script("_"))
            elif token.kind == "sign" and token.text == "^":
                self.take()
                above += self.script("^")
            else:
                break
        if not below and not above:
            return item
        return Item("factor", _scripts(item.made, below, above, under), item.spaced)

    def closed(self, opening: str, empty: bool = False) -> list[Item]:
        """What is between a bracket that was taken and the one that closes it. empty: whether it may be nothing"""
        end = OPENING[opening]
        inner = self.items(end)
        if self.next is None or self.next.text != end or not (inner or empty):
            what = "is not closed" if empty else "is empty, or not closed"
            raise self.wrong(f"{opening} {what}", f"{opening}…{end}", f"write {end}")
        self.take()
        return inner

    def script(self, sign: str) -> str:
        """What follows _ or ^: a word, a number, or anything in braces or parentheses."""
        token = self.next
        if token is not None and not token.spaced:
            if token.text in ("{", "("):
                self.take()
                return _row(self.closed(token.text))
            if token.kind in ("word", "number") or token.text in ("∞",):
                self.take()
                return f"<mn>{token.text}</mn>" if token.kind == "number" else _name(token.text)
        raise self.wrong(
            f"{sign} has nothing behind it", f"a{sign}b, a{sign}2, a{sign}{{b − 1}}", "write it without a space"
        )


def _name(text: str) -> str:
    """A name: one character is italic."""
    return f'<mi class="{"italic" if len(text) == 1 else "name"}">{text}</mi>'


def _ends(item: Item) -> bool:
    """Whether a fraction that follows does not reach back beyond this."""
    return item.kind == "operator" and item.text in TERM_ENDS


def _bare(items: list[Item]) -> str:
    """A side of a fraction: parentheses around all of it are left out."""
    return items[0].bare if len(items) == 1 and items[0].bare else _row(items)


def _one(made: str) -> str:
    """One element, for places that take exactly one."""
    single = re.fullmatch(r"<(m[a-z]+)[^>]*>[^<]*</\1>", made)
    return made if single else f"<mrow>{made}</mrow>"


def _scripts(base: str, below: list[str], above: str, under: bool) -> str:
    """A base with its scripts; several indices are separated by commas."""
    comma = '<mo separator="true" lspace="0" rspace="0.1em">,</mo>'
    parts = [_one(base), *([_one(comma.join(below))] if below else []), *([_one(above)] if above else [])]
    lower, upper = ("under", "over") if under else ("sub", "sup")
    name = "m" + (lower if below else "") + (upper if above else "")
    return f"<{name}>{''.join(parts)}</{name}>" if below or above else base


def _row(items: list[Item]) -> str:
    """The pieces one after another, with the spaces that the plain text has between factors."""
    made, before = [], None
    at = 0
    while at < len(items):
        item = items[at]
        if item.kind == "operator":
            prefix = before is None or before.kind == "operator" or before.text in PROSE
            left, right = SPACE[item.text]
            if prefix and item.text in "+−±":
                goes_on = at + 1 < len(items) and items[at + 1].spaced
                left, right = 0.3 if before and before.kind != "operator" else 0, 0.22 if goes_on else 0.03
            form = "prefix" if prefix else "infix"
            made.append(f'<mo form="{form}" lspace="{left}em" rspace="{right}em">{html.escape(item.text)}</mo>')
        else:
            if before is not None and before.kind != "operator" and item.spaced:
                wide = 0.3 if len(before.text) > 1 or len(item.text) > 1 else 0.16
                made.append(f'<mspace width="{wide}em"></mspace>')
            words = _words(items[at:])
            if len(words) > 1 or (words and words[0] in PROSE):
                made.append(f'<mi class="prose">{" ".join(words)}</mi>')  # beside mtext an operator loses its space
                at += len(words) - 1
                item = items[at]
            else:
                made.append(item.made)
        before = item
        at += 1
    return "".join(made)


def _words(items: list[Item]) -> list[str]:
    """The words of prose that a row begins with: more than one character each, or the word "a" between such words."""
    found: list[str] = []
    for item in items:
        prose = item.kind == "word" and (len(item.text) > 1 or (bool(found) and item.text == "a"))
        if not prose or (found and not item.spaced):
            break
        found.append(item.text)
    while found and len(found[-1]) == 1:
        found.pop()
    return found
