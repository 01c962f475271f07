"""From text files to batches: UTF-8 texts of files, folders and patterns, the held-out part, and windows of tokens.

A batch is a deterministic function of seed and batch number, so that training can be resumed at any step.
"""

from __future__ import annotations

import glob
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from ...common.errors import Reason, refuse_all
from .vocabulary import Vocabulary

WHOLE = 10  # with at least this many documents, whole documents are held out
HELD = 0.1  # held-out fraction of the text
MOST = 1_000_000  # maximum number of held-out characters: limits the time of an evaluation


@dataclass(frozen=True)
class Document:
    """A text and the file from which it was read.

    Args:
        name: the path of the file.
        text: the content of the file.

    Examples:
        >>> Document("notes.txt", "some text").name
        'notes.txt'
    """

    name: str
    text: str


def read(places: Iterable[Path | str]) -> list[Document]:
    """Reads text files, in the order of `places` and sorted by name in a folder.

    Explicitly named files must be UTF-8 text. In a folder or pattern, hidden files and files that are not UTF-8 text
    are skipped. A file that occurs twice is read once, so that no held-out text is also trained on.

    Args:
        places: files, folders and glob patterns such as `notes/*.md`.

    Returns:
        The documents that are not empty.

    Raises:
        Refused: files that do not exist, cannot be read, or are not UTF-8 text, listing every problem.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.txt").write_text("one")
        ...     [document.text for document in read([folder])]
        ['one']
    """
    documents: dict[Path, Document] = {}
    reasons = []
    for place in map(Path, places):
        named = place.is_file()
        texts = 0
        for path in [place] if named else _files(place):
            try:
                text = _text(path)
            except (OSError, ValueError) as error:
                if named:
                    reasons.append(_problem(path, error))
                continue
            if text.strip():
                texts += 1
                documents.setdefault(path.resolve(), Document(str(path), text))
            elif named:
                reasons.append(
                    Reason("empty file", str(path), "a file that contains text", "omit the file, or check the path")
                )
        if not named and not texts:
            what = "no text in the folder" if place.is_dir() else "no such file"
            reasons.append(
                Reason(
                    what,
                    str(place),
                    "a text file, a folder of text files, or a pattern such as 'notes/*.md'",
                    "check the path",
                )
            )
    if not reasons and not documents:
        reasons.append(Reason("no text", "no file", "one or more text files", "pass files, folders or patterns"))
    refuse_all("train", reasons)
    return list(documents.values())


def split(documents: Sequence[Document], seed: int = 0) -> tuple[list[Document], list[Document]]:
    """Splits documents into a training set and a held-out set: a tenth of the text, at most a million characters.

    With ten or more documents, whole documents are held out at random. With fewer, or if their lengths differ too
    much, the end of each document is held out.

    Args:
        documents: the documents.
        seed: seed of the random choice.

    Returns:
        The training documents and the held-out documents.

    Examples:
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


def _files(place: Path) -> list[Path]:
    """The files of a folder and its subfolders, or of a pattern, except hidden ones."""
    if place.is_dir():
        paths = [(path, path.relative_to(place).parts) for path in place.rglob("*")]
    else:
        paths = [(path, path.parts[-1:]) for path in map(Path, glob.glob(str(place), recursive=True))]
    return sorted(path for path, parts in paths if path.is_file() and not any(part.startswith(".") for part in parts))


def _text(path: Path) -> str:
    raw = path.read_bytes()
    if b"\0" in raw:
        raise ValueError("contains zero bytes")
    return raw.decode("utf-8-sig")


def _problem(path: Path, error: OSError | ValueError) -> Reason:
    if isinstance(error, OSError):
        return Reason("the file cannot be read", f"{path}: {error.strerror}", "a text file", "check the path")
    detail = f"byte {error.start}" if isinstance(error, UnicodeDecodeError) else str(error)
    return Reason(
        "not a text file",
        f"{path}: {detail}",
        "UTF-8 text",
        "omit the file, or convert it to UTF-8, for example with iconv",
    )


def tokens_of(documents: Iterable[Document], vocabulary: Vocabulary) -> torch.Tensor:
    """Encodes documents into one sequence of tokens, with the end-of-document token after each.

    Args:
        documents: the documents.
        vocabulary: the vocabulary that encodes them.

    Returns:
        (N,) int64 tokens.

    Examples:
        >>> from regard.models.data.vocabulary import Bytes
        >>> tokens_of([Document("a", "hi"), Document("b", "you")], Bytes()).tolist()
        [104, 105, 256, 121, 111, 117, 256]
    """
    end = torch.tensor([vocabulary.end])
    return torch.cat(
        [part for document in documents for part in (torch.from_numpy(vocabulary.encode(document.text)), end)]
    )


class Windows:
    """Shuffled windows of a token sequence, with the next token at every position as target.

    The sequence is treated as a ring. Each epoch splits it into adjacent windows from a random start and shuffles them,
    so every token occurs once per epoch, except for a remainder shorter than a window.

    Args:
        tokens: (N,) tokens.
        context: number of tokens per window.
        size: number of windows per batch.
        seed: seed of the random starts and orders.

    Examples:
        >>> windows = Windows(torch.arange(10), context=4, size=2)
        >>> tokens, targets = windows.batch(0)
        >>> tokens.shape, bool((targets == (tokens + 1) % 10).all())
        (torch.Size([2, 4]), True)
    """

    def __init__(self, tokens: torch.Tensor, context: int, size: int, seed: int = 0):
        self.tokens, self.context, self.size, self.seed = tokens, context, size, seed
        self.count = len(tokens) // context  # windows per epoch
        self._starts = lru_cache(maxsize=2)(self._draw)

    def batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns a batch; the same number always gives the same batch.

        Args:
            number: the batch number, from 0.

        Returns:
            Tokens (size, context), and targets of the same shape.
        """
        windows = range(number * self.size, (number + 1) * self.size)
        starts = torch.stack([self._starts(window // self.count)[window % self.count] for window in windows])
        return self._cut(starts)

    def _draw(self, epoch: int) -> torch.Tensor:
        random = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        first = torch.randint(len(self.tokens), (), generator=random)
        return first + self.context * torch.randperm(self.count, generator=random)

    def _cut(self, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = (starts[:, None] + torch.arange(self.context + 1)) % len(self.tokens)
        windows = self.tokens[rows]
        return windows[:, :-1], windows[:, 1:]

    def in_order(self, most: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Iterates over windows for evaluation, in order and evenly spaced over the sequence.

        Args:
            most: maximum number of windows.

        Returns:
            An iterator over batches: tokens and targets, each (up to `size`, context).
        """
        count = (len(self.tokens) - 1) // self.context
        chosen = torch.linspace(0, count - 1, min(count, most)).long().unique()
        for some in chosen.split(self.size):
            yield self._cut(some * self.context)
