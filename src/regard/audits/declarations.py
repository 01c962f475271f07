"""What a forward declares: which argument is a padding mask and of what, and whether the model is causal."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from .subject import PaddingMask

# Arguments that are padding masks, by name: (value of a real token, value of padding).
PADDING_MASKS: dict[str, tuple[bool | int, bool | int]] = {
    "attention_mask": (1, 0),
    "padding_mask": (True, False),
    "key_padding_mask": (False, True),
    "src_key_padding_mask": (False, True),
    "memory_key_padding_mask": (False, True),
    "tgt_key_padding_mask": (False, True),
}

# What the padding masks of torch.nn are about, and the arguments that have the same positions.
OWNERS = {
    "key_padding_mask": ("key", "value"),
    "src_key_padding_mask": ("src",),
    "memory_key_padding_mask": ("memory", "src"),
    "tgt_key_padding_mask": ("tgt",),
}


def of_transformers(inputs: Mapping[str, Any], parameters: frozenset[str], sequence: str | None):
    """(the padding mask of a transformers model or None, further ones) for these inputs of its forward."""
    mask = None
    source = next((key for key in ("input_ids", "inputs_embeds") if key in inputs), None)
    if source and "attention_mask" in parameters and _is_padding(inputs.get("attention_mask"), inputs[source]):
        mask = PaddingMask("attention_mask", source)
    own = inputs.get("decoder_attention_mask")
    if own is not None and sequence and sequence.startswith("decoder_") and _is_padding(own, inputs[sequence]):
        return mask, (PaddingMask("decoder_attention_mask", sequence),)
    return mask, ()


def of_module(tensors: Mapping[str, Any], arguments: Sequence[str], sequence: str | None):
    """(the padding mask of a torch module or None, further ones) for these inputs, whose names may be positions."""
    if sequence is None:
        return None, ()
    names = {argument(key, arguments): key for key in tensors}
    known = [name for name in PADDING_MASKS if name in names] or [name for name in PADDING_MASKS if name in arguments]
    masks = [mask for name in known if (mask := _mask(name, names, tensors, arguments, sequence)) is not None]
    if not masks:
        return None, ()
    first = masks[0]
    return first, tuple(mask for mask in masks[1:] if mask.name in tensors and mask.name not in first.others)


def is_mask_or_bias(name: str) -> bool:
    """Whether an argument of this name is added to scores or hides some, rather than being attended to."""
    return "mask" in name or "bias" in name


def argument(key: str, arguments: Sequence[str]) -> str:
    """The name of an argument that is given by name or by position."""
    return arguments[int(key)] if key.isdigit() and int(key) < len(arguments) else key


def _mask(
    name: str, names: Mapping[str, str], tensors: Mapping[str, Any], arguments: Sequence[str], sequence: str
) -> PaddingMask | None:
    owners = [names[owner] for owner in OWNERS.get(name, ()) if owner in names]
    given = tensors.get(names.get(name, ""))
    inputs = {
        key: part for key, part in tensors.items() if key == sequence or not is_mask_or_bias(argument(key, arguments))
    }
    of = owners[0] if owners else _owner(given, inputs, sequence, name in OWNERS)
    if of is None or (given is not None and not _is_padding(given, tensors[of])):
        return None
    real, padding = PADDING_MASKS[name]
    added = given is not None and given.is_floating_point() and padding is True  # torch adds such masks to the scores
    others = []
    if name == "src_key_padding_mask" and "memory_key_padding_mask" in arguments:
        others = [names.get("memory_key_padding_mask", "memory_key_padding_mask")]
    own = names.get(name, name)
    return PaddingMask(
        own,
        of,
        0.0 if added else real,
        float("-inf") if added else padding,
        tuple(others),
        frozenset([*owners, own, *others]) if owners else None,
    )


def _owner(given, inputs: Mapping[str, Any], sequence: str, of_keys: bool) -> str | None:
    """The input that a padding mask is about, if no argument has the name of its owner: the one of its length. None
    where that is unknown: a mask that is not given, in a module with inputs of several lengths, or with an image, whose
    axis 1 holds no positions.
    """
    axes = max(3, inputs[sequence].ndim)  # more than these have tables, such as rotary angles
    content = [key for key, part in inputs.items() if key == sequence or 2 < part.ndim <= axes]
    if given is None:
        lengths = {inputs[key].shape[1] for key in content}
        unknown = len(content) > 1 if of_keys else len(lengths) > 1 or inputs[sequence].ndim > 3
        return None if unknown else sequence
    if of_keys:
        content.sort(key=lambda key: key == sequence)  # keys come from the other input
    return next((key for key in content if _is_padding(given, inputs[key])), None)


def _is_padding(given, main) -> bool:
    """Whether an argument, if given, has one entry for each position."""
    return given is None or given.shape == main.shape[:2]


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
    known = flags(model, "is_causal")
    if known == {True}:
        return True, "its attention layers (is_causal)"
    if known == {False}:
        return False, "its attention layers (is_causal is False)"
    return None, "neither the model nor the caller declares it"


def flags(model: Any, name: str) -> set[bool]:
    """The values of a switch on the modules of a model."""
    values = (getattr(module, name, None) for module in getattr(model, "modules", list)())
    return {value for value in values if isinstance(value, bool)}
