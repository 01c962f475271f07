"""Reads a chapter from its Markdown file; everything that is wrong with it is listed at once, with its line.

The format is described in docs/how-to/write-a-chapter.md.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..common.errors import Reason, Refused
from .chapter import Chapter, Claim, Exercise, Part, Question, Reveal, Text, WrongAnswer
from .forms import FORMS

__all__ = ["CHAPTERS", "chapters", "read_chapter"]

CHAPTERS = Path(__file__).parent / "chapters"
WHERE = "chapter"
BLOCKS = {
    "toml prediction", "toml question", "toml exercise",
    "python reveal", "python start", "python solution", "python cases", "python result", "python law", "python wrong",
    "python claim", "markdown after",
}  # fmt: skip
EXERCISE: dict[str, type] = {
    "file": str, "function": str, "minutes": int, "task": str, "shape": str, "hints": list, "computes": str,
    "mistakes": list, "tests_of": str, "conform": int,
}  # fmt: skip
REQUIRED = ("file", "function", "task", "hints")
COMPUTED = ("scores", "weights", "out", "allowed", "lse", "")
NEEDS = ("", "torch", "demo")
COVERS = re.compile(r"<!--\s*covers\s+([\d.\s]+?)\s*-->")


@dataclass
class Block:
    """A fenced block, or text between blocks. kind: such as "toml prediction"; "" for text."""

    line: int
    kind: str = ""
    name: str = ""
    rest: list[str] = field(default_factory=list)
    needs: str = ""
    text: str = ""
    covers: tuple[str, ...] = ()


def chapters() -> list[Chapter]:
    """The chapters of the course, in order."""
    return [read_chapter(path) for path in sorted(CHAPTERS.glob("*.md"))]


def read_chapter(path: Path) -> Chapter:
    """A chapter from its file. Raises Refused with every problem."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        expected, fix = "a chapter: a Markdown file in UTF-8", "check the path"
        raise Refused(
            WHERE, [Reason("the file cannot be read", given=str(error), expected=expected, fix=fix)]
        ) from error
    return _Reader(path, text).chapter()


