"""Tokens as text: each as it stands in the text, and which texts a model can take."""

from __future__ import annotations

from collections.abc import Sequence

from ...common.errors import refuse

__all__ = ["fit", "spelled"]


def spelled(tokenizer, ids, offsets) -> tuple[str, ...]:
    """Each token as it stands in the text: a leading space where a new word begins, none where a word goes on."""
    found = []
    end = 0
    for i, token in enumerate(tokenizer.convert_ids_to_tokens(ids)):
        first, last = offsets[i] if offsets is not None else (0, 0)
        if "▁" in token:  # SentencePiece writes spaces so
            text = token.replace("▁", " ")
        else:
            text = tokenizer.convert_tokens_to_string([token])
            if "\ufffd" in text:
                text = _as_bytes(token, text)
            if last > first and first > end and not text[:1].isspace():
                text = " " + text
            elif (
                first == end and text.startswith("##") and last - first == len(text) - 2
            ):  # WordPiece marks the rest of a word so
                text = text[2:]
        found.append(text)
        end = max(end, last)
    return tuple(found)


def _as_bytes(token: str, text: str) -> str:
    """A piece of a letter, from a tokenizer that cuts letters into bytes: the bytes themselves."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    table = {letter: byte for byte, letter in bytes_to_unicode().items()}
    if not all(letter in table for letter in token):
        return text
    found = bytes(table[letter] for letter in token)
    return " " * found.startswith(b" ") + "".join(f"⟨{byte:02X}⟩" for byte in found.removeprefix(b" "))


def fit(text: str, special: Sequence[bool | int], longest: int | None, name: str) -> None:
    """Refuses a text in which there is no token but special ones, and one that is longer than the model takes."""
    if all(special):
        raise refuse(
            "look",
            "no text",
            given=f"{text[:20]!r}, in which the model finds no token",
            expected="a text",
            fix="give some words",
        )
    if longest is not None and len(special) > longest:
        raise refuse(
            "look",
            "the text is too long for the model",
            given=f"{len(special)} tokens",
            expected=f"at most {longest} for {name}",
            fix="give a shorter text, or name a model for longer ones",
        )
