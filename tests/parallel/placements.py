"""What the tests of placements share: random masks, and everything about a placement by brute force."""

import numpy as np

import regard as rg
from regard.parallel.work import PAGE


def random_mask(rng: np.random.Generator, tokens: int):
    """One of several kinds of mask, with random numbers, or None."""
    cuts = np.sort(rng.integers(0, tokens + 1, 4))
    lengths = np.diff(np.concatenate([[0], cuts, [tokens]]))
    kinds = [
        None,
        rg.causal(),
        rg.causal() & rg.window(int(rng.integers(1, 400))),
        rg.causal() & rg.documents(lengths=lengths),
        rg.documents(lengths=lengths),
        rg.prefix(int(rng.integers(0, tokens))),
        rg.lengths(int(rng.integers(0, tokens + 1)), int(rng.integers(0, tokens + 1))),
        rg.global_tokens(int(rng.integers(0, 5))) | rg.window(100, 50),
        rg.blocks(rng.random((9, 9)) < 0.3, 160),
        ~rg.causal(),
        (rg.head < 1) & rg.causal() | (rg.head >= 1) & rg.window(130),
    ]
    return kinds[rng.integers(len(kinds))]


def allowed(mask, heads: int, tokens: int) -> np.ndarray:
    """The mask as booleans (heads, tokens, tokens)."""
    if mask is None:
        return np.ones((heads, tokens, tokens), bool)
    q = np.zeros((heads, tokens, 1), np.float32)
    return rg.attention_weights(q, q, mask=mask) > 0


def brute_bytes(place) -> np.ndarray:
    """Bytes from rank to rank (source, target), from who needs what, one page and one row of a block at a time."""
    sizes, item = place.sizes, np.dtype("float32").itemsize if place.sizes.dtype == "float32" else 2
    sent = np.zeros((place.ranks, place.ranks), np.int64)
    for source in range(place.ranks):
        for target in range(place.ranks):
            for page in place.travel(source, target):
                height = min(PAGE, sizes.tokens - page * PAGE)
                sent[source, target] += height * sizes.key_heads * (sizes.depth + sizes.value_depth) * item
    for block, (owner, worker) in enumerate(zip(place.owner, place.worker, strict=True)):
        if owner != worker:
            rows = min(PAGE, sizes.tokens - block * PAGE) * sizes.heads
            sent[owner, worker] += rows * sizes.depth * item
            sent[worker, owner] += rows * (sizes.value_depth * item + 4)
    return sent


def log_normal(tokens: int):
    """188 causal documents with log-normal lengths, as in the published table."""
    from regard.cli.plan import log_normal as lengths

    return rg.causal() & rg.documents(lengths=lengths(188, tokens, seed=0))
