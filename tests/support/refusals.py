"""What regard refuses, as a block: with refusing("no such head"): …"""

import pytest

from regard.common.errors import Refused

__all__ = ["refusing"]


def refusing(words):
    """Fails unless the block is refused in a text that has this pattern, over any number of lines."""
    return pytest.raises(Refused, match=f"(?s){words}")
