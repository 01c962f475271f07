"""Adapter: the conventions that a function declares. What is not declared is that of the laws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...common.dtypes import FLOATS
from ...laws.call import Conventions

# What a parameter of the function can be.
ROLES = (
    *("q", "k", "v", "mask", "bias", "causal", "window", "window_before", "window_after", "lengths", "start"),
    *("scale", "softcap", "sinks", "dropout", "seed", "return_lse", "return_weights", "heads", "key_heads"),
    *("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
)

# The values of each convention; the first is that of the laws.
CHOICES = {
    "arrays": ("numpy", "torch", "jax"),
    "layout": ("BHSD", "BSHD", "SBHD", "BSD", "THD", "HSD", "SD"),
    "mask": ("true-attends", "true-hides", "additive"),
    "mask_shapes": ("BHQK", "B1QK", "1HQK", "11QK", "B11K", "BQK", "HQK", "QK", "BK", "K"),
    "causal": ("bottom-right", "top-left"),
    "window": ("self-included", "self-excluded", "both-sides", "left-right", "left-right-self-included"),
    "softcap": ("before-bias", "after-bias"),
    "groups": ("repeat-interleave", "tile", "none"),
    "lse": ("natural", "base-2", "natural-unscaled"),
    "lse_layout": ("BHQ", "BQH", "BHQ1", "BQH1", "HT"),
    "empty_row": ("zero", "nan", "mean", "any"),
    "empty_lse": ("-inf", "inf", "any"),
    "gradients": ("none", "torch", "jax"),
}


@dataclass(frozen=True, kw_only=True)
class Adapter(Conventions):
    """The conventions of one function.

    name: of the implementation, with its version · arrays: what it takes · layout: the axes of q, k, v and the output,
    B batch, S rows, H heads, D depth; BSD has heads merged into the last axis, THD has rows of all batch entries in
    one axis · parameters: the name of the parameter for each role · fixed: arguments that every call passes · always:
    "causal" if every call is causal, "alibi" if every call adds ALiBi to its scores · heads: the number of heads, if
    the layout is BSD and no parameter says it · mask: what True means, or "additive" · mask_shapes: the shapes in
    which masks and biases are accepted · causal: how causal masks, windows and starts are aligned if Q ≠ K · window:
    what the number counts: keys before a row with or without itself, keys on both sides, or a pair (before, after)
    with or without itself · scale: None for 1/√D, else the fixed number · softcap: whether it is applied before or
    after the bias · groups: how key heads are shared · lse, lse_layout: its base, or that it is of q·k without the
    scale over the keys whose score is not −∞, and its axes · empty_row, empty_lse: the results of a fully masked row;
    "any" if nothing is promised · dtypes: those that are accepted · gradients: how they are computed · returns: what is
    returned: "out", a list of roles ("out", "lse", "weights", None for the rest), or a mapping from roles to keys ·
    expected: cases or laws that are known to fail, each with a reason and a link · confirmed: False for an adapter that
    was measured and not yet read by its user; or the fields that the user has confirmed · declared: the fields that a
    file or decorator wrote, even if their values are the usual ones
    """

    name: str = ""
    arrays: str = "numpy"
    layout: str = "BHSD"
    parameters: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    heads: int | None = None
    mask: str = "true-attends"
    mask_shapes: tuple[str, ...] = ("BHQK",)
    window: str = "self-included"
    lse_layout: str = "BHQ"
    dtypes: tuple[str, ...] = ("float32",)
    gradients: str = "none"
    returns: str | tuple[str | None, ...] | Mapping[str, str] = "out"
    expected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    confirmed: bool | tuple[str, ...] = True
    declared: tuple[str, ...] = field(default=(), compare=False)

    @property
    def packed(self) -> bool:
        """Whether the rows of all batch entries are in one axis, so that no key exists beyond the lengths."""
        return self.layout == "THD"

    def declares(self, name: str) -> bool:
        """Whether a field was declared: by a file or decorator, or with another value than the usual one."""
        return name in self.declared or getattr(self, name) != getattr(Adapter(), name)


VERSION = 1
ATTRIBUTE = "__regard_adapter__"  # in which the decorator keeps the adapter of a function
RETURNED = ("out", "lse", "weights")
# What a field with one of its `CHOICES` expects.
CHOSEN = {
    "arrays": "one kind of array",
    "layout": "one layout",
    "mask": "what true means, or additive",
    "causal": "one alignment",
    "window": "one way to count",
    "softcap": "one order",
    "groups": "one order of heads",
    "lse": "one kind of logarithm",
    "lse_layout": "the axes of lse",
    "empty_row": "what such a row gives",
    "empty_lse": "the lse of such a row",
    "gradients": "how they are computed",
}


def _several(values: Iterable[str], words: str, least: int = 1) -> dict[str, Any]:
    kind = {"type": "array", "items": {"enum": list(values)}, "minItems": least, "uniqueItems": True}
    return kind | {"description": words}


def properties() -> dict[str, dict[str, Any]]:
    """The schema of each field; `description` says what it expects."""
    text = {"type": "string"}
    reasons = {
        "type": "object",
        "properties": {"reason": text, "link": text},
        "required": ["reason"],
        "additionalProperties": False,
    }
    returns = [
        {"enum": ["out"]},
        {"type": "array", "items": {"enum": [*RETURNED, None]}, "minItems": 1, "contains": {"const": "out"}},
        {
            "type": "object",
            "propertyNames": {"enum": list(RETURNED)},
            "additionalProperties": text,
            "required": ["out"],
        },
    ]
    return {name: {"enum": list(CHOICES[name]), "description": words} for name, words in CHOSEN.items()} | {
        "name": text | {"description": "a string"},
        "parameters": {
            "type": "object",
            "propertyNames": {"enum": list(ROLES)},
            "additionalProperties": text,
            "description": "an object from roles to the names of parameters",
        },
        "fixed": {"type": "object", "description": "an object from the names of parameters to values"},
        "always": _several(("causal", "alibi"), 'a list of "causal" and "alibi", or []', 0),
        "heads": {"type": ["integer", "null"], "minimum": 1, "description": "a number of heads, or null"},
        "mask_shapes": _several(CHOICES["mask_shapes"], "a list of shapes"),
        "scale": {"type": ["number", "null"], "description": "a finite number, or null for 1/√D"},
        "dtypes": _several(FLOATS, "a list of dtypes"),
        "returns": {
            "anyOf": returns,
            "description": '"out", a list of "out", "lse", "weights" and null, or an object from these to keys; '
            'with "out"',
        },
        "expected": {
            "type": "object",
            "additionalProperties": reasons,
            "description": 'an object from cases or laws to {"reason": …, "link": …}',
        },
        "confirmed": {
            "anyOf": [{"type": "boolean"}, {"type": "array", "items": text, "uniqueItems": True}],
            "description": "true, false or a list of the fields that are confirmed",
        },
    }


def schema() -> dict[str, Any]:
    """The JSON Schema of an adapter file.

    Returns:
        A dict that `json.dumps` accepts.

    Examples:
        >>> from regard.conformance import schema
        >>> schema()["properties"]["causal"]["enum"]
        ['bottom-right', 'top-left']
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The conventions of an attention function",
        "type": "object",
        "properties": {"schema": {"const": VERSION}} | properties(),
        "required": ["schema"],
        "additionalProperties": False,
    }
