"""Whether a model declares itself causal: by its class, its configuration, its layers, or the caller's `causal=`."""

from __future__ import annotations

import inspect
from typing import Any

BY_CALLER = "the caller (causal=)"

# Model types that have a generation head but attend in both directions within the prompt, each with the reason.
BIDIRECTIONAL = {
    "xlnet": "it attends in both directions unless perm_mask is given",
    "xlm": "its configuration (causal is False)",
    "flaubert": "its configuration (causal is False)",
    "cpmant": "it attends in both directions within the prompt",
    "paligemma": "it attends in both directions within the prompt",
}


def causality(model: Any, given: bool | None = None) -> tuple[bool | None, str]:
    """(whether the model is causal, or None where that is unknown; what declares it)."""
    if given is not None:
        return given, BY_CALLER
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        if "decoder_input_ids" in inspect.signature(model.forward).parameters:
            return True, "its type: the decoder of an encoder–decoder model is autoregressive"
        return None, "its type: an encoder–decoder model with a non-autoregressive decoder"
    if getattr(config, "is_decoder", False) is True:
        return True, "its configuration (is_decoder)"
    model_type = getattr(config, "model_type", "")
    if model_type in BIDIRECTIONAL:
        return (
            (True, "its configuration (causal)")
            if getattr(config, "causal", False) is True
            else (False, BIDIRECTIONAL[model_type])
        )
    if bool(getattr(model, "can_generate", bool)()):
        return True, f"its class, which can generate ({type(model).__name__})"
    flags = {flag for module in _modules(model) if isinstance(flag := getattr(module, "is_causal", None), bool)}
    if flags == {True}:
        return True, "its attention layers (is_causal)"
    if flags == {False}:
        return False, "its attention layers (is_causal is False)"
    return None, "neither the model nor the caller declares it"


def _modules(model: Any) -> Any:
    return model.modules() if hasattr(model, "modules") else ()
