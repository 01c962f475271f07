"""The blocks of a chapter's file: text, and fenced blocks with kind and name. Every problem is kept with its line."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..common.errors import Reason, did_you_mean
from .running import NEEDS

KINDS = {
    "toml prediction", "toml question", "toml exercise",
    "python reveal", "python start", "python solution", "python cases", "python result", "python law", "python wrong",
    "python claim", "python visual", "markdown after",
}  # fmt: skip
FENCE = re.compile(r"(`{3,}|~{3,})(.*)")
BREAKS = {"<!-- break -->": "break", "<!-- deeper -->": "deeper"}  # before a section
COMMENT = re.compile(r"<!--.*-->")
HEAD = re.compile(r"\+\+\+\n(.*?)\n\+\+\+\n(?:\s*# [^\n]*\n)?", re.S)  # and the title, which is shown by itself


class Problems:
    """What is wrong with a file."""

    def __init__(self, file: str):
        self.file = file
        self.reasons: list[Reason] = []

    def add(self, line: int, what: str, expected: str, fix: str) -> None:
        self.reasons.append(Reason(what, f"{self.file}, line {line}", expected, fix))


@dataclass
class Block:
    """A fenced block, or text between blocks.

    kind: such as "toml prediction"; "" for text · rest: words after the name · needs: a package, or "" · text: what is
    inside · after_break: "break" or "deeper" if a new part of the chapter begins here, else ""
    """

    line: int
    kind: str = ""
    name: str = ""
    rest: str = ""
    needs: str = ""
    text: str = ""
    after_break: str = ""


def head(text: str, problems: Problems) -> tuple[dict[str, Any], str, int]:
    """The fields at the beginning of a file, the rest after its title, and the line where the rest begins."""
    match = HEAD.match(text)
    fields = toml(1, match[1] if match else "", problems)
    if type(fields.get("minutes")) is int:
        fields["minutes"] = [fields["minutes"]]
    for name, kind, example in (("number", int, "3"), ("title", str, '"Scores"'), ("minutes", list, "25 or [25, 30]")):
        given = fields.get(name)
        if type(given) is not kind or (isinstance(given, list) and {type(each) for each in given} != {int}):
            fix = "begin the file with +++, these three fields and +++, each in its line"
            problems.add(1, f"the beginning lacks {name}", f"{name} = {example}", fix)
            fields[name] = kind()
    end = match.end() if match else 0
    return fields, text[end:], 1 + text.count("\n", 0, end)


def toml(line: int, text: str, problems: Problems) -> dict[str, Any]:
    """The fields of a block that begins after a line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        within = re.search(r"\(at line (\d+), column \d+\)", str(error))
        at = line + int(within[1]) if within else line + text.count("\n")
        problems.add(at, "the block is not TOML", re.sub(r" \(at .*\)", "", str(error)), "correct this line")
        return {}


def blocks(body: str, first: int, problems: Problems) -> Iterator[Block]:
    """Text and blocks in order, from a line on. Comments that fill a line are left out."""
    numbered = iter(enumerate(body.split("\n"), first))
    text = Block(first)
    pause, mark = 0, ""  # the line of a break before the next section, and its kind
    for here, line in numbered:
        if COMMENT.fullmatch(line.strip()) and line.strip() not in BREAKS:
            continue
        if pause and line.strip() and not line.startswith("## "):
            _misplaced(pause, problems)
            pause = 0
        if line.strip() in BREAKS:
            pause, mark = here, BREAKS[line.strip()]
            continue
        fence = FENCE.fullmatch(line)
        end, words = (fence[1], fence[2].split()) if fence else ("", [])
        inside = _until(end, numbered) if end else []
        if inside is None:
            problems.add(here, "the block does not end", f"a line {end} after it", "close the block")
            return
        if len(words) > 1 or line.startswith("## "):
            yield from _closed(text)
            text, pause = Block(here, after_break=mark if pause else ""), 0
        if len(words) > 1:
            yield _block(here, words, "\n".join(inside[:-1]) + "\n", problems)
            continue
        if not text.text:
            text.line = here
        if text.text or line.strip():
            text.text += "\n".join([line, *inside, ""])
    if pause:
        _misplaced(pause, problems)
    yield from _closed(text)


def _misplaced(line: int, problems: Problems) -> None:
    problems.add(line, "no section begins after the break", "a line ## … after it", "move the break")


def _until(end: str, numbered: Iterator[tuple[int, str]]) -> list[str] | None:
    """The lines that follow, up to one that ends a block; None if none does."""
    inside: list[str] = []
    for _, line in numbered:
        inside.append(line)
        if line.strip() == end:
            return inside
    return None


def _closed(text: Block) -> Iterator[Block]:
    if text.text:
        text.text = text.text.rstrip("\n") + "\n"
        yield text


def _block(line: int, words: list[str], content: str, problems: Problems) -> Block:
    kind = " ".join(words[:2])
    if kind not in KINDS:
        problems.add(
            line,
            f"the kind '{kind}' of a block is unknown",
            "a kind that chapters have",
            did_you_mean(kind, sorted(KINDS)),
        )
    needs = next((word.removeprefix("needs=") for word in words if word.startswith("needs=")), "")
    plain = [word for word in words[2:] if not word.startswith("needs=")]
    if needs not in NEEDS:
        problems.add(line, f"needs={needs} is unknown", "needs=torch or needs=demo", "choose one of them")
        needs = ""
    if not plain or not re.fullmatch(r"[a-z0-9-]+", plain[0]):
        expected = f"```{kind} NAME, with lower case characters, digits and hyphens"
        problems.add(line, f"the block '{kind}' has no name", expected, "name it")
        plain = [f"unnamed-{line}"]
    if kind.startswith("python"):
        try:
            ast.parse(content)
        except (SyntaxError, ValueError) as error:
            at = line + (getattr(error, "lineno", None) or 0)
            problems.add(at, "the code is not Python", getattr(error, "msg", str(error)), "correct this line")
            content = "pass\n"
    return Block(line, kind, plain[0], " ".join(plain[1:]), needs, content)
