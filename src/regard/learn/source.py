"""Reads a chapter from its Markdown file and that of its checks; all that is wrong with them is listed, with its line.

The format is described in docs/how-to/write-a-chapter.md.
"""

from __future__ import annotations

import ast
import functools
import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from types import NoneType
from typing import Any

from ..common.errors import Reason, Refused, did_you_mean, page, refuse
from ..common.web.visuals import KINDS
from ..laws.mistakes import CATALOG
from .chapter import OUTCOMES, Chapter, Claim, Exercise, Part, Question, Reveal, Text, Visual, WrongAnswer
from .forms import FORMS
from .running import NEEDS

CHECKS = {"python cases", "python result", "python law", "python wrong", "toml wrong"}  # may be in a file of their own
BLOCKS = CHECKS | {
    "toml prediction", "toml question", "toml exercise",
    "python reveal", "python start", "python solution", "python claim", "python visual", "markdown after",
}  # fmt: skip
FENCE = re.compile(r"(`{3,}|~{3,})(.*)")
BREAKS = {"<!-- break -->": "break", "<!-- deeper -->": "deeper"}  # before a section
COMMENT = re.compile(r"<!--.*-->")
HEAD = re.compile(r"\+\+\+\n(.*?)\n\+\+\+\n(?:\s*# [^\n]*\n)?", re.S)  # and the title, which is shown by itself


class Problems:
    """What is wrong with a chapter. first: the number of line 1 of its checks, counted on from the chapter's lines"""

    def __init__(self, file: str, first: float = math.inf):
        self.file, self.first = file, first
        self.found: list[tuple[int, Reason]] = []

    def add(self, line: int, what: str, expected: str, fix: str) -> None:
        file, at = (self.file, line) if line < self.first else (_checks(self.file), line - int(self.first) + 1)
        self.found.append((line, Reason(what, f"{file}, line {at}", expected, fix)))

    def refuse(self) -> None:
        """Raises Refused with the problems, in the order of their lines, if there is one."""
        if self.found:
            raise Refused(WHERE, [reason for _, reason in sorted(self.found, key=lambda each: each[0])])


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
        if type(fields.get(name)) is not kind or (kind is list and {*map(type, fields[name])} != {int}):
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
    if kind not in (known := CHECKS if line >= problems.first else BLOCKS):
        expected = f"a kind that {'checks' if known is CHECKS else 'chapters'} have"
        problems.add(line, f"the kind '{kind}' of a block is unknown", expected, did_you_mean(kind, sorted(known)))
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


CHAPTERS = Path(__file__).parent / "chapters"
WHERE = "chapter"
TEXT, LIST = (str, NoneType), (list, NoneType)  # fields that may be left out
EXERCISE = {
    "file": str,
    "function": str,
    "task": str,
    "hints": list,
    "minutes": (int, NoneType),
    "difficulty": TEXT,
    "shape": TEXT,
    "tests_of": TEXT,
    "conform": (int, NoneType),
}
CHANGE = {"replace": (str, *LIST), "with": (str, *LIST), "body": TEXT, "is": TEXT, "cause": TEXT, "fix": TEXT}
ONCE = ("python start", "python solution", "python cases", "python result", "markdown after")
TYPES = {"str": "a text", "list": "a list", "NoneType": "nothing"}
KNOWN = {mistake.name for mistake in CATALOG}


def chapters(own: Path | None = None) -> list[Chapter]:
    """The chapters of the course, and those of a teacher's own folder, in order of their numbers."""
    found = [read_chapter(path) for path in _paths(CHAPTERS)]
    return found if own is None else sorted([*found, *_own(own, found)], key=lambda chapter: chapter.number)


def _paths(folder: Path) -> list[Path]:
    """The chapters of a folder: its Markdown files but README.md and those of checks."""
    return [path for path in sorted(folder.glob("*.md")) if not re.search(r"(?i)^readme$|\.checks$", path.stem)]


def _checks(chapter: str) -> str:
    """The name of the file of a chapter's checks."""
    return f"{chapter.removesuffix('.md')}.checks.md"


