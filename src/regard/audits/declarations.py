"""What a forward declares: which argument is a padding mask and of what, and whether the model is causal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .subject import PaddingMask, modules_of, parameters_of

# Padding masks whose values are documented, by name: (value of a real token, value of padding).
PADDING_MASKS: dict[str, tuple[float, float]] = {
    "attention_mask": (1, 0),
    "key_padding_mask": (False, True),
    "src_key_padding_mask": (False, True),
    "memory_key_padding_mask": (False, True),
    "tgt_key_padding_mask": (False, True),
}

WORDS = ("mask", "pad", "valid", "len")  # in the names of other padding masks

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
    """(the padding mask of a torch module or None, further ones) for these inputs."""
    if sequence is None:
        return None, ()
    known = [name for name in dict.fromkeys([*PADDING_MASKS, *tensors]) if name in tensors and is_mask(name)]
    known = known or [name for name in PADDING_MASKS if name in arguments]
    masks = [mask for name in known if (mask := _mask(name, tensors, arguments, sequence)) is not None]
    if not masks:
        return None, ()
    first = masks[0]
    return first, tuple(mask for mask in masks[1:] if mask.name in tensors and mask.name not in first.others)


def is_mask(name: str) -> bool:
    """Whether an argument of this name may be a padding mask."""
    return any(word in name for word in WORDS)


def is_mask_or_bias(name: str) -> bool:
    """Whether an argument of this name is added to scores or hides some, rather than being attended to."""
    return is_mask(name) or "bias" in name


def of_positions(name: str, given, length: int) -> tuple[Any, Callable[[Any], Any]] | None:
    """(a padding mask with one entry for each position, what makes of it the argument that the model takes), for a mask
    (1, 1, …, positions) and for the number of real tokens (1,); None for other arguments.
    """
    sizes = given.shape[1:-1]
    if given.ndim > 2 and given.numel() == given.shape[-1]:
        return given.reshape(1, -1), lambda mask: mask.reshape(len(mask), *sizes, -1)
    if "len" not in name or given.shape != (1,) or given.is_floating_point() or not 0 < given <= length:
        return None
    return given.new_ones(1, length).cumsum(1) <= given, lambda mask: mask.sum(1).to(given)


def _mask(name: str, tensors: Mapping[str, Any], arguments: Sequence[str], sequence: str) -> PaddingMask | None:
    owners = [owner for owner in OWNERS.get(name, ()) if owner in tensors]
    given = tensors.get(name)
    of = owners[0] if owners else _owner(name, tensors, sequence)
    if of is None or (given is not None and not _is_padding(given, tensors[of])):
        return None
    others = []
    if name == "src_key_padding_mask" and "memory_key_padding_mask" in arguments:
        others = ["memory_key_padding_mask"]
    real, padding = PADDING_MASKS.get(name, (1, 0))
    if given is not None and given.is_floating_point() and bool((given <= 0).all()):  # it is added to the scores
        import torch

        real, padding = 0.0, float(given.min()) or torch.finfo(given.dtype).min
    elif name not in PADDING_MASKS and given is not None and given.double().mean() < 0.5:  # most tokens are real
        real, padding = 0, 1
    return PaddingMask(name, of, real, padding, tuple(others), frozenset([*owners, name, *others]) if owners else None)


def _owner(name: str, tensors: Mapping[str, Any], sequence: str) -> str | None:
    """The input that a padding mask is about, if no argument has the name of its owner: the one of its length. None
    where that is unknown: a mask that is not given, in a module with inputs of several lengths, or with an image, whose
    axis 1 holds no positions.
    """
    axes = range(3, max(4, tensors[sequence].ndim + 1))  # more than these have tables, such as rotary angles
    alike = [key for key in tensors if key.split("_")[0] == name.split("_")[0]]  # src of src_mask
    shown = (key for key, part in tensors.items() if part.ndim in axes or key == sequence)
    content = [key for key in dict.fromkeys([*alike, *shown]) if key == sequence or not is_mask_or_bias(key)]
    given, of_keys = tensors.get(name), name in OWNERS
    if given is None:
        lengths = {tensors[key].shape[1] for key in content}
        unknown = len(content) > 1 if of_keys else len(lengths) > 1 or tensors[sequence].ndim > 3
        return None if unknown else sequence
    if of_keys:
        content.sort(key=lambda key: key == sequence)  # keys come from the other input
    return next((key for key in content if _is_padding(given, tensors[key])), None)


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
        if "decoder_input_ids" in parameters_of(model):
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
    values = (getattr(module, name, None) for module in modules_of(model))
    return {value for value in values if isinstance(value, bool)}
