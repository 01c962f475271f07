"""Tokens as they appear in the text, and the check that a text fits the model."""

from __future__ import annotations

from collections.abc import Sequence

from ...common.errors import refuse

__all__ = ["fit", "spelled"]


def spelled(tokenizer, ids, offsets) -> tuple[str, ...]:
    """Each token as it appears in the text: with a leading space if it begins a word."""
    found = []
    end = 0
    for i, token in enumerate(tokenizer.convert_ids_to_tokens(ids)):
        first, last = offsets[i] if offsets is not None else (0, 0)
        if "▁" in token:  # SentencePiece marks spaces with this character
            text = token.replace("▁", " ")
        else:
            text = tokenizer.convert_tokens_to_string([token])
            if "\ufffd" in text:
                text = _as_bytes(token, text)
            if last > first and first > end and not text[:1].isspace():
                text = " " + text
            # WordPiece marks a token that continues a word with ##.
            elif first == end and text.startswith("##") and last - first == len(text) - 2:
                text = text[2:]
        found.append(text)
        end = max(end, last)
    return tuple(found)


def _as_bytes(token: str, text: str) -> str:
    """The bytes of a token that is a part of a character, from a byte-level tokenizer."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    table = {character: byte for byte, character in bytes_to_unicode().items()}
    if not all(character in table for character in token):
        return text
    found = bytes(table[character] for character in token)
    return " " * found.startswith(b" ") + "".join(f"⟨{byte:02X}⟩" for byte in found.removeprefix(b" "))


def fit(text: str, special: Sequence[bool | int], longest: int | None, name: str) -> None:
    """Refuses a text without ordinary tokens, and a text that is longer than the model allows."""
    if all(special):
        raise refuse(
            "look",
            "no text",
            given=f"{text[:20]!r}, which has no ordinary token",
            expected="a text",
            fix="pass a text with at least one word",
        )
    if longest is not None and len(special) > longest:
        raise refuse(
            "look",
            "the text is too long for the model",
            given=f"{len(special)} tokens",
            expected=f"at most {longest} for {name}",
            fix="pass a shorter text, or choose a model for longer texts",
        )
