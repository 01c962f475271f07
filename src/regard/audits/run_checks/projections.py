"""The checks projections and positions: q, k, v and outputs against the products with the layer's weights, weights that
no output depends on, and how positions enter: rotations, and tables of positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...common.module_settings import path_pattern, setting
from ..evidence import script
from ..finding import Finding, Result, found, listed
from .audited_run import SPLIT, AuditedCall, AuditedRun, concluded, roundoff

if TYPE_CHECKING:
    from .sources import Unread

ANGLE = 5e-3  # radians per position by which angles that are measured in float32 may differ
TURNED = 2e-3  # relative to the largest number of a row: rounding in 16 bits, and angles in float32
RIGHT, NOT, ANYHOW = "rotated as declared", "not rotated", "rotated"
OTHER = "rotated by other angles than declared: another base, share or position"
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
    """q, k, v and outputs are made of and become products with weights, head by head, and every weight is read.

    The model runs again: heads that are split or merged by a view, or in another order; weights and inputs that no
    output depends on, such as a skipped output projection, keys as values, a skipped norm. A weight that gets no
    gradient is given other numbers, and counts as unread only if every output stays the same, bit for bit. Cannot judge
    biases, embeddings, experts, layers all of whose weights get no gradient, and which of several products is meant as
    keys.
    """
    answers = [answer for audited in run.calls for answer in _layout(audited)]
    weights = [each for each in run.unread if each.kind == "weight"]
    answers += [_ignored(run, each) for each in run.unread if each.kind == "input"]
    layers = [each.name.rstrip(".") for each in run.unread if each.kind == "layer"]
    answers += [_unused(layers)] * bool(layers)
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
    n = sources.keys
    orders = {**dict.fromkeys(parts, tuple(range(n))), **sources.orders}
    if len({*orders.values()}) > 1 and sources.shape[1] == n:
        name = next(
            name
            for name in (*(name for name in "kv" if orders.get("k") != orders.get("v")), "q")
            if name in sources.orders
        )
        array = WORDS[name]
        yield audited.finding(
            "projections",
            "fault",
            f"row 0 of the {array} is row {orders[name][0]} of a product with a weight, row 1 is row {orders[name][1]},"
            " and others are in order (threshold: 0)",
            f"{array} are in another order of positions than the rest of the call: rolled, flipped or sorted alone",
            f"leave {array} in the order of the tokens, or give queries, keys and values the same order",
        )
        return
    if sources.repeats:
        yield audited.finding(
            "projections",
            "fault",
            "all rows of the queries are equal, and those of the keys are not (threshold: 0)",
            "all rows have one query: that of one position is used for the others too",
            "compute q of every row's own input",
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
    product_of = parts[name].weight if name in parts else "the output projection"
    cause = f"{array} are those of other heads: they are in another order than the rest of the call"
    fix = f"split, roll and merge {array} in the order of the queries"
    if tiled:
        cause = f"{array} are repeated as blocks (repeat, tile, expand) instead of head by head (repeat_interleave)"
        fix = "query head h uses key/value head h // (H / G): repeat_interleave"
    yield audited.finding(
        "projections",
        "fault",
        f"{array} of the heads are blocks {listed(blocks)} of the product with {product_of}, and others are "
        "in order (threshold: 0)",
        cause,
        fix,
    )


def _unread(run: AuditedRun, of_layers: list[Unread]) -> Finding:
    """The finding of a weight, the same of several layers, that no output depends on, and why."""
    names, part, role = [each.name for each in of_layers], of_layers[0].part, of_layers[0].role
    first = next((each for each in run.calls if each.sources and names[0].startswith(_around(each))), None)
    sources = None if first is None else first.sources
    k, v, q = (getattr(sources, name, None) for name in "kvq")
    wide = dict(run.module.named_parameters())[names[0]].ndim > 1
    if "norm" in names[0].rpartition(".")[0].rpartition(".")[2]:
        cause, fix = "the norm is skipped", "apply it to queries and keys, before rotary positions"
    elif k is not None and v is not None and (k.weight, k.blocks) == (v.weight, v.blocks):
        cause, fix = "the keys are used as values: the projection of the values is never read", "weight the values"
    elif q is not None and k is not None and q.weight == k.weight and {*k.blocks} <= {*q.blocks}:
        cause, fix = (
            "the queries are used as keys: the projection of the keys is never read",
            "compute k of its own rows",
        )
    elif role == "outputs" and sources is not None and sources.merged is not None:
        cause, fix = (
            "the output of the attention is left out: what the projection of the outputs returns is not used",
            "add it to the residual stream",
        )
    elif role in (None, "outputs") and not part and sources is not None and sources.merged is None and wide:
        cause, fix = "the output projection is skipped", "return its product with the merged heads"
    else:
        cause = (
            f"the projection of the {role}, or that of one of its heads, is never read: other products are used as "
            f"{role}, such as those of the keys, or zeros"
        )
        cause = cause if role else "this projection, or that of some of its heads, is never read"
        fix = "use what it computes, or remove it"
    shown = script(
        run.subject,
        next(iter(run.subject.outputs)),
        "before = run(inputs)",
        f"torch.nn.init.normal_(model.get_parameter({names[0]!r}).data)",
        "print(torch.equal(run(inputs), before))  # False where the weight is read",
    )
    return found(
        "projections",
        "fault",
        f"{listed(names)}{', ' * bool(part)}{part}",
        "other numbers there leave every output the same, bit for bit, while other weights of the layer change it "
        "(threshold: 0)",
        cause,
        fix,
        call=first and first.number,
        evidence="" if part else shown,
    )


def _unused(layers: list[str]) -> Finding:
    return found(
        "projections",
        "fault",
        f"layers {listed(layers)}",
        "other numbers in all of their weights leave every output the same, bit for bit (threshold: 0)",
        "no output depends on what these layers compute: it is not passed on, such as the memory of an encoder, or the "
        "residual sum leaves it out",
        "pass the result of the layer to what comes after it",
    )


def _ignored(run: AuditedRun, each: Unread) -> Finding:
    first = [audited.call.allowed([0], heads=0) for audited in run.calls]
    causal = bool(first) and all(allowed.sum() == 1 < allowed.size for allowed in first)
    cause, fix = (
        "attention runs over another axis than the positions, such as the batch, or takes its keys from another input, "
        "such as those of the decoder",
        "check the order of the axes of q, k and v, (batch, heads, positions, depth), and what they are made of",
    )
    if causal:
        cause = "a causal mask hides it from the first position, which outputs are read of"
        fix = "leave out the causal mask in an encoder, or read the output of the last position"
    return found(
        "projections",
        "fault",
        f"the input {each.name}",
        "other values there leave every output the same, bit for bit"
        + ", and row 0 of every call attends to one key" * causal
        + " (threshold: 0)",
        f"no output depends on the input: {cause}",
        fix,
    )


def _around(audited: AuditedCall) -> tuple[str, ...]:
    """How the names of weights of the layer of a call begin, or those of the module around it."""
    return tuple(f"{name}." for name in (audited.call.name, audited.call.name.rpartition(".")[0]))


# What is wrong with tables that no output depends on, by their kind, and what to do.
TABLES = {
    "positions": ("positions are not added to the embeddings", "every token gets one of the first positions"),
    "turns": (
        "queries and keys are not rotated by their positions",
        "every token is rotated as if it had one of the first positions: its position, or the axis, is wrong",
    ),
    "slopes": ("the slopes are not added to the scores: distances have no effect", ""),
    "masks": ("the mask is not applied to the scores: every row attends to every key", ""),
    "biases": (
        "the position bias is not added to the scores",
        "every pair of positions gets one of the first biases: the distances are clamped, or have the wrong sign",
    ),
    "heads": ("", "the position bias of the first head is added to the scores of all heads"),
}


def positions(run: AuditedRun) -> Iterator[Result]:
    """Queries and keys are rotated as the configuration of the layer says, and as in other layers, and values are not;
    outputs depend on the tables of positions, rotations, slopes and biases, and on masks where nothing else hides keys.

    Tables are judged by their names (`wpe`, `pos_embed`, `inv_freq`, `slopes` and alike), each with the others of its
    module. Cannot see angles that all layers share and no configuration declares, their base in 16 bits, nor numbers of
    a table that are wrong but read.
    """
    answers = [answer for audited in run.calls for answer in _rotation(audited)]
    answers += [_table(each) for each in run.unread if each.kind in TABLES and _is_needed(run, each)]
    measured = "q and k of {} are rotated alike, or as the configuration says; the outputs depend on every table"
    yield from concluded(
        "positions", answers, measured, "no q and k are known to be products with weights of the model"
    )


def _is_needed(run: AuditedRun, each: Unread) -> bool:
    """Whether such a table has to be read: slopes may be in a bias, some layers have no rotary positions, and some
    calls are masked otherwise.
    """
    kind, owner = each.kind, each.name.rpartition(".")[0]
    if kind == "masks":
        own = [audited for audited in run.calls if audited.call.name.startswith(owner) or not owner]
        whole = [audited.call.allowed(heads=0).mean() * audited.call.notes.get("windows", 1) for audited in own]
        return (
            1 in whole
            and all(audited.call.shape[2] > 1 for audited in own)
            and not any(audited.configured for audited in own)
        )
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
    )


def _rotation(audited: AuditedCall) -> Iterator[Finding | bool]:
    """How the queries and keys of a call are rotated."""
    q, k = (_turned(audited, name) for name in "qk")
    if q is None or k is None:
        return
    if NOT not in (q.words, k.words) and audited.sources.v and audited.sources.v.turned:
        yield audited.finding(
            "positions",
            "warning",
            "next to the product of their module the values are turned, row by row (threshold: 0)",
            "values are rotated, as queries and keys are: outputs then depend on positions, not on distances",
            "rotate queries and keys only",
        )
    words = q.words, k.words
    cause: str | None
    if "apart" in words:
        cause = "the angles depend on the head instead of the position: rotary positions along the wrong axis"
    elif words == (NOT, NOT):
        cause = _unlike_others(audited)
    elif NOT in words:
        still, others = ("keys", "queries") if k.words == NOT else ("queries", "keys")
        cause = f"{still} are not rotated, although {others} are"
    else:
        wrong = next((each for each in words if each not in (RIGHT, ANYHOW)), None)
        cause = _differ(q, k) or (wrong and f"queries and keys are {wrong}")
    yield cause is None or audited.finding(
        "positions",
        "fault",
        f"next to the products of their modules q is {q.words} and k is {k.words} (threshold: a relative difference of "
        f"{TURNED:g})",
        cause,
        "rotate queries and keys by their positions in each layer, with the base, pairs and share of the configuration",
    )


def _differ(q: Rotation, k: Rotation) -> str | None:
    """What differs between the rotations of queries and keys, or between heads; None if nothing is known to."""
    if q.angles is None or k.angles is None:
        return None
    for name, each in (("queries", q), ("keys", k)):
        if (np.ptp(each.angles, axis=0) > ANGLE).any():
            return f"the heads of the {name} are not rotated alike: some are not rotated, or by other angles"
    if q.pairs != k.pairs:
        return "queries and keys are rotated in different pairs of components: halves and neighbors"
    if not (np.abs(q.angles[0] - k.angles[0]) > ANGLE).any():
        return None
    other = (np.abs(q.angles[0] + k.angles[0]) > ANGLE).any()
    return f"keys are rotated {'by other angles than queries' if other else 'backwards, in the wrong direction'}"


def _unlike_others(audited: AuditedCall) -> str | None:
    """What is wrong with a layer that is not rotated; None if that may be intended, as it often is with a
    configuration, or where something in the layer has a name for it.
    """
    pattern = path_pattern(audited.call.name)
    alike = [other for other in audited.of.calls if path_pattern(other.call.name) == pattern]
    ways = [found.words for other in alike if (found := _turned(other, "q"))]
    says = any(word in name for name in dir(audited.layer) for word in ("nope", "rope", "rotary"))
    alone = ways.count(NOT) == 1 < len(ways) and not says and not audited.configured
    if RIGHT in ways or alone:
        return "queries and keys of this layer are not rotated, although those of all other layers are"
    return None


class Rotation(NamedTuple):
    """How the queries or keys of a call are rotated, in words; pairs: "halves" or "neighbors" · angles (H, D/2): of the
    pairs, from one position to the next; None where they were not measured
    """

    words: str
    pairs: str = ""
    angles: Any = None


def _turned(audited: AuditedCall, name: str) -> Rotation | None:
    """How the queries or keys of a call are rotated; None where that is unknown."""
    sources = audited.sources
    source = getattr(sources, name, None)
    if source is None or source.split == SPLIT or not audited.call.aligned:
        return None
    config, kind = setting(audited.layer, "config"), _type(audited)
    if source.turned and source.still < 1:  # rotated at position 0, too: the positions may start elsewhere
        return Rotation("apart") if source.still > 0 else None
    known = kind in NEIGHBORS + HALVES
    if source.vectors is None or not source.turned:
        return Rotation(ANYHOW if source.turned else NOT)
    fine = roundoff(audited.call) <= TURNED / 100  # in 16 bits right ones differ, too
    found = _measured(source.part.astype(float), source.vectors) if fine else None
    if not known and not setting(config, "rope_theta"):
        return found or Rotation(ANYHOW)
    if found is None:
        return Rotation(OTHER) if fine and not audited.of.sources.padded else None
    from ...torch.positions import Rotary

    right = Rotary.from_config(config).frequencies.double().numpy()
    angles = np.pad(right, (0, found.angles.shape[1] - len(right)))
    off, other = ((np.abs(found.angles - each) > ANGLE).any() for each in (angles, -angles))
    pairs = "neighbors" if kind in NEIGHBORS else "halves" if known else found.pairs
    words = RIGHT if not off else OTHER if other else "rotated backwards, in the wrong direction"
    return found._replace(words=words if found.pairs == pairs else "rotated in the wrong pairs of components")


def _measured(part: np.ndarray, vectors: np.ndarray) -> Rotation | None:
    """The rotation of vectors (H, n, D) that makes `part` of them: the same angles from each position to the next."""
    D, at = part.shape[2], np.arange(part.shape[1])[:, None]
    known = [(0, D - D % 2), *((start, D // part * 2) for part in (3, 4, 6, 8) for start in (0, D - D // part * 2))]
    for pairs, (start, width) in product(("halves", "neighbors"), known):
        places = start + np.arange(width)
        first, second = places.reshape(2, -1) if pairs == "halves" else places.reshape(-1, 2).T
        one, other = (each[..., first] + 1j * each[..., second] for each in (part, vectors))
        turns = one * other.conj()
        angles = np.angle((turns[:, 1:] * turns[:, :-1].conj()).sum(1))
        turned, made = other * np.exp(1j * at * angles[:, None]), vectors.astype(float)
        made[..., first], made[..., second] = turned.real, turned.imag
        factor = np.linalg.norm(part) / np.linalg.norm(vectors)
        if (np.abs(part - factor * made) <= TURNED * np.abs(part).max(-1, keepdims=True)).all():
            angles[np.abs(other).max(1) < ANGLE * np.abs(other).max()] = np.nan  # too short to have a direction
            return Rotation(ANYHOW, pairs, np.pad(angles, ((0, 0), (0, (D - width) // 2))))
    return None
