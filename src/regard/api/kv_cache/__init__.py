"""Keys and values cached for decoding: `KVCache`.

cache     the public cache
pages     which page stores which positions of which sequence
storage   the content of a page: rows in their dtype, or in 8 bits
reader    attention over pages, prepared for many steps
"""

from .cache import KVCache

__all__ = ["KVCache"]
