"""Stop sequences: tokens and strings that end the generation of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...common.errors import Reason, Refused


class Stops:
    """Decides whether a generated text ends after its last token.

    Args:
        stop: sequences of tokens, and strings. Strings are searched in the decoded text, so they may start and end
            inside a token.
        decode: function from tokens to text; required for strings.

    Raises:
        Refused: empty stop sequences, strings without `decode`, or other types, listing every problem.

    Examples:
        >>> ends = Stops([[7, 7], "end"], decode=lambda tokens: bytes(tokens).decode())
        >>> ends([1, 7, 7]), ends(list(b"the en")), ends(list(b"the end"))
        (True, False, True)
    """

    def __init__(
        self, stop: str | Iterable[str | Sequence[int]] = (), decode: Callable[[list[int]], str] | None = None
    ):
        listed: list[Any] = [stop] if isinstance(stop, str) else list(stop)
        reasons = []
        for each in listed:
            if isinstance(each, str) and decode is None:
                reasons.append(
                    Reason(
                        "a stop string requires decode",
                        f"stop={each!r}, decode=None",
                        "a function from tokens to text",
                        "pass decode=, or pass the string as tokens",
                    )
                )
            elif not isinstance(each, Sequence):
                reasons.append(
                    Reason(
                        "invalid stop sequence", f"{each!r}", "a sequence of tokens, or a string", f"pass [{each!r}]"
                    )
                )
            elif not len(each):
                reasons.append(
                    Reason("empty stop sequence", f"{each!r}", "at least one token or character", "remove it")
                )
        if reasons:
            raise Refused("generate", reasons)
        self.words = [each for each in listed if isinstance(each, str)]
        self.tokens = [list(each) for each in listed if not isinstance(each, str)]
        self.decode = decode

    def __call__(self, tokens: list[int]) -> bool:
        """Returns whether the text ends with the last of these generated tokens."""
        if any(tokens[-len(stop) :] == stop for stop in self.tokens):
            return True
        if not self.words or self.decode is None:
            return False
        # Decodes the whole text: a string may span any number of tokens, and decoding may depend on earlier tokens.
        text = self.decode(tokens)
        return any(word in text for word in self.words)
