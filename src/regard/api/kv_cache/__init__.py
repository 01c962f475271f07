"""Keys and values cached for decoding: `KVCache`.

cache     the public cache
state     everything that its methods change, as one value that never changes itself
pages     which page stores which positions of which sequence
storage   the content of a page: rows in their dtype, or in 8 bits
checks    its arguments
files     saved caches
reader    attention over pages, prepared for many steps
"""

from .cache import KVCache

__all__ = ["KVCache"]
