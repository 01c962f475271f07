"""The figures of every row by name, and their means over the rows of each head; head detectors: sets of keys that
depend on the tokens, and the rows for which there are such keys.

duplicate   earlier keys with the same token as the row
induction   the keys after those: what followed the row's token before. A head there repeats what it has read

Special tokens have no duplicates. A run's own measures are rules of the same kind, over `head`, `query`, `key` and
`token`, which `of_tokens` replaces by the table of the run's tokens.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...common.errors import Reason, Refused
from ...language.analysis import evaluate
from ...language.callables import as_mask
from ...language.expr import Const, Expr, Op, Read, Table, fold, frozen_table, key, query
from ...language.masks import everything
from ...language.tree.interning import walk
from .axis import Axis


class Word(Table):
    """The number of a token by its text, as its characters; `of_tokens` replaces it by the number."""


class Tokens(Table):
    """The table of the tokens of any run: `token[key]` is a number in the vocabulary, `token["it"]` that of a word."""

    def __getitem__(self, index: Any) -> Any:
        return _word(index) if isinstance(index, str) else super().__getitem__(index)


@functools.cache
def _word(text: str) -> Read:
    characters = np.array([0, *map(ord, text)])
    return Read(Word(characters, characters, f"token[{text!r}]", frozen=True), 0)


token = Tokens(nowhere := np.array([-(2**62)]), nowhere, "token", frozen=True)

DETECTORS = {
    "duplicate": (key < query) & (token[key] == token[query]),
    "induction": (key > 0) & (key < query) & (token[key - 1] == token[query]),
}


def checked(measures: Any) -> dict[str, Expr]:
    """The measures of a call of `look` as rules; one with the name of a detector replaces it."""
    if measures is None:
        return {}
    if not isinstance(measures, Mapping):
        given, expected = repr(measures)[:60], 'a dict from names to rules: {"next": key == query + 1}'
        raise Refused("look", [Reason("measures= is not a dict", given, expected, "name the rules")])
    reasons, found = [], {}
    for name, rule in measures.items():
        if not isinstance(name, str) or not re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,63}", name) or name in ROWS:
            expected = f"at most 64 of A–Z, a–z, 0–9 and _, first A–Z or a–z; but none of {', '.join(ROWS)}"
            reasons.append(Reason("a measure needs another name", repr(name), expected, "rename it"))
            continue
        try:
            read = as_mask(rule)
        except Refused as refused:
            reasons += refused.reasons
        else:
            found[name] = everything() if read is None else read
    if reasons:
        raise Refused("look", reasons)
    return found


def of_tokens(axis: Axis, measures: Mapping[str, Expr]) -> dict[str, Expr]:
    """The rules of the detectors and of own measures, for the tokens of this axis; without repeated tokens there is
    nothing to detect.

    >>> from regard.language.analysis import evaluate
    >>> found = of_tokens(Axis("text", ("a", "b", "a", "b"), (False,) * 4), {})
    >>> at = {"batch": 0, "head": 0, "query": np.arange(4)[:, None], "key": np.arange(4)}
    >>> evaluate(found["induction"], at).astype(int).tolist()
    [[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    """
    numbers = axis.token.array
    alone = np.array(axis.special) | np.isin(np.arange(len(axis)), axis.image or ())  # patches are not one word again
    apart = frozen_table(np.where(alone, -1 - np.arange(len(axis)), numbers), "token")
    detected = {} if len(np.unique(apart.array)) == len(axis) else DETECTORS

    def of(rule: Expr, table: Table) -> Expr:
        def read(node, *index):
            if isinstance(node.table, Word):
                return Const(axis.number_of("".join(map(chr, node.table.array[1:]))))
            return Read(table if node.table is token else node.table, *index)

        return fold(rule, lambda node: node, lambda node: node, read, lambda node, *args: Op(node.name, *args))

    return {
        name: of(rule, axis.token if name in measures else apart) if reads_token(rule) else rule
        for name, rule in (detected | dict(measures)).items()
    }


def reads_token(rule: Any) -> bool:
    """Whether a rule, as an expression or a callable, reads `token`, for which a table of a run has to be put."""
    read = as_mask(rule) if callable(rule) else rule
    return isinstance(read, Expr) and any(
        isinstance(node, Read) and isinstance(node.table, Tokens | Word) for node in walk(read)
    )


# The figures of every row by name. All except "low", "high", "attended", "strongest" and "wrong" are averaged over the
# rows of a head.
ROWS = {
    "entropy": "−Σ p ln p, in nats",
    "spread": "entropy as a share of ln(number of allowed keys), 0 if one key is allowed",
    "maximum": "the largest weight",
    "strongest": "its key, -1 if the row has no weight",
    "special": "weight on special tokens",
    "itself": "weight on the key at the row's own position",
    "previous": "weight on the key before it",
    "first": "weight on the first key",
    "distant": "weight on ordinary tokens at least two positions away",
    "distance": "√ Σ p (query − key)², in positions",
    "low": "the smallest score",
    "high": "the largest score",
    "attended": "how many keys the mask allows",
    "wrong": "how many of its scores are NaN or +infinity",
    "forbidden": "weight on masked keys; only for given weights",
    "moved": "Σ p ‖v‖, what the keys contribute to the output; only with values",
    "moved_special": "the share of special tokens in it; only with values",
}
AVERAGED = tuple(name for name in ROWS if name not in ("strongest", "low", "high", "attended", "wrong"))
POSITIONED = ("itself", "previous", "distant", "distance")  # these depend on the row's own position


def means(call: Any) -> dict[str, np.ndarray]:
    """The mean of each figure of a `Call` over the rows of every head, (H,) float64, as `Call.figures` describes it."""
    rows = call.rows
    if "attended" not in rows:
        return {}
    attended = rows["attended"]
    measures = {name: np.isfinite(values) for name, values in rows.items() if name not in ROWS}
    counted = {"spread": attended > 1, "previous": (attended > 0) & _have_previous(call)} | measures
    found = {}
    for name in (*AVERAGED, *measures):
        if name in rows and (call.aligned or name not in POSITIONED):
            those = counted.get(name, attended > 0)
            with np.errstate(invalid="ignore"):
                found[name] = np.where(those, rows[name], 0).sum(-1, dtype=np.float64) / those.sum(-1)
    return found


def _have_previous(call: Any) -> np.ndarray:
    """Which rows may attend to the key before their own position, (H, Q)."""
    H, Q, K = call.shape
    here = call.start + np.arange(Q)
    exists = (here > 0) & (here <= K)
    if call.mask is not None:
        places = {"batch": 0, "head": np.arange(H)[:, None], "query": here, "key": here - 1}
        exists = exists & evaluate(call.mask, places)
    return np.broadcast_to(exists, (H, Q))
