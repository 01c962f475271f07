"""How long the short path of the course takes who reads 200 words a minute: `python -m bench.course_minutes`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.learn.chapter import Chapter, Claim, Exercise, Part, Reveal
from regard.learn.source import chapters

SPEED = 200  # words a minute


@dataclass(frozen=True)
class Length:
    """What the short path has of a chapter.

    stated: the minutes that the chapter states · needed: those of its words and its exercises · first: those until the
    first exercise is passed · screens: how often one presses Enter · unfit: parts that do not belong there: claims, and
    what needs a package
    """

    chapter: int
    title: str
    stated: int
    needed: float
    first: float
    screens: int
    exercises: int
    unfit: tuple[str, ...]


def words(part: Part) -> int:
    """How many words are read of a part, with what is said of a right answer."""
    fields = getattr(part, "fields", {})
    texts = [getattr(part, name, "") for name in ("text", "task", "ask", "after")]
    texts += [fields.get("right", ""), *(each["text"] for each in fields.get("choices", ()))]
    return len(" ".join(texts).split())


def short_path(course: Sequence[Chapter]) -> Iterator[Length]:
    """The chapters of the short path."""
    for read in course:
        if read.deeper is None:
            continue
        parts = read.parts[: read.parts.index(read.deeper)]
        needed, first, exercises = 0.0, 0.0, 0
        for part in parts:
            needed += words(part) / SPEED + getattr(part, "minutes", 0)
            if isinstance(part, Exercise):
                exercises += 1
                first = first or needed
        screens = sum(not isinstance(part, Reveal) for part in parts)
        unfit = tuple(part.name for part in parts if isinstance(part, Claim) or getattr(part, "needs", ""))
        yield Length(read.number, read.title, read.minutes[0], needed, first, screens, exercises, unfit)


def main() -> None:
    found = list(short_path(chapters()))
    for each in found:
        minutes = f"{each.needed:5.1f} of {each.stated:2} minutes, {each.screens:2} screens"
        print(f"{each.chapter} {each.title:42} {minutes}; an exercise is passed after {each.first:.1f}")
    print(f"in all {sum(each.needed for each in found):.0f} of {sum(each.stated for each in found)} minutes")


if __name__ == "__main__":
    main()