def _own(folder: Path, course: list[Chapter]) -> list[Chapter]:
    """The chapters of a folder. Raises Refused, with the reasons of all files, if it has none, one cannot be read, or a
    number is given twice.
    """
    paths = _paths(folder)
    if not paths:
        fix = f"--chapters FOLDER, with chapters as {page('How to write a chapter of the course')} describes them"
        expected = "a folder with a file such as 20-my-chapter.md"
        raise refuse(WHERE, "the folder has no chapter", str(folder), expected, fix)
    found, taken = [], {chapter.number: chapter.path.name for chapter in course}
    reasons: list[Reason] = []
    for path in paths:
        try:
            chapter = read_chapter(path)
        except Refused as refused:
            reasons += refused.reasons
            continue
        if chapter.number in taken:
            given = f"{path.name} and {taken[chapter.number]}: number = {chapter.number}"
            fix = f"write number = {max(taken) + 1}, or another free one"
            reasons.append(Reason("two chapters have one number", given, "a number for each", fix))
        taken[chapter.number] = path.name
        found.append(chapter)
    if reasons:
        raise Refused(WHERE, reasons)
    return found


def read_chapter(path: Path) -> Chapter:
    """A chapter from its file, and that of its checks if there is one. Raises Refused with every problem."""
    checks = path.with_name(_checks(path.name))
    return _chapter(path, _text(path), _text(checks) if checks.exists() else "")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        expected, fix = "a chapter: a Markdown file in UTF-8", "check the path"
        raise refuse(WHERE, "the file cannot be read", f"{path}: {error}", expected, fix) from error


@functools.lru_cache(64)
def _chapter(path: Path, text: str, checks: str) -> Chapter:
    """A chapter from its texts; read once in a process that goes on, as with --serve."""
    return _Reader(path).chapter(text, checks)


