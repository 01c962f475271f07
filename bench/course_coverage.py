"""Which part of the course holds each item of the sources. `python -m bench.course_coverage` prints the page of it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.learn.chapter import Chapter, Claim, Exercise, Part, Question, Reveal, Text, Visual
from regard.learn.source import chapters

__all__ = ["ITEMS", "SOURCES", "Item", "missing", "page", "superfluous", "unknown"]

LIST = Path(__file__).parent / "course_items.toml"
COVERS = re.compile(r"<!-- covers((?: \d+\.\d+)+) -->")
KINDS: dict[type[Part], str] = {
    Text: "text", Reveal: "reveal", Question: "question", Exercise: "exercise", Claim: "claim", Visual: "visual",
}  # fmt: skip

INTRODUCTION = """# What the course covers

<!-- Written by `python -m bench.course_coverage > docs/explanation/course-coverage.md`. -->

The course is built from five documents that teach self-attention: a lesson, a long lesson, a page on its mathematics, a
gentle guide and an article.
They teach these {count} items.
{covered} of them are in the chapters of `regard learn`, and {elsewhere} in other parts of regard. Planned: {later}."""


@dataclass(frozen=True)
class Item:
    """An item of a source.

    id: such as "1.19" · kinds: as course_items.toml explains them · title: what it is · later: the planned chapter or
    page, or "" · elsewhere: what holds it outside the course, or "" · path: where that is
    """

    id: str
    kinds: tuple[str, ...]
    title: str
    later: str = ""
    elsewhere: str = ""
    path: str = ""


def _read() -> tuple[tuple[str, ...], dict[str, Item]]:
    found = tomllib.loads(LIST.read_text(encoding="utf-8"))
    items = [Item(**{**each, "kinds": tuple(each["kinds"])}) for each in found["items"]]
    return tuple(found["sources"]), {item.id: item for item in items}


SOURCES, ITEMS = _read()


def parts_of(read: Sequence[Chapter]) -> dict[str, list[tuple[Chapter, Part]]]:
    """The parts of chapters that hold each item, by its id."""
    found: dict[str, list[tuple[Chapter, Part]]] = {}
    for chapter in read:
        for item, part in covered(chapter):
            found.setdefault(item, []).append((chapter, part))
    return found


def covered(chapter: Chapter) -> list[tuple[str, Part]]:
    """The items of the comments `<!-- covers 1.19 2.11 -->`, each with the part that begins next.

    A reveal is of its question. Raises ValueError where a comment cannot be read, or nothing follows it.
    """
    begins = {part.line: part for part in chapter.parts}
    begins |= {part.reveal.line: part for part in chapter.questions if part.reveal}
    lines = enumerate(chapter.path.read_text(encoding="utf-8").splitlines(), 1)
    found = []
    for number, line in lines:
        if line.startswith("<!-- covers"):
            match = COVERS.fullmatch(line.strip())
            after = [each for each in begins if each > number]
            if match is None or not after:
                raise ValueError(f"{chapter.path.name}, line {number}: {line}: items, and a part after it")
            found += [(item, begins[min(after)]) for item in match[1].split()]
    return sorted(found, key=lambda each: each[1].line)


def missing(read: Sequence[Chapter]) -> list[str]:
    """The items that are in no chapter, nor planned, nor elsewhere."""
    parts = parts_of(read)
    return [item.id for item in ITEMS.values() if item.id not in parts and not item.later and not item.elsewhere]


def unknown(read: Sequence[Chapter]) -> list[str]:
    """What chapters cover and the list of items lacks, with the place."""
    return [
        f"{chapter.path.name}, line {part.line}: {item}"
        for item, parts in parts_of(read).items()
        for chapter, part in parts
        if item not in ITEMS
    ]


def superfluous(read: Sequence[Chapter]) -> list[str]:
    """The items that are planned for a chapter that exists: it covers them, or the plan is out of date."""
    numbers = {f"chapter {chapter.number}" for chapter in read}
    return [item.id for item in ITEMS.values() if item.later.split(":")[0] in numbers]


def page(read: Sequence[Chapter]) -> str:
    """The page of the documentation."""
    return "\n".join(_lines(read)) + "\n"


def _lines(read: Sequence[Chapter]) -> Iterator[str]:
    parts = parts_of(read)
    rest = [item for item in ITEMS.values() if item.id not in parts]
    elsewhere, later = sum(bool(item.elsewhere) for item in rest), sum(bool(item.later) for item in rest)
    covered = len(ITEMS) - len(rest)
    yield INTRODUCTION.format(count=len(ITEMS), covered=covered, elsewhere=elsewhere, later=later)
    for number, source in enumerate(SOURCES):
        yield ""
        yield f"## {source[0].upper()}{source[1:]} (source {number:03})"
        yield ""
        yield "| item | what it is | where |"
        yield "|---|---|---|"
        for item in ITEMS.values():
            if item.id.startswith(f"{number}."):
                yield f"| {item.id} | {_cell(item.title)} | {_cell('; '.join(_places(item, parts)))} |"


def _places(item: Item, parts: dict[str, list[tuple[Chapter, Part]]]) -> Iterator[str]:
    for chapter, part in parts.get(item.id, ()):
        yield f"chapter {chapter.number}, {KINDS[type(part)]}: {_name(part)}"
    if item.elsewhere:
        yield f"{item.elsewhere}: `{item.path}`"
    if item.later:
        yield f"planned: {item.later}"
    if item.id not in parts and not item.elsewhere and not item.later:
        yield "missing"


def _name(part: Part) -> str:
    """The heading of a section, the name of another part."""
    if not isinstance(part, Text):
        return f"`{part.name}`"
    heading = next((line for line in part.text.splitlines() if line.startswith("#")), "")
    return heading.lstrip("# ") or f"line {part.line}"


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


if __name__ == "__main__":
    print(page(chapters()), end="")
