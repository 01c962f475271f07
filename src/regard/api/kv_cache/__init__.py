"""Keys and values kept for decoding: `KVCache`.

kv.py       the cache that people use
pages.py    which page holds which positions of which sequence
storage.py  what a page holds: rows as they came, or in 8 bits
"""

from .cache import KVCache

__all__ = ["KVCache"]