class _Reader:
    def __init__(self, path: Path):
        self.path = path
        self.own: defaultdict[tuple[str, str], list[Block]] = defaultdict(list)  # blocks by kind and name
        self.exercises: set[str] = set()

    def chapter(self, text: str, checks: str = "") -> Chapter:
        begin = text.count("\n") + 2
        self.problems = Problems(self.path.name, begin)
        self.problem = self.problems.add
        fields, body, first = head(text, self.problems)
        self.number = fields["number"]
        beside = [block for block in blocks(checks, begin, self.problems) if block.kind]
        parts = self._parts([*blocks(body, first, self.problems), *beside])
        sittings = 1 + sum(isinstance(part, Text) and part.after_break != "" for part in parts)
        if fields["minutes"] and len(fields["minutes"]) != sittings:
            what, fix = f"minutes has {len(fields['minutes'])} numbers", "a number for each part between breaks"
            self.problem(1, what, f"{sittings}: there are {sittings - 1} breaks", fix)
        self.problems.refuse()
        return Chapter(self.number, fields["title"], tuple(fields["minutes"]), tuple(parts), self.path)

    def _parts(self, found: list[Block]) -> list[Part]:
        for block in found:
            self.own[block.kind, block.name].append(block)
        questions = {block.name for block in found if block.kind in ("toml prediction", "toml question")}
        self.exercises = {block.name for block in found if block.kind == "toml exercise"}
        parts: list[Part] = []
        for number, block in enumerate(found):
            match block.kind:
                case "":
                    parts.append(Text(f"text-{number + 1}", block.line, self.number, block.text, block.after_break))
                case "toml prediction" | "toml question":
                    parts.append(self._question(block))
                case "python reveal" if block.name not in questions:
                    parts.append(self._reveal(block))
                case "toml exercise":
                    parts.append(self._exercise(block))
                case "python claim":
                    parts.append(self._claim(block))
                case "python visual":
                    parts.append(self._visual(block))
                case "python reveal":
                    pass
                case _ if block.name not in self.exercises:
                    near = _near(block.name, self.exercises)
                    self.problem(block.line, f"'{block.kind} {block.name}' belongs to no exercise", "its name", near)
        self._repeated(questions, parts)
        return parts

    def _repeated(self, questions: set[str], parts: list[Part]) -> None:
        """Names of parts are unique; a part has one block of a kind, except laws and wrong answers."""
        for (kind, name), found in self.own.items():
            if kind in ONCE or (kind == "python reveal" and name in questions):
                for block in found[1:]:
                    self.problem(block.line, f"there is a second '{kind} {name}'", "one", "remove one of them")
        seen: set[str] = set()
        for part in parts:
            if part.name in seen:
                what, fix = f"two parts are named {part.name}", "rename one of them"
                self.problem(part.line, what, "names that are unique in a chapter", fix)
            seen.add(part.name)

    def _reveal(self, block: Block) -> Reveal:
        return Reveal(block.name, block.line, self.number, block.text, block.needs, block.rest == "folded")

    # ---- questions ---------------------------------------------------------------------------------------------------

    def _question(self, block: Block) -> Question:
        fields = toml(block.line, block.text, self.problems)
        ask, name = fields.pop("ask", None), fields.pop("form", None)
        form = FORMS.get(name) if isinstance(name, str) else None
        if not isinstance(ask, str):
            self.problem(block.line, f"{block.name} has no text", 'ask = "…"', "write the question")
        if form is None:
            self.problem(block.line, f"{block.name} has no form", f"form = one of {', '.join(FORMS)}", "choose one")
        elif self._fields(block, fields, {**form.fields, "right": TEXT}):
            for wrong in form.check(fields):
                self.problem(block.line, f"{block.name}: {wrong}", f"the fields of the form {name}", "correct it")
        reveals = self.own["python reveal", block.name]
        if reveals and name == "line":
            code = f'code = """\n{fields.get("code")}""".lstrip()\n'
            reveals[0].text = reveals[0].text.replace("code = ...\n", code)
        reveal = self._reveal(reveals[0]) if reveals else None
        predicts = block.kind == "toml prediction"
        return Question(block.name, block.line, self.number, str(ask), str(name), fields, predicts, reveal)

    def _fields(self, block: Block, fields: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
        """Whether the fields have the right names and types. known: types by name, of which NoneType says that a field
        may be left out
        """
        before = len(self.problems.found)
        for name, types in known.items():
            kinds = types if isinstance(types, tuple) else (types,)
            value = fields.get(name)
            if name not in fields and NoneType not in kinds:
                self.problem(block.line, f"{block.name} lacks {name}", f"the field {name}", f"add {name} = …")
            elif name in fields and (not isinstance(value, kinds) or isinstance(value, bool)):
                expected = " or ".join(dict.fromkeys(TYPES.get(each.__name__, "a number") for each in kinds))
                self.problem(block.line, f"{name} of {block.name} is {value!r}", expected, "correct it")
        for name in fields.keys() - known.keys():
            near = did_you_mean(name, known)
            self.problem(block.line, f"{block.name} has a field {name}", f"the fields {', '.join(known)}", near)
        return len(self.problems.found) == before

    # ---- exercises ---------------------------------------------------------------------------------------------------

    def _exercise(self, block: Block) -> Exercise:
        fields = toml(block.line, block.text, self.problems)
        code = {}
        for part in ("start", "solution", "cases", "result"):
            found = self.own[f"python {part}", block.name]
            optional = part == "result" or (part == "cases" and ("tests_of" in fields or "conform" in fields))
            if not found and not optional:
                self.problem(block.line, f"{block.name} has no {part}", f"a block python {part} {block.name}", "add it")
            code[part] = found[0].text if found else ""
        written = [*self.own["python solution", block.name], *self.own["python wrong", block.name]]
        for each in written if "tests_of" not in fields else []:
            self._defines(each, fields.get("function"))
        wrong = self._wrong(block.name, str(fields.get("function")), code["solution"])
        if self._fields(block, fields, EXERCISE):
            self._exercise_fields(block, fields)
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
            if name in EXERCISE
        }
        return Exercise(
            block.name,
            block.line,
            self.number,
            needs=block.needs,
            laws=tuple(law for each in self.own["python law", block.name] for law in self._laws(each)),
            wrong=wrong,
            after="".join(each.text for each in self.own["markdown after", block.name]),
            **(given | code),
        )

    def _exercise_fields(self, block: Block, fields: Mapping[str, Any]) -> None:
        """Fields that have the right types have the right values."""
        name, line = block.name, block.line
        if len(fields["hints"]) != 3 or not all(isinstance(each, str) for each in fields["hints"]):
            self.problem(line, f"{name} has not three hints", "a question, a direction, nearly the line", "write three")
        if "tests_of" in fields:
            others = self.exercises - {name}
            if fields["tests_of"] not in others:
                near = _near(fields["tests_of"], others)
                self.problem(line, f"tests_of of {name}: {fields['tests_of']!r}", "another exercise", near)

    def _defines(self, block: Block, function: Any) -> None:
        """A solution and a wrong answer define the function, in whatever way."""
        if isinstance(function, str) and not re.search(rf"\b{re.escape(function)}\b", block.text):
            what = f"'{block.kind} {block.name}' does not define {function}"
            self.problem(block.line, what, f"def {function}(…)", "use the name of the exercise")

    def _laws(self, block: Block) -> Iterator[tuple[str, str]]:
        """The laws of a block, each from its doc string to the next: what it says, and its code."""
        tree, lines = ast.parse(block.text).body, block.text.splitlines(True)
        texts = [each for each in tree if _said(ast.unparse(each))[""]]
        if not texts or texts[0] is not tree[0]:
            expected = "a doc string that says the law"
            self.problem(block.line, f"a law of {block.name} has no words", expected, "begin with one")
        begins = [each.lineno - 1 for each in texts]
        for begin, end in zip(begins, [*begins[1:], len(lines)]):
            code = "".join(lines[begin:end])
            yield _said(code)[""], code

    def _wrong(self, name: str, function: str, solution: str) -> tuple[WrongAnswer, ...]:
        """The wrong answers of an exercise. One of those with the same name has to explain it, or the catalog."""
        answers: list[tuple[int, WrongAnswer]] = []
        for block in sorted(self.own["python wrong", name] + self.own["toml wrong", name], key=lambda each: each.line):
            if block.kind == "toml wrong":
                answers += self._changed_answers(block, function, solution)
                continue
            said = _said(block.text)
            answers.append((block.line, WrongAnswer(block.rest, block.text, said[""], said["cause"], said["fix"])))
        explained = {each.mistake for _, each in answers if each.description and each.cause and each.fix}
        for line, each in answers:
            if len(each.mistake.split()) != 1:
                what, fix = f"a wrong answer of {name} is named {each.mistake!r}", f"write ```python wrong {name} NAME"
                self.problem(line, what, "the name of a mistake", fix)
            elif each.mistake not in KNOWN | explained:
                expected = "a name of the catalog, or what it is, a cause and a fix"
                self.problem(line, f"{each.mistake} is not explained", expected, "add what is missing")
        return tuple(each for _, each in answers)

    def _changed_answers(self, block: Block, function: str, solution: str) -> Iterator[tuple[int, WrongAnswer]]:
        """Wrong answers that are written as changes of the solution, with their lines."""
        lines = block.text.splitlines()
        for mistake, entries in toml(block.line, block.text, self.problems).items():
            at = next((number for number, line in enumerate(lines, 1) if mistake in line), 0)
            here = Block(block.line + at, name=mistake)
            for fields in entries if isinstance(entries, list) else [entries]:
                if not isinstance(fields, dict):
                    self.problem(here.line, f"{mistake} is {fields!r}", '{ replace = "…", with = "…" }', "correct it")
                elif self._fields(here, fields, CHANGE):
                    try:
                        code = _changed(solution, _changes(solution, function, fields))
                    except (SyntaxError, ValueError) as error:
                        expected = "replace, a text that occurs once, and with; or body"
                        self.problem(here.line, f"{mistake}: {error}", expected, "correct it")
                        continue
                    said, cause, fix = (fields.get(name, "") for name in ("is", "cause", "fix"))
                    yield here.line, WrongAnswer(mistake, code, said, cause, fix)

    # ---- claims ------------------------------------------------------------------------------------------------------

    def _claim(self, block: Block) -> Claim:
        said = _said(block.text)
        outcome = block.rest or "holds"
        name, line = block.name, block.line
        if not said[""]:
            self.problem(line, f"the claim {name} says nothing", "a doc string with the claim", "add it")
        if outcome not in OUTCOMES:
            self.problem(line, f"the outcome {outcome!r} of {name}", " or ".join(OUTCOMES), "choose one")
        if (outcome == "holds if") != bool(said.get("holds if")):
            expected = "a line 'holds if: …' in the doc string if, and only if, the outcome is 'holds if'"
            self.problem(line, f"the condition of {name}", expected, "correct one of them")
        condition, source = said.get("holds if", ""), said.get("source", "")
        return Claim(name, line, self.number, block.text, block.needs, said[""], condition, source, outcome)

    # ---- visuals -----------------------------------------------------------------------------------------------------

    def _visual(self, block: Block) -> Visual:
        caption = _said(block.text)[""]
        name, line, kind = block.name, block.line, block.rest
        if not caption:
            self.problem(
                line, f"the visual {name} has no caption", "a doc string: what it shows and what to try", "add it"
            )
        if kind not in KINDS:
            fix = did_you_mean(kind, sorted(KINDS))
            self.problem(line, f"{name} is a visual of kind {kind!r}", f"```python visual {name} KIND", fix)
        return Visual(name, line, self.number, block.text, block.needs, kind, caption)


