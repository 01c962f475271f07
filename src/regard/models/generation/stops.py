"""Where writing stops: after certain tokens, or when certain words stand in the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...common.errors import Reason, Refused

__all__ = ["Stops"]


class Stops:
    """Says whether a text that grows has come to its end.

    stop: sequences of tokens, and words. A word may begin inside one token and end inside another: it is looked for in
    the decoded text. decode: tokens -> text, which words need.

    Refused, with all reasons at once: nothing to wait for, words without decode, what is neither tokens nor a word.

    >>> ends = Stops([[7, 7], "end"], decode=lambda tokens: bytes(tokens).decode())
    >>> ends([1, 7, 7]), ends(list(b"the en")), ends(list(b"the end"))
    (True, False, True)
    """

    def __init__(self, stop: Iterable = (), decode: Callable[[list[int]], str] | None = None):
        listed = [stop] if isinstance(stop, str) else list(stop)
        reasons = []
        for each in listed:
            if isinstance(each, str) and decode is None:
                reasons.append(
                    Reason(
                        "a stop word without a way to read the text",
                        given=f"{each!r}",
                        expected="decode=, from tokens to text",
                        fix="pass decode=vocabulary.decode, or give the word as tokens",
                    )
                )
            elif not isinstance(each, Sequence):
                reasons.append(
                    Reason(
                        "not a stop",
                        given=f"{each!r}",
                        expected="a sequence of tokens, or a word",
                        fix=f"write [{each!r}]",
                    )
                )
            elif not len(each):
                reasons.append(
                    Reason(
                        "a stop without content",
                        given=f"{each!r}",
                        expected="at least one token, or one letter",
                        fix="leave it out",
                    )
                )
        if reasons:
            raise Refused("generate", reasons)
        self.words = [each for each in listed if isinstance(each, str)]
        self.tokens = [list(each) for each in listed if not isinstance(each, str)]
        self.decode = decode

    def __call__(self, tokens: list[int]) -> bool:
        """Whether these tokens, to which one was just added, are to be the last."""
        if any(tokens[-len(stop) :] == stop for stop in self.tokens):
            return True
        if not self.words or self.decode is None:
            return False
        # The whole text: how many tokens a word spans is not known, and what a token reads as may depend on those
        # before it.
        text = self.decode(tokens)
        return any(word in text for word in self.words)
