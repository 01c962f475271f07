"""What regard refuses, as a block: with refusing("no such head"): … and the reasons of a call: reasons_of(call, …)"""

import pytest

from regard.common.errors import Refused

__all__ = ["reasons_of", "refusing"]


def refusing(words):
    """Fails unless the block is refused in a text that has this pattern, over any number of lines."""
    return pytest.raises(Refused, match=f"(?s){words}")


def reasons_of(call, *given, **named):
    """The reasons for which a call is refused."""
    with pytest.raises(Refused) as caught:
        call(*given, **named)
    return caught.value.reasons
