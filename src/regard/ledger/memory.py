"""Memory: what a model holds in one phase: weights, gradients, optimizer, activations, caches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch import nn

from .counting.pairs import band
from .counting.passes import Pass
from .result import Columns, Memory
from .stand_ins.attention import AttentionCall


def memory(model: nn.Module, config: Any, found: Pass, phase: str) -> Memory:
    """Bytes of a pass."""
    weights = {id(each): each for each in model.parameters()}.values()
    size = Columns(
        sum(each.numel() * each.element_size() for each in weights),
        sum({each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in weights}.values()),
    )
    if phase != "train":
        keys, states = found.cache
        total = sum(size for _, size in cached(model, config, found))
        formula = None if keys and not found.attention else total if keys else 0
        working = max((each.read - each.weight_bytes + each.written for each in found.forward), default=0)
        return Memory(size, kv_cache=Columns(formula, keys), states=states, working=working)
    trained = [each for each in weights if each.requires_grad]
    gradients = sum(each.numel() * each.element_size() for each in trained)
    optimizer = sum(each.numel() * (8 + 4 * (each.element_size() == 2)) for each in trained)
    activations = Columns(None, sum(found.saved.values()))
    return Memory(size, gradients, optimizer, activations, _checkpointed(found))


def _checkpointed(found: Pass) -> int | None:
    """Inputs of all layers, what is saved outside of them, and what the largest layer saves while it runs again."""
    if not found.layer_inputs:
        return None
    outside, within = by_layer(found)
    return outside + max(within.values(), default=0)


def by_layer(found: Pass) -> tuple[int, dict[str, int]]:
    """Saved bytes with checkpoints: (inputs of all layers and what is outside of them, what each layer saves)."""
    within: dict[str, int] = defaultdict(int)
    outside = sum(found.layer_inputs.values())
    for path, saved in found.saved.items():
        layer = next((each for each in found.layer_inputs if path == each or path.startswith(f"{each}.")), None)
        if layer is None:
            outside += saved
        else:
            within[layer] += saved
    return outside, within


def cached(model: nn.Module, config: Any, found: Pass) -> Iterator[tuple[str, int]]:
    """Bytes of the keys and values that each call's layer keeps: (D + E) · G · tokens of each sequence; a window w
    keeps the w − 1 that the next token sees.

    With latent attention, a layer keeps one row of kv_lora_rank + qk_rope_head_dim numbers for each token.
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    window = None if getattr(text, "layer_types", None) else getattr(text, "sliding_window", None)
    own = vars(text) if text is not None else {}  # a field that differs between layers cannot be read as an attribute
    latent, rotary = own.get("kv_lora_rank"), own.get("qk_rope_head_dim")
    numbered = any(hasattr(model.get_submodule(path), "layer_idx") for path, _ in found.attention)
    for path, call in found.attention:
        if not _keeps(model, config, path) or (numbered and not hasattr(model.get_submodule(path), "layer_idx")):
            continue  # a cache keeps keys by the number of their layer
        heads = getattr(model.get_submodule(path), "num_key_value_heads", 0)
        repeated = isinstance(heads, int) and heads > 0 and call.key_heads % heads == 0  # after they were kept
        numbers = (heads if repeated else call.key_heads) * (call.depth + call.value_depth)
        if latent and rotary:
            numbers = latent + rotary
        most = window - 1 if isinstance(window, int) else call.keys  # transformers' cache reads the configuration
        yield path, call.batch * numbers * min(kept(call), most) * call.itemsize


def _keeps(model: nn.Module, config: Any, path: str) -> bool:
    """Whether the layer's keys are kept: not those of an encoder, and not those that another layer has."""
    if getattr(model.get_submodule(path), "is_kv_shared_layer", False):
        return False
    return not getattr(config, "is_encoder_decoder", False) or "encoder" not in path or "decoder" in path


def kept(call: AttentionCall) -> int:
    """Keys that the cache keeps for the next token."""
    if call.cached is not None:
        return call.cached
    rule = band(call.rule)
    if rule is not None and rule.low is not None:
        return min(call.keys, -rule.low)
    if rule is not None and rule.chunk:
        return min(call.keys, rule.chunk - 1)
    return call.keys if call.window is None else min(call.keys, call.window - 1)
