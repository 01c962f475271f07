"""`regard train`.

command    its options, what it prints
together   over how many processes it trains, and what happens where one of them fails
"""

from .command import train

__all__ = ["train"]
