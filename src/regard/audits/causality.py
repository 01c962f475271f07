"""What a model declares about itself: whether it looks into the past only."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["BY_CALLER", "causality"]

BY_CALLER = "the caller (causal=)"

# They have a head that writes, and all the same let tokens of the prompt see what follows.
BOTH_WAYS = {
    "xlnet": "it attends in both directions unless perm_mask is given",
    "xlm": "its configuration (causal is False)",
    "flaubert": "its configuration (causal is False)",
    "cpmant": "it attends in both directions within the prompt",
    "paligemma": "it attends in both directions within the prompt",
}


def causality(model, given: bool | None = None) -> tuple[bool | None, str]:
    """(whether outputs may depend on earlier positions only, who says so); None where nobody does."""
    if given is not None:
        return given, BY_CALLER
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        if "decoder_input_ids" in inspect.signature(model.forward).parameters:
            return True, "its kind: the decoder of an encoder–decoder writes"
        return None, "its kind: an encoder–decoder that writes all at once"
    if getattr(config, "is_decoder", False) is True:
        return True, "its configuration (is_decoder)"
    kind = getattr(config, "model_type", "")
    if kind in BOTH_WAYS:
        return (
            (True, "its configuration (causal)")
            if getattr(config, "causal", False) is True
            else (False, BOTH_WAYS[kind])
        )
    if bool(getattr(model, "can_generate", bool)()):
        return True, f"it can generate ({type(model).__name__})"
    flags = {flag for module in _modules(model) if isinstance(flag := getattr(module, "is_causal", None), bool)}
    if flags == {True}:
        return True, "its attention layers (is_causal)"
    if flags == {False}:
        return False, "its attention layers (is_causal is False)"
    return None, "neither the model nor the caller"


def _modules(model) -> Any:
    return model.modules() if hasattr(model, "modules") else ()
