"""Documents as text: their lengths, or a random set of them, because long lists cannot be typed."""

from __future__ import annotations

import re

import numpy as np

from ...common.errors import refuse

SPREAD = 1.3  # standard deviation of the logarithm of a length
EXPECTED = "lengths, such as 4096,8192,2048, or random ones: log-normal:188, or log-normal:188:7 with a seed"


def parse_documents(text: str, tokens: int) -> np.ndarray:
    """The lengths of documents (int64), which add up to the tokens. log-normal:188:7 is 188 random ones with seed 7.

    >>> parse_documents("4,8", 12).tolist(), parse_documents("log-normal:2:7", 12).tolist()
    ([4, 8], [5, 7])
    """
    if found := re.fullmatch(r"\s*log-normal:(\d{1,9})(?::(\d{1,9}))?\s*", text, re.ASCII):
        return log_normal(int(found[1]), tokens, int(found[2] or 0))
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,10}", part, re.ASCII) for part in parts):
        fix = "write lengths with commas, without units"
        raise refuse("plan", "the documents cannot be read", repr(text[:80]), EXPECTED, fix)
    lengths = np.array([int(part) for part in parts], np.int64)
    if lengths.sum() != tokens:
        raise refuse(
            "plan",
            "the documents do not add up to the tokens",
            f"{lengths.sum():,} tokens in {len(lengths):,} documents, --tokens {tokens:,}",
            "the same number of tokens",
            f"pass --tokens {lengths.sum()}, or other lengths",
        )
    return lengths


def log_normal(count: int, tokens: int, seed: int) -> np.ndarray:
    """Lengths of `count` documents with a log-normal distribution, scaled so that they add up to the tokens (int64).

    >>> log_normal(4, 1000, seed=0).tolist()
    [216, 154, 420, 210]
    """
    if not 1 <= count <= tokens:
        raise refuse(
            "plan",
            "more documents than tokens" if count else "no documents",
            f"{count:,} documents, {tokens:,} tokens",
            f"1 to {tokens:,} documents",
            "pass fewer documents, or more tokens" if count else "pass a number of documents",
        )
    weights = np.random.default_rng(seed).lognormal(0.0, SPREAD, count)
    ends = np.arange(1, count + 1)  # a document has at least one token
    return np.diff(ends + np.round(np.cumsum(weights) / weights.sum() * (tokens - count)).astype(np.int64), prepend=0)
