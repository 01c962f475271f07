"""What the tests of placements share: random masks, and everything about a placement by brute force."""

import numpy as np

import regard as rg
from regard.parallel.work import PAGE

CAUSAL = rg.causal()


def random_mask(rng: np.random.Generator, tokens: int):
    """One of several kinds of mask, with random numbers, or None."""
    lengths = np.diff(np.concatenate([[0], np.sort(rng.integers(0, tokens + 1, 4)), [tokens]]))
    kinds = [
        None,
        CAUSAL,
        CAUSAL & rg.window(int(rng.integers(1, 400))),
        CAUSAL & rg.documents(lengths=lengths),
        rg.documents(lengths=lengths),
        rg.prefix(int(rng.integers(0, tokens))),
        rg.lengths(int(rng.integers(0, tokens + 1)), int(rng.integers(0, tokens + 1))),
        rg.global_tokens(int(rng.integers(0, 5))) | rg.window(100, 50),
        rg.blocks(rng.random((9, 9)) < 0.3, 160),
        ~CAUSAL,
        (rg.head < 1) & CAUSAL | (rg.head >= 1) & rg.window(130),
    ]
    return kinds[rng.integers(len(kinds))]


def needed(mask, heads: int, tokens: int) -> np.ndarray:
    """Which pages the rows of each block read, (blocks, pages), from the mask as booleans."""
    q, edges = np.zeros((heads, tokens, 1), np.float32), np.arange(0, tokens, PAGE)
    seen = (rg.attention_weights(q, q, mask=mask) > 0).any(axis=0)
    return np.logical_or.reduceat(np.logical_or.reduceat(seen, edges, axis=0), edges, axis=1)


def brute_bytes(place) -> np.ndarray:
    """Bytes from rank to rank (source, target), from who needs what, one page and one row of a block at a time."""
    sizes, item = place.sizes, 4 if place.sizes.dtype == "float32" else 2
    sent = np.zeros((place.ranks, place.ranks), np.int64)
    heights = np.minimum(PAGE, sizes.tokens - PAGE * np.arange(len(place.owner)))
    for source, target in np.ndindex(sent.shape):
        rows = heights[place.travel(source, target)].sum()
        sent[source, target] = rows * sizes.key_heads * (sizes.depth + sizes.value_depth) * item
    for height, owner, worker in zip(heights, place.owner, place.worker, strict=True):
        if owner != worker:
            sent[owner, worker] += height * sizes.heads * sizes.depth * item
            sent[worker, owner] += height * sizes.heads * (sizes.value_depth * item + 4)
    return sent
