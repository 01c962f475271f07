"""Keys and values cached for decoding: `KVCache`.

cache     the public cache
state     everything that its methods change, as one value that never changes itself; what a page contains
pages     which page stores which positions of which sequence
checks    its arguments
files     saved caches
reader    attention over pages, prepared for many steps
"""

from .cache import KVCache

__all__ = ["KVCache"]
