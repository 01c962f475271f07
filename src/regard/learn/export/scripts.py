"""Scripts: each reveal and claim of a chapter as a program of its own, with what it prints below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...common.errors import refuse
from ...common.files.output import check_folder
from ...conformance.process.plain_text import said
from ..chapter import Chapter, Claim, Question, Reveal
from ..folder import writing
from ..running import installed, outcome, reveal


def write_scripts(folder: Path, chapters: Sequence[Chapter]) -> Iterator[Path]:
    """Writes `03-scores/NAME.py` for each reveal and claim, and yields its path; each runs once, for its output.

    A chapter's scripts are written when all of them have run, so that what is there is whole. Raises Refused if a
    folder of a chapter exists, and then writes nothing, or if the code of a chapter fails.
    """
    check_folder("learn", folder)
    there = [str(folder / chapter.path.stem) for chapter in chapters if (folder / chapter.path.stem).exists()]
    if there:
        given, fix = ", ".join(there), "name another folder, or move these away"
        raise refuse("learn", "the scripts exist", given, "a folder without them", fix)
    for chapter in chapters:
        own = folder / chapter.path.stem
        texts = {
            own / f"{name}.py": f"{_head(chapter, says)}\n\n{part.code.strip()}\n\n{_output(chapter, name, part)}"
            for name, says, part in scripts(chapter)
        }
        with writing(folder):
            own.mkdir(parents=True, exist_ok=True)
            for path, text in texts.items():
                path.write_text(text, encoding="utf-8")
        yield from texts


def scripts(chapter: Chapter) -> Iterator[tuple[str, str, Reveal | Claim]]:
    """The name of each script, what it answers or shows, and its part."""
    for part in chapter.parts:
        match part:
            case Question(reveal=Reveal() as shown):
                yield part.name, part.ask, shown
            case Reveal():
                yield part.name, "", part
            case Claim():
                yield part.name, "", part


def _head(chapter: Chapter, says: str) -> str:
    return _comment(f"Chapter {chapter.number}, {chapter.title}\n\n{says}").rstrip("\n")


def _output(chapter: Chapter, name: str, part: Reveal | Claim) -> str:
    """What a script prints, as comments at its end."""
    missing = installed(part.needs)
    if missing:
        return f"# Its output is not here, because it needs a package: {missing}\n"
    try:
        if isinstance(part, Reveal):
            return _comment("It prints:\n" + reveal(part).text)
        ran = outcome(part)
    except Exception as error:  # a teacher's own code may raise anything
        given = f"{name} in {chapter.path.name}: {said(error)}"
        fix = f"python -m regard.learn.proof {chapter.path}"
        raise refuse("learn", "the code of a chapter fails", given, "code that runs", fix) from error
    so = f"holds if {part.condition}" if ran.outcome == "holds if" else ran.outcome
    return _comment(f"It prints:\n{ran.text}\nSo the claim {so}.")


def _comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.rstrip("\n").splitlines())