def _near(name: str, exercises: set[str]) -> str:
    return did_you_mean(name, sorted(exercises)) if exercises else "add this exercise"


def _changes(solution: str, function: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The changes of a solution that an entry describes, each a text and what is there instead. Raises ValueError."""
    match fields:
        case {"replace": old, "with": new} if "body" not in fields:
            yield from zip(*([each] if isinstance(each, str) else each for each in (old, new)), strict=True)
        case {"body": body} if fields.keys().isdisjoint({"replace", "with"}):
            node = next((each for each in ast.parse(solution).body if getattr(each, "name", "") == function), None)
            if not isinstance(node, ast.FunctionDef):
                raise ValueError(f"the solution has no function {function}")
            first = node.body[0]
            lines = solution.splitlines(True)[first.lineno - 1 : node.end_lineno]
            if lines[0][: first.col_offset].strip():
                raise ValueError("write the solution's body below the line of its def, which a body replaces")
            yield "".join(lines), indent(body.strip("\n") + "\n", "    ")
        case _:
            raise ValueError("it must have either replace and with, or body")


def _changed(code: str, changes: Iterable[tuple[str, str]]) -> str:
    """A solution with changes. Raises ValueError if one cannot be made, SyntaxError if it is then not Python."""
    for old, new in changes:
        if code.count(old) != 1:
            raise ValueError(f"{old!r} occurs {code.count(old)} times in the solution, not once")
        code = code.replace(old, new)
    ast.parse(code)
    return code


def _said(code: str) -> defaultdict[str, str]:
    """The doc string of a block: its first paragraph, and its lines `field: text`, which may be continued."""
    said = ast.get_docstring(ast.parse(code)) or ""
    found, name = defaultdict(str), ""
    for line in said.splitlines():
        match = re.match(r"(cause|fix|holds if|source): (.*)", line)
        if match:
            name = match[1]
            found[name] = match[2]
        else:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def chapter_of(chapters: list[Chapter], number: int) -> Chapter:
    """The chapter of a number."""
    found = next((each for each in chapters if each.number == number), None)
    if found is None:
        raise refuse(
            "learn",
            "the chapter does not exist",
            str(number),
            f"a number from {chapters[0].number} to {chapters[-1].number}",
            "regard learn --list shows them",
        )
    return found
