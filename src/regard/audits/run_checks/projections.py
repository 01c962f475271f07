"""The checks projections and positions: q, k, v and outputs against the products with the layer's weights, weights that
no output depends on, and how positions enter: rotations, and tables of positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common.module_settings import path_pattern, setting
from ..finding import Finding, Result, found, listed
from .audited_run import SPLIT, AuditedCall, AuditedRun, concluded, roundoff

if TYPE_CHECKING:
    from .sources import Source, Unread

TURNED = 2e-3  # relative to the largest number of a row: rounding in 16 bits, and angles in float32
RIGHT, NOT, ANYHOW = "rotated as declared", "not rotated", "rotated"
WORDS = {"q": "queries", "k": "keys", "v": "values"}

# The model types all of whose layers are rotated alike, in pairs of the components 2i and 2i + 1, or i and i + d/2.
NEIGHBORS = ["cohere", "glm", "glm4", "helium", "ernie4_5"]
HALVES = [
    "llama",
    "mistral",
    "ministral",
    "mixtral",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "phi",
    "phi3",
    "stablelm",
    "starcoder2",
    "olmo",
    "olmo2",
    "olmoe",
    "granite",
    "granitemoe",
    "gpt_neox",
    "gpt_oss",
    "persimmon",
    "nemotron",
    "arcee",
    "apertus",
    "seed_oss",
    "glm4_moe",
]


def projections(run: AuditedRun) -> Iterator[Result]:
    """q, k, v and outputs are made of and become products with weights, head by head, and every weight is read."""
    answers = [answer for audited in run.calls for answer in _layout(audited)]
    weights = [each for each in run.unread if each.kind == "weight"]
    answers += [_ignored(each) for each in run.unread if each.kind == "input"]
    alike: dict[tuple[str, str], list[Unread]] = {}
    for each in weights:
        alike.setdefault((path_pattern(each.name), each.part), []).append(each)
    answers += [_unread(run, of_layers) for of_layers in alike.values()]
    measured = "q, k, v and outputs of {} are products with the weights of the layer, and every weight is read"
    yield from concluded("projections", answers, measured, "no call is of products with weights of the model")


def _layout(audited: AuditedCall) -> Iterator[Finding | bool]:
    """How heads are split, ordered and merged."""
    sources = audited.sources
    if sources is None:
        return
    parts = {name: part for name in "qkv" if (part := getattr(sources, name)) is not None}
    yield bool(parts)
    split = [WORDS[name] for name, part in parts.items() if part.split == SPLIT]
    merged = sources.merged
    if split or merged == SPLIT:
        what = [f"{' and '.join(split)} are split into heads"] * bool(split) + ["heads are merged"] * (merged == SPLIT)
        yield audited.finding(
            "projections",
            "fault",
            f"next to the products of the layer, {' and '.join(what)} by a change of shape alone, so that numbers of "
            "several positions are in one vector (threshold: 0)",
            f"{' and '.join(what)} by view or reshape without a transpose",
            "split with view(B, n, H, D).transpose(1, 2), and merge with transpose(1, 2).reshape(B, n, H · D)",
        )
        return
    known = {name: part.blocks for name, part in parts.items()}
    wrong = {name: blocks for name, blocks in known.items() if list(blocks) != sorted(blocks)}
    if "v" in wrong and len(audited.of.sources.calls[audited.call.name]) > 1:
        del wrong["v"]  # the weights of a head are used for several values, as in differential attention
    if isinstance(merged, tuple) and list(merged) != sorted(merged):
        wrong["merged"] = merged
    if not wrong or len({tuple(np.argsort(blocks)) for blocks in (*known.values(), *wrong.values())}) == 1:
        return
    name, blocks = next(iter(wrong.items()))
    tiled = len(set(blocks)) < len(blocks) and blocks == tuple(sorted(set(blocks))) * (len(blocks) // len(set(blocks)))
    array = WORDS.get(name, "heads of the output")
    yield audited.finding(
        "projections",
        "fault",
        f"{array} of the heads are blocks {listed(blocks)} of the product with {_weight(parts, name)}, and others are "
        "in order (threshold: 0)",
        f"{array} are repeated as blocks (repeat, tile, expand) instead of head by head (repeat_interleave)"
        if tiled
        else f"{array} are those of other heads: they are in another order than the rest of the call",
        "query head h uses key/value head h // (H / G): repeat_interleave"
        if tiled
        else f"split, roll and merge {array} in the order of the queries",
        numbers={"blocks": list(blocks), "array": name},
    )


def _weight(parts: dict[str, Source], name: str) -> str:
    return parts[name].weight if name in parts else "the output projection"


def _unread(run: AuditedRun, of_layers: list[Unread]) -> Finding:
    """The finding of a weight, the same of several layers, that no output depends on, and why."""
    names, part, role = [each.name for each in of_layers], of_layers[0].part, of_layers[0].role
    layers = [audited for audited in run.calls if audited.sources and _around(names[0], audited)]
    sources = layers[0].sources if layers else None
    k, v, q = (getattr(sources, name, None) for name in "kvq")
    if "norm" in names[0].rpartition(".")[0].rpartition(".")[2]:
        cause, fix = "the norm is skipped", "apply it to queries and keys, before rotary positions"
    elif k is not None and v is not None and (k.weight, k.blocks) == (v.weight, v.blocks):
        cause, fix = "the keys are used as values: the projection of the values is never read", "weight the values"
    elif q is not None and k is not None and q.weight == k.weight and {*k.blocks} <= {*q.blocks}:
        cause, fix = (
            "the queries are used as keys: the projection of the keys is never read",
            "compute k of its own rows",
        )
    elif sources is not None and sources.merged is None and not part and role in (None, "outputs"):
        cause, fix = "the output projection is skipped", "return its product with the merged heads"
    else:
        cause = (
            f"the projection of the {role} is never read: other products are used as {role}, such as those of the keys"
        )
        cause, fix = cause if role else "this projection is never read", "use what it computes, or remove it"
    return found(
        "projections",
        "fault",
        f"{listed(names)}{', ' * bool(part)}{part}",
        "other numbers there leave every output the same, bit for bit, while other weights of the layer change it "
        "(threshold: 0)",
        cause,
        fix,
        call=layers[0].number if layers else None,
        numbers={"weights": names, "part": part},
    )


def _ignored(each: Unread) -> Finding:
    return found(
        "projections",
        "fault",
        f"the input {each.name}",
        "other values there leave every output the same, bit for bit (threshold: 0)",
        "no output depends on the input: attention runs over another axis than the positions, such as the batch",
        "check the order of the axes of q, k and v: (batch, heads, positions, depth)",
    )


def _around(name: str, audited: AuditedCall) -> bool:
    """Whether a weight is of the layer of a call, or of the module around it."""
    return name.startswith((f"{audited.call.name}.", f"{audited.call.name.rpartition('.')[0]}."))


# What is wrong with tables that no output depends on, by their kind, and what to do.
TABLES = {
    "positions": ("positions are not added to the embeddings", "every token gets one of the first positions"),
    "turns": (
        "queries and keys are not rotated by their positions",
        "every token is rotated as if it had one of the first positions: its position, or the axis, is wrong",
    ),
    "slopes": ("the slopes are not added to the scores: distances have no effect", ""),
}


def positions(run: AuditedRun) -> Iterator[Result]:
    """Queries and keys are rotated as the configuration of the layer says, and as in other layers; tables are read."""
    answers = [answer for audited in run.calls for answer in _rotation(audited)]
    answers += [_table(each) for each in run.unread if each.kind in TABLES and _is_needed(run, each.kind)]
    measured = "q and k of {} are rotated alike, or as the configuration says; the outputs depend on every table"
    yield from concluded(
        "positions", answers, measured, "no q and k are known to be products with weights of the model"
    )


def _is_needed(run: AuditedRun, kind: str) -> bool:
    """Whether such a table has to be read: slopes may be in a bias, and some layers have no rotary positions."""
    if kind == "slopes":
        return not any(audited.call.score is not None or audited.call.given is not None for audited in run.calls)
    return kind != "turns" or all(
        not audited.configured or _type(audited) in NEIGHBORS + HALVES for audited in run.calls
    )


def _type(audited: AuditedCall) -> Any:
    """The type of the model of transformers that a layer is of."""
    return setting(setting(audited.layer, "config"), "model_type")


def _table(each: Unread) -> Finding:
    return found(
        "positions",
        "fault",
        f"{each.name}{', ' * bool(each.part)}{each.part}",
        "other numbers there leave every output the same, bit for bit (threshold: 0)",
        TABLES[each.kind][bool(each.part)],
        "read the table at the position of each token, and use it in forward",
        numbers={"table": each.name, "part": each.part},
    )


def _rotation(audited: AuditedCall) -> Iterator[Finding | bool]:
    """How the queries and keys of a call are rotated."""
    q, k = (_turned(audited, name) for name in "qk")
    if q is None or k is None:
        return
    if "apart" in (q, k):
        cause = "the angles depend on the head instead of the position: rotary positions along the wrong axis"
    elif q != k:
        still, others = ("keys", "queries") if k == NOT else ("queries", "keys")
        cause = f"{still} are not rotated, although {others} are" if NOT in (q, k) else "they are not rotated alike"
    elif q == NOT and any(_turned(other, "q") == RIGHT for other in audited.of.calls):
        cause = "queries and keys of this layer are not rotated, although those of other layers are"
    elif q == NOT and _alone(audited):
        cause = "queries and keys of this layer are not rotated, although those of all other layers of its type are"
    elif q in (RIGHT, NOT, ANYHOW):
        yield True
        return
    else:
        cause = f"queries and keys are {q}"
    yield audited.finding(
        "positions",
        "fault",
        f"next to the products of their modules q is {q} and k is {k} (threshold: a relative difference of {TURNED:g})",
        cause,
        "rotate queries and keys by their positions in each layer, with the base, pairs and share of the configuration",
    )


def _alone(audited: AuditedCall) -> bool:
    """Whether this is the only layer of its type that is not rotated, and nothing in it says that it need not be."""
    if audited.configured:  # layers without rotary positions are usual there
        return False
    alike = [
        other
        for other in audited.of.calls
        if path_pattern(other.call.name) == path_pattern(audited.call.name) and type(other.layer) is type(audited.layer)
    ]
    says = [name for name in dir(audited.layer) if any(word in name for word in ("nope", "rope", "rotary"))]
    turned = [other for other in alike if _turned(other, "q") == ANYHOW]
    return not says and len(alike) > 1 and len(turned) == len(alike) - 1


def _turned(audited: AuditedCall, name: str) -> str | None:
    """How the queries or keys of a call are rotated, in words; None where that is unknown."""
    sources = audited.sources
    source: Source | None = getattr(sources, name, None)
    if source is None or source.split == SPLIT or not audited.call.aligned:
        return None
    config, kind = setting(audited.layer, "config"), _type(audited)
    if source.turned and source.still < 1:  # rotated at position 0, too: the positions may start elsewhere
        return "apart" if source.still > 0 else None
    if kind not in NEIGHBORS + HALVES or source.vectors is None:
        return ANYHOW if source.turned else NOT
    import torch

    from ...torch.positions import Rotary

    pair, at, part = kind in NEIGHBORS, torch.arange(source.vectors.shape[1]), np.asarray(getattr(audited.call, name))
    vectors = source.vectors[:: max(1, len(source.vectors) // len(part))]  # the run holds keys once for a group
    right, other = (Rotary.from_config(config, interleaved=each) for each in (pair, not pair))
    product = torch.from_numpy(vectors)
    ways = (
        (RIGHT, right, 1),
        (NOT, right, 0),
        ("rotated backwards, in the wrong direction", right, -1),
        ("rotated in the wrong pairs of components", other, 1),
    )
    for words, rotary, step in ways:
        if _equal(part, rotary.rotate(product, step * at)):
            return words
    if audited.of.sources.padded or roundoff(audited.call) > TURNED / 100:  # in 16 bits right ones differ, too
        return None
    return "rotated by other angles than declared: another base, share or position"


def _equal(one: Any, other: Any) -> bool:
    """Whether two arrays (…, D) are equal up to one factor and rounding."""
    a, b = (np.asarray(each, np.float64) for each in (one, other))
    factor = float(np.vdot(b, a) / (np.vdot(b, b) + 1e-300))
    return factor > 0 and bool((np.abs(a - factor * b) <= TURNED * np.abs(a).max(-1, keepdims=True)).all())
