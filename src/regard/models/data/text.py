"""The user's texts: read from files, folders and patterns, and a part of them held out."""

from __future__ import annotations

import glob
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...common.errors import Reason, Refused

__all__ = ["Document", "read", "split"]

WHOLE = 10  # from so many documents on, whole ones are held out
HELD = 0.1  # of the text, but never more than
MOST = 1_000_000  # characters: an evaluation should not take longer than the training


@dataclass(frozen=True)
class Document:
    """One text and the file it came from."""

    name: str
    text: str


def read(places: Iterable[Path | str], where: str = "train") -> list[Document]:
    """The texts of all files, in the order of the places; in a folder, whatever is UTF-8 text in it, by name.

    A file that is named must be UTF-8 text. In a folder or behind a pattern (`notes/*.md`) other files are passed over,
    and so are hidden ones. A file that is reached twice counts once, so that nothing held out is also learned.
    """
    found: dict[Path, Document] = {}
    reasons = []
    for place in map(Path, places):
        named = place.is_file()
        texts = 0
        for path in [place] if named else _inside(place):
            try:
                text = _text(path)
            except (OSError, ValueError) as error:
                if named:
                    reasons.append(_why(path, error))
                continue
            if text.strip():
                texts += 1
                found.setdefault(path.resolve(), Document(str(path), text))
            elif named:
                reasons.append(
                    Reason(
                        "an empty file",
                        given=str(path),
                        expected="a file with some text",
                        fix="leave it out, or check the path",
                    )
                )
        if not named and not texts:
            what = "no text in the folder" if place.is_dir() else "no such file"
            reasons.append(
                Reason(
                    what,
                    given=str(place),
                    expected="a text file, a folder of them, or a pattern such as 'notes/*.md'",
                    fix="check the path",
                )
            )
    if not reasons and not found:
        reasons.append(
            Reason("no text", given="no file", expected="one text file or more", fix="name files, folders or patterns")
        )
    if reasons:
        raise Refused(where, reasons)
    return list(found.values())


def split(documents: Sequence[Document], seed: int = 0) -> tuple[list[Document], list[Document]]:
    """The documents to learn from, and those held out: a tenth of the text, a million characters at most.

    Whole documents are drawn where there are ten or more; of fewer (or where they are too unequal), each gives its end.

    >>> learn, held = split([Document("one", "abcdefghij" * 10)])
    >>> len(learn[0].text), len(held[0].text)
    (90, 10)
    """
    total = sum(len(document.text) for document in documents)
    share = min(HELD, MOST / max(total, 1))
    if len(documents) >= WHOLE:
        held: set[int] = set()
        room = share * total
        for number in random.Random(seed).sample(range(len(documents)), len(documents)):
            size = len(documents[number].text)
            if size <= room:
                held.add(number)
                room -= size
        if room < share * total / 2:
            learn = [document for number, document in enumerate(documents) if number not in held]
            return learn, [documents[number] for number in sorted(held)]
    cuts = [len(document.text) - round(share * len(document.text)) for document in documents]
    starts = [Document(document.name, document.text[:cut]) for document, cut in zip(documents, cuts)]
    return starts, [Document(document.name, document.text[cut:]) for document, cut in zip(documents, cuts)]


def _inside(place: Path) -> list[Path]:
    """The files of a folder and its folders, or of a pattern, without hidden ones."""
    if place.is_dir():
        paths = [(path, path.relative_to(place).parts) for path in place.rglob("*")]
    else:
        paths = [(path, path.parts[-1:]) for path in map(Path, glob.glob(str(place), recursive=True))]
    return sorted(path for path, parts in paths if path.is_file() and not any(part.startswith(".") for part in parts))


def _text(path: Path) -> str:
    raw = path.read_bytes()
    if b"\0" in raw:
        raise ValueError("it holds zero bytes")
    return raw.decode("utf-8-sig")


def _why(path: Path, error: OSError | ValueError) -> Reason:
    if isinstance(error, OSError):
        return Reason(
            "the file cannot be read", given=f"{path}: {error.strerror}", expected="a text file", fix="check the path"
        )
    detail = f"byte {error.start}" if isinstance(error, UnicodeDecodeError) else str(error)
    return Reason(
        "not a text file",
        given=f"{path}: {detail}",
        expected="UTF-8 text",
        fix="leave it out, or convert it, with iconv for example",
    )
