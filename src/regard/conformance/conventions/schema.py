"""The JSON Schema of an adapter (draft 2020-12)."""

from __future__ import annotations

import copy
from typing import Any

from ...common.dtypes import FLOATS
from .fields import CHOICES, ROLES

VERSION = 1
DTYPES = tuple(FLOATS)
RETURNED = ("out", "lse", "weights")
ALWAYS = ("causal", "alibi")


def _choice(name: str) -> dict[str, Any]:
    return {"enum": list(CHOICES[name])}


def _several(values: tuple[str, ...], least: int = 1) -> dict[str, Any]:
    return {"type": "array", "items": {"enum": list(values)}, "minItems": least, "uniqueItems": True}


def properties() -> dict[str, dict[str, Any]]:
    """The schema of each field; `description` says what it expects."""
    text = {"type": "string"}
    reasons = {
        "type": "object",
        "properties": {"reason": text, "link": text},
        "required": ["reason"],
        "additionalProperties": False,
    }
    found: dict[str, tuple[dict[str, Any], str]] = {
        "name": (text, "a string"),
        "arrays": (_choice("arrays"), "one kind of array"),
        "layout": (_choice("layout"), "one layout"),
        "parameters": (
            {"type": "object", "propertyNames": {"enum": list(ROLES)}, "additionalProperties": text},
            "an object from roles to the names of parameters",
        ),
        "fixed": ({"type": "object"}, "an object from the names of parameters to values"),
        "always": (_several(ALWAYS, 0), 'a list of "causal" and "alibi", or []'),
        "heads": ({"type": ["integer", "null"], "minimum": 1}, "a number of heads, or null"),
        "mask": (_choice("mask"), "what true means, or additive"),
        "mask_shapes": (_several(CHOICES["mask_shapes"]), "a list of shapes"),
        "causal": (_choice("causal"), "one alignment"),
        "window": (_choice("window"), "one way to count"),
        "scale": ({"type": ["number", "null"]}, "a finite number, or null for 1/√D"),
        "softcap": (_choice("softcap"), "one order"),
        "groups": (_choice("groups"), "one order of heads"),
        "lse": (_choice("lse"), "one kind of logarithm"),
        "lse_layout": (_choice("lse_layout"), "the axes of lse"),
        "empty_row": (_choice("empty_row"), "what such a row gives"),
        "empty_lse": (_choice("empty_lse"), "the lse of such a row"),
        "dtypes": (_several(DTYPES), "a list of dtypes"),
        "gradients": (_choice("gradients"), "how they are computed"),
        "returns": (
            {
                "anyOf": [
                    {"enum": ["out"]},
                    {
                        "type": "array",
                        "items": {"enum": [*RETURNED, None]},
                        "minItems": 1,
                        "contains": {"const": "out"},
                    },
                    {
                        "type": "object",
                        "propertyNames": {"enum": list(RETURNED)},
                        "additionalProperties": text,
                        "required": ["out"],
                    },
                ]
            },
            '"out", a list of "out", "lse", "weights" and null, or an object from these to keys; with "out"',
        ),
        "expected": (
            {"type": "object", "additionalProperties": reasons},
            'an object from cases or laws to {"reason": …, "link": …}',
        ),
        "confirmed": (
            {"anyOf": [{"type": "boolean"}, {"type": "array", "items": text, "uniqueItems": True}]},
            "true, false or a list of the fields that are confirmed",
        ),
    }
    return {name: {**kind, "description": words} for name, (kind, words) in copy.deepcopy(found).items()}


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
