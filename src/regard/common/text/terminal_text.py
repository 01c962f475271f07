"""Results as text that standard output can encode: signs that it lacks are written in ASCII."""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)

# Signs of figures, tables and formulas in ASCII; accents are dropped, and anything else becomes "?".
ASCII = {
    "·": ".", "×": "x", "÷": "/", "−": "-", "–": "-", "—": "-", "…": "...", "√": "sqrt", "Σ": "sum", "∞": "inf",
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "→": "->", "←": "<-", "∈": "in", "ᵀ": "^T", "°": " deg ", "±": "+-",
    "█": "#", "▓": "#", "▒": "+", "░": ":", "│": "|", "─": "-", "━": "-", "║": "|", "•": "*", "⟨": "<", "⟩": ">",
    "‘": "'", "’": "'", "“": '"', "”": '"', "µ": "u", "μ": "u", "σ": "sigma", "∂": "d",
}  # fmt: skip


def encodable(text: str, encoding: str | None) -> str:
    """The text with every sign that an encoding lacks in ASCII.

    >>> encodable("2 × 3 · █▒ é", "ascii"), encodable("2 × 3 · █▒ é", "cp1252"), encodable("█", "utf-8")
    ('2 x 3 . #+ e', '2 × 3 · #+ é', '█')
    """
    try:
        text.encode(encoding or "utf-8", "surrogatepass" if encoding == "utf-8" else "strict")
    except UnicodeEncodeError:
        return "".join(each if _fits(each, encoding) else _ascii(each) for each in text)
    except LookupError:  # an encoding that Python does not know: the stream itself decides
        return text
    return text


def _fits(sign: str, encoding: str | None) -> bool:
    try:
        sign.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _ascii(sign: str) -> str:
    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return ASCII.get(sign) or plain or "?"


def printable(cls: Class) -> Class:
    """Decorates a class: `print` of an object never fails, since its text has only signs of standard output."""
    written: Callable[[Any], str] = vars(cls)["__str__"]

    @functools.wraps(written)
    def shown(self) -> str:
        stream = sys.stdout
        strict = getattr(stream, "errors", None) in (None, "strict")
        return encodable(written(self), getattr(stream, "encoding", None)) if strict else written(self)

    cls.__str__ = shown  # type: ignore[assignment]
    return cls
