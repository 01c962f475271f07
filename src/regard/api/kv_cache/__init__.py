"""Keys and values kept for decoding: `KVCache`.

cache     the cache that people use
pages     which page holds which positions of which sequence
storage   what a page holds: rows as they came, or in 8 bits
reader    attention over pages, prepared for many steps
"""

from .cache import KVCache

__all__ = ["KVCache"]
