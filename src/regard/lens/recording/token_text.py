"""Tokens as they appear in the text, and the check that a text fits the model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...common.errors import refuse
from ...common.text.characters import clipped
from ...common.text.units import counted

BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # a byte in SentencePiece


def spelled(tokenizer, ids, offsets) -> tuple[str, ...]:
    """Each token as it appears in the text: with a leading space if it begins a word."""
    found = []
    end = 0
    for i, known in enumerate(tokenizer.convert_ids_to_tokens(ids)):
        token = known or f"[{ids[i]}]"  # models often have more numbers than the tokenizer has tokens
        first, last = offsets[i] if offsets is not None else (0, 0)
        if byte := BYTE.fullmatch(token):
            text = f"⟨{byte[1]}⟩"
        elif "▁" in token:  # SentencePiece marks spaces with this character
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


def unknown(tokenizer, text: str, ids, offsets) -> tuple[tuple[int, str], ...]:
    """(position, characters) of each token that replaces characters which the vocabulary lacks, such as "[UNK]".

    Without offsets, as from tokenizers written in Python, the characters are not known.
    """
    lacking = tokenizer.unk_token_id
    if offsets is None or lacking is None:
        return ()
    characters = {i: text[first:last].strip() for i, (first, last) in enumerate(offsets) if ids[i] == lacking}
    own = tokenizer.convert_ids_to_tokens([lacking])[0]  # a text may also spell the token itself
    return tuple((i, each) for i, each in characters.items() if each not in ("", own))


def _as_bytes(token: str, text: str) -> str:
    """A token of a byte-level tokenizer: its whole characters, and the bytes of the others as their numbers."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    table = {character: byte for byte, character in bytes_to_unicode().items()}
    if not all(character in table for character in token):
        return text
    found = bytes(table[character] for character in token).decode("utf-8", "surrogateescape")
    return "".join(f"⟨{ord(each) - 0xDC00:02X}⟩" if "\udc80" <= each <= "\udcff" else each for each in found)


def fit(text: str, special: Sequence[bool | int], longest: int | None, name: str, generate: int = 0) -> None:
    """Refuses a text without ordinary tokens, and a text that is longer than the model allows, with `generate` tokens
    more.
    """
    if all(special):
        raise refuse(
            "look",
            "no text",
            f"{clipped(text, 20)!r}, which has no ordinary token",
            "a text",
            "pass a text with at least one word",
        )
    check_length(len(special), longest, name, generate)


def check_length(tokens: int, longest: int | None, name: str, generate: int) -> None:
    """Refuses more tokens than the model allows."""
    if longest is not None and tokens + generate > longest:
        more, fix = f" and {generate} more", "generate fewer tokens, or pass a shorter text"
        raise refuse(
            "look",
            "the text is too long for the model",
            counted(tokens, "token") + (more if generate else ""),
            f"at most {longest} for {name}",
            fix if generate else "pass a shorter text, or choose a model for longer texts",
        )
