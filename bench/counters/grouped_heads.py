"""Shows that shared key heads save bytes and no operations of scores and values (transformers 5.23.0)."""

import subject
from shown import shown

import regard as rg

shared, own = subject.config(), subject.config()
own.num_key_value_heads = subject.HEADS
costs = {config.num_key_value_heads: rg.cost(config, tokens=subject.TOKENS) for config in (shared, own)}
brute = subject.brute()[1]
wrong = brute * shared.num_key_value_heads // subject.HEADS
shown(
    "transformers torch",
    {
        "with key heads in place of query heads": wrong,
        "rg.cost, 2 key heads": costs[2].attention.value,
        "rg.cost, 8 key heads": costs[8].attention.value,
        "brute force": brute,
        "rg.cost, cache of 2 key heads, bytes": costs[2].memory.kv_cache.value,
        "rg.cost, cache of 8 key heads, bytes": costs[8].memory.kv_cache.value,
    },
    wrong=4 * wrong == brute and 4 * costs[2].memory.kv_cache.value == costs[8].memory.kv_cache.value,
    exact=costs[2].attention.value == costs[8].attention.value == brute,
)