class _Reader:
    def __init__(self, path: Path, text: str):
        self.path, self.text = path, text
        self.reasons: list[Reason] = []

    def problem(self, line: int, what: str, expected: str, fix: str) -> None:
        self.reasons.append(Reason(what, given=f"{self.path.name}, line {line}", expected=expected, fix=fix))

    def chapter(self) -> Chapter:
        head, body, first = self._head()
        blocks = list(self._blocks(body, first))
        parts = list(self._parts(blocks))
        for name, line in _repeated(parts):
            self.problem(
                line, f"two parts are named {name}", "names that are unique in a chapter", "rename one of them"
            )
        if self.reasons:
            raise Refused(WHERE, self.reasons)
        return Chapter(head["number"], head["title"], head["minutes"], tuple(parts), self.path)

    # ---- the file ----------------------------------------------------------------------------------------------------

    def _head(self) -> tuple[dict[str, Any], str, int]:
        """The fields at the beginning, the rest, and the line where the rest begins."""
        match = re.match(r"\+\+\+\n(.*?)\n\+\+\+\n", self.text, re.S)
        head = self._toml(1, match[1] if match else "")
        for name, kind in (("number", int), ("title", str), ("minutes", int)):
            if not isinstance(head.get(name), kind):
                what, fix = (
                    f"the beginning lacks {name}",
                    f"begin the file with +++, number, title, minutes, +++; {name}",
                )
                self.problem(1, what, f"{name} = {'3' if kind is int else repr('Scores')}", fix)
                head[name] = kind()
        end = match.end() if match else 0
        return head, self.text[end:], 1 + self.text.count("\n", 0, end)

    def _toml(self, line: int, text: str) -> dict[str, Any]:
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            self.problem(line, "the block is not TOML", str(error), "mend the line that the message names")
            return {}

    def _blocks(self, body: str, first: int) -> Iterator[Block]:
        """Text and blocks, in order. A comment with items counts for what follows it."""
        lines = body.split("\n")
        text = Block(first)
        kept: list[str] = []
        covers: tuple[str, ...] = ()
        at = 0
        while at < len(lines):
            fence = re.fullmatch(r"(`{3,}|~{3,})(.*)", lines[at])
            if fence is None:
                noted = COVERS.fullmatch(lines[at].strip())
                if noted:
                    covers += tuple(noted[1].split())
                    at += 1
                    continue
                if lines[at].startswith("## ") and any(line.strip() for line in kept):
                    yield _closed(text, kept)
                    text, kept = Block(first + at), []
                if covers and lines[at].strip():
                    if not any(line.strip() for line in kept):
                        text.line = first + at
                    text.covers += covers
                    covers = ()
                kept.append(lines[at])
                at += 1
                continue
            end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == fence[1]), None)
            if end is None:
                self.problem(first + at, "the block does not end", f"a line {fence[1]}", "close it")
                return
            words = fence[2].split()
            kind = " ".join(words[:2])
            content = "\n".join(lines[at + 1 : end]) + "\n"
            if len(words) < 2:
                kept += lines[at : end + 1]
            else:
                if any(line.strip() for line in kept):
                    yield _closed(text, kept)
                block = self._block(first + at, kind, words[2:], content)
                block.covers, covers = covers, ()
                yield block
                text, kept = Block(first + end + 1), []
            at = end + 1
        if any(line.strip() for line in kept):
            yield _closed(text, kept)

    def _block(self, line: int, kind: str, words: list[str], content: str) -> Block:
        if kind not in BLOCKS:
            self.problem(line, f"there is no block '{kind}'", f"one of {', '.join(sorted(BLOCKS))}", "see its spelling")
        needs = next((word.removeprefix("needs=") for word in words if word.startswith("needs=")), "")
        plain = [word for word in words if not word.startswith("needs=")]
        if needs not in NEEDS:
            self.problem(line, f"needs={needs} is no package", "needs=torch or needs=demo", "name one of them")
        if not plain or not re.fullmatch(r"[a-z0-9-]+", plain[0]):
            self.problem(
                line, f"'{kind}' lacks a name", "lower case letters, digits and hyphens", f"write ```{kind} NAME"
            )
            plain = [f"unnamed-{line}"]
        if kind.startswith("python"):
            try:
                ast.parse(content)
            except SyntaxError as error:
                wrong = line + (error.lineno or 0)
                self.problem(wrong, "the code is not Python", str(error.msg), "mend this line")
                content = "pass\n"
        return Block(line, kind, plain[0], plain[1:], needs, content)

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _parts(self, blocks: list[Block]) -> Iterator[Part]:
        own: dict[tuple[str, str], list[Block]] = {}
        for block in blocks:
            own.setdefault((block.kind, block.name), []).append(block)
        questions = {block.name for block in blocks if block.kind in ("toml prediction", "toml question")}
        exercises = {block.name for block in blocks if block.kind == "toml exercise"}
        for number, block in enumerate(blocks):
            match block.kind:
                case "":
                    yield Text(f"text-{number + 1}", block.line, block.covers, block.text)
                case "toml prediction" | "toml question":
                    yield self._question(block, own.get(("python reveal", block.name), []))
                case "python reveal" if block.name not in questions:
                    yield Reveal(block.name, block.line, block.covers, block.text, block.needs)
                case "toml exercise":
                    yield self._exercise(block, own)
                case "python claim":
                    yield self._claim(block)
                case "python reveal":
                    pass
                case _ if block.name not in exercises:
                    expected = f"an exercise named {block.name}"
                    self.problem(block.line, f"'{block.kind}' belongs to no exercise", expected, "correct the name")

    def _question(self, block: Block, reveals: list[Block]) -> Question:
        fields = self._toml(block.line, block.text)
        ask, name = fields.pop("ask", None), fields.pop("form", None)
        form = FORMS.get(name)
        if not isinstance(ask, str):
            self.problem(block.line, f"{block.name} has no text", 'ask = "…"', "write what is to be answered")
        if form is None:
            self.problem(block.line, f"{block.name} has no form", f"form = one of {', '.join(FORMS)}", "choose one")
        else:
            self._fields(block, fields, dict(form.required), dict(form.optional) | {"right": str})
        reveal = None
        if reveals:
            first = reveals[0]
            reveal = Reveal(first.name, first.line, first.covers, first.text, first.needs)
        covers = block.covers + (reveal.covers if reveal else ())
        return Question(
            block.name, block.line, covers, str(ask), str(name), fields, block.kind == "toml prediction", reveal
        )

    def _fields(
        self, block: Block, fields: Mapping[str, Any], required: dict[str, Any], optional: dict[str, Any]
    ) -> None:
        for name in required.keys() - fields.keys():
            self.problem(block.line, f"{block.name} lacks {name}", f"the field {name}", f"add {name} = …")
        for name, value in fields.items():
            kind = (required | optional).get(name)
            if kind is None:
                known = ", ".join([*required, *optional])
                self.problem(block.line, f"{block.name} has a field {name}", f"the fields {known}", "remove it")
            elif not isinstance(value, kind):
                kinds = kind if isinstance(kind, tuple) else (kind,)
                expected = " or ".join(
                    {"str": "a text", "list": "a list"}.get(each.__name__, "a number") for each in kinds
                )
                self.problem(block.line, f"{name} of {block.name} is {value!r}", expected, "correct it")

    def _exercise(self, block: Block, own: Mapping[tuple[str, str], list[Block]]) -> Exercise:
        fields = self._toml(block.line, block.text)
        self._fields(
            block, fields, {name: EXERCISE[name] for name in REQUIRED},
            {name: kind for name, kind in EXERCISE.items() if name not in REQUIRED},
        )  # fmt: skip
        if len(fields.get("hints", ())) != 3:
            self.problem(
                block.line,
                f"{block.name} has not three hints",
                "a question, a direction, nearly the line",
                "write three",
            )
        if fields.get("computes", "") not in COMPUTED:
            self.problem(
                block.line, f"computes of {block.name}", f"one of {', '.join(COMPUTED[:-1])}", "choose one, or omit it"
            )
        code = {}
        for part in ("start", "solution", "cases", "result"):
            found = own.get((f"python {part}", block.name), [])
            optional = part == "result" or (part == "cases" and ("tests_of" in fields or "conform" in fields))
            if not found and not optional:
                self.problem(block.line, f"{block.name} has no {part}", f"a block python {part} {block.name}", "add it")
            code[part] = found[0].text if found else ""
        laws = tuple((self._says(each), each.text) for each in own.get(("python law", block.name), []))
        wrong = tuple(self._wrong(each) for each in own.get(("python wrong", block.name), []))
        after = own.get(("markdown after", block.name), [])
        return Exercise(
            block.name, block.line, block.covers, needs=block.needs, laws=laws, wrong=wrong,
            after=after[0].text if after else "", **code,
            **{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items() if name in EXERCISE},
        )  # fmt: skip

    def _says(self, block: Block) -> str:
        said = ast.get_docstring(ast.parse(block.text))
        if not said:
            self.problem(
                block.line, f"a law of {block.name} has no words", "a doc string that says the law", "begin with one"
            )
        return said or ""

    def _wrong(self, block: Block) -> WrongAnswer:
        if not block.rest:
            self.problem(block.line, f"a wrong answer of {block.name} has no name", "the name of a mistake", "add it")
        said = _said(block.text)
        return WrongAnswer(
            mistake=block.rest[0] if block.rest else "",
            line=block.line,
            code=block.text,
            description=said.get("", ""),
            cause=said.get("cause", ""),
            fix=said.get("fix", ""),
        )

    def _claim(self, block: Block) -> Claim:
        said = _said(block.text)
        verdict = " ".join(block.rest) or "holds"
        if not said.get(""):
            self.problem(block.line, f"the claim {block.name} says nothing", "a doc string with the claim", "add it")
        if verdict not in ("holds", "holds if", "fails"):
            self.problem(block.line, f"the verdict {verdict!r} of {block.name}", "holds, holds if, fails", "choose one")
        if (verdict == "holds if") != bool(said.get("holds if")):
            expected = "a line 'holds if: …' in the doc string if, and only if, the verdict is 'holds if'"
            self.problem(block.line, f"the condition of {block.name}", expected, "correct one of them")
        return Claim(
            block.name, block.line, block.covers, said.get("", ""), said.get("holds if", ""), said.get("source", ""),
            verdict, block.text, block.needs,
        )  # fmt: skip


def _closed(text: Block, kept: list[str]) -> Block:
    text.text = "\n".join(kept).strip("\n") + "\n"
    return text


def _said(code: str) -> dict[str, str]:
    """The doc string of a block: its first paragraph, and its lines `field: text`, which may be continued."""
    said = ast.get_docstring(ast.parse(code)) or ""
    found, name = {"": ""}, ""
    for line in said.splitlines():
        match = re.match(r"(cause|fix|holds if|source): (.*)", line)
        if match:
            name = match[1]
            found[name] = match[2]
        else:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _repeated(parts: list[Part]) -> Iterator[tuple[str, int]]:
    seen: set[str] = set()
    for part in parts:
        if part.name in seen:
            yield part.name, part.line
        seen.add(part.name)
