"""`regard plan`: how a sequence is divided over several ranks, from sizes and a mask as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ..common.errors import refuse
from ..common.files.output import FIGURE, check_output
from .arguments import flag, option
from .measure_text import Option, parse_rule
from .terminal import emit, emit_json

EXAMPLE = "(key <= query) & (query - key < 4096)"
MASK = Option("plan", "--mask", "mask", ("query", "key", "head"), EXAMPLE)
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}


def plan(
    tokens: Annotated[str, option("Tokens of the sequence: 4096, 128k (131,072) or 1M (1,048,576).")],
    ranks: Annotated[int, option("Number of ranks, 1 to 1024.")],
    mask: Annotated[str | None, option(f"A rule over query, key and head: '{EXAMPLE}'.", "every pair")] = None,
    documents: Annotated[
        str | None,
        option("Lengths of packed documents (4096,8192), or random ones: their number and a seed (log-normal:188:0)."),
    ] = None,
    heads: Annotated[int, option("Query heads.")] = 32,
    key_heads: Annotated[int | None, option("Key/value heads.", "as many as heads")] = None,
    depth: Annotated[int, option("Numbers of a query and of a key, for each head.")] = 128,
    value_depth: Annotated[int | None, option("Numbers of a value.", "depth")] = None,
    dtype: Annotated[str, option("Of the arrays: float32, float64, float16 or bfloat16.")] = "bfloat16",
    among: Annotated[str | None, option("Try only these candidates (comma-separated).", "all")] = None,
    peak: Annotated[float | None, option("Operations per second of a rank.", "400e12")] = None,
    bandwidth: Annotated[float | None, option("Bytes per second of a rank, in each direction.", "50e9")] = None,
    out: Annotated[Path | None, option("Write the placement to this JSON file.")] = None,
    figure: Annotated[Path | None, option("Draw who holds and computes what to this file: .png, .svg or .pdf.")] = None,
    as_json: Annotated[bool, flag("--json", "Print what each rank has to do as JSON.")] = False,
) -> None:
    """Show how one sequence can be divided over several ranks: pairs, bytes, balance and modelled time.

    Tries contiguous, zig-zag, striped and balanced placements, and moves of single blocks of rows, on the plan of the
    mask; takes the one with the least modelled time of a forward pass. Nothing is sent or computed.

    Exit status: 0, 2 invalid arguments.
    """
    from .. import parallel
    from ..language.masks import documents as packed_documents
    from ..parallel.explain import ending_of
    from ..parallel.work import BANDWIDTH, PEAK

    count = size(tokens)
    if not 1 <= count < 1 << 31:  # before a table of documents is made
        expected = "1 to 2,147,483,647 tokens"
        raise refuse("plan", "too many tokens" if count else "no tokens", tokens, expected, "change it")
    rule = None if mask is None else parse_rule(mask, 0, MASK)
    if documents is not None:
        packed = packed_documents(lengths=parse_documents(documents, count))
        rule = packed if rule is None else rule & packed
    if out is not None:
        check_output("plan", "--out", out, what="a placement", mark="regard_placement")
    if figure is not None:
        ending_of(figure)
        check_output("plan", "--figure", figure, what="a figure", mark=FIGURE)
    place = parallel.place(
        count,
        ranks=ranks,
        mask=rule,
        heads=heads,
        key_heads=key_heads,
        depth=depth,
        value_depth=value_depth,
        dtype=dtype,
        among=None if among is None else [name.strip() for name in among.split(",")],
        peak=PEAK if peak is None else peak,
        bandwidth=BANDWIDTH if bandwidth is None else bandwidth,
    )
    if out is not None:
        place.save(out)
        typer.echo(f"Placement written to {out}.", err=True)
    found = parallel.explain(place)
    if figure is not None:
        found.plot(figure)
        typer.echo(f"Figure written to {figure}.", err=True)
    if as_json:
        emit_json(found.to_json())
    else:
        emit(f"{found}\n\n{found.figure()}")


def size(text: str) -> int:
    """A number of tokens.

    >>> size("4096"), size("128k"), size("1M")
    (4096, 131072, 1048576)
    """
    found = re.fullmatch(r"\s*(\d{1,12})\s*([kKmM]?)\s*", text, re.ASCII)
    if found is None:
        expected = "a whole number, such as 4096, 128k or 1M"
        raise refuse("plan", "the tokens cannot be read", repr(text[:80]), expected, "correct it")
    return int(found[1]) * UNITS[found[2].lower()]


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
