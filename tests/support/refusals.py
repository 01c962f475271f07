"""What regard refuses: as a block, with refusing("no such head"): …, as text, as reasons, and as their titles."""

import re
from contextlib import contextmanager

import pytest

from regard.common.errors import Refused


def _whole(refused: Refused) -> Refused:
    assert all(reason.given and reason.expected and reason.fix for reason in refused.reasons)
    return refused


@contextmanager
def refusing(words=""):
    """Fails unless the block is refused in a text that has this pattern, over any number of lines, and every reason has
    its three parts.
    """
    with pytest.raises(Refused, match=f"(?s){words}") as caught:
        yield caught
    _whole(caught.value)


def refusal(call, *arguments, **named):
    """What a call refuses, in words, or None."""
    try:
        call(*arguments, **named)
    except Refused as refused:
        return str(_whole(refused))
    return None


def reasons_of(call, *arguments, **named) -> list:
    """The reasons for which a call is refused."""
    with refusing() as caught:
        call(*arguments, **named)
    return caught.value.reasons


def whats(call, *arguments, **named) -> list[str]:
    """The title of each reason for which a call is refused."""
    return [reason.what for reason in reasons_of(call, *arguments, **named)]


def refused_in(table):
    """A test of each row of a table: words, or a pattern of them, and the call that is refused in them."""

    @pytest.mark.parametrize(("words", "call"), table.items(), ids=table)
    def test(words, call):
        text = refusal(call)
        assert words in text or re.search(words, text, re.DOTALL), text

    return test


def word_for_word(table):
    """A test of each row of a table, a call and all that its refusal says, under its first line."""

    @pytest.mark.parametrize(("call", "words"), table, ids=[words.split("\n")[0] for _, words in table])
    def test(call, words):
        assert refusal(call) == words

    return test
