"""The tokens of a trained model as they appear in the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runs.axis import Axis

if TYPE_CHECKING:
    from ...models.data.vocabulary import Vocabulary


def axis_of(vocabulary: Vocabulary, ids: list[int]) -> Axis:
    """The axis of these tokens: bytes of an incomplete character as ⟨C3⟩, the end-of-document token as ⟨end⟩.

    >>> from regard.models.data.vocabulary import Bytes
    >>> axis_of(Bytes(), [*"né".encode(), 256]).tokens
    ('n', '⟨C3⟩', '⟨A9⟩', '⟨end⟩')
    """
    words = ["⟨end⟩" if token == vocabulary.end else _spelled(vocabulary.spell([token])) for token in ids]
    return Axis.of(words, [token == vocabulary.end for token in ids], ids=ids)


def _spelled(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 128 else f"⟨{byte:02X}⟩" for byte in piece)
