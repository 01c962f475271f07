"""Memory: what a model holds in one phase: weights, gradients, optimizer, activations, caches.

Weights can be quantized: their bytes follow from the layout of the format that the configuration names. A format stores
each weight in some bits, and scales (and zeros) for each group of weights. The embedding, the output layer, norms and
biases stay as they are.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from ..common.files.tensors import header_of, opened
from .build import Subject
from .counting.modules import is_experts, matrices
from .counting.pairs import band
from .counting.passes import Pass
from .result import Columns, Memory
from .stand_ins import AttentionCall


def memory(made: Subject, found: Pass, phase: str) -> Memory:
    """Bytes of a pass."""
    weights, form = list(made.model.parameters()), quantization(made.config)
    size = Columns(
        sum(each.nbytes for each in weights),
        sum({each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in weights}.values()),
    )
    if isinstance(form, Format):
        size = Columns(_quantized(made.model, form))
    if phase != "train":
        keys, states = found.cache
        formula = None if keys and not found.attention else sum(_cached(made, found)) if keys else 0
        working = max((each.read - each.weight_bytes + each.written for each in found.forward), default=0)
        return Memory(size, kv_cache=Columns(formula, keys), states=states, working=working)
    trained = [each for each in weights if each.requires_grad]
    optimizer = sum(each.numel() * (8 + 4 * (each.element_size() == 2)) for each in trained)
    activations = Columns(None, sum(found.saved.values()))
    return Memory(size, sum(each.nbytes for each in trained), optimizer, activations, _checkpointed(found))


def _checkpointed(found: Pass) -> int | None:
    """Inputs of all layers, what is saved outside of them, and what the largest layer saves while it runs again."""
    if not found.layer_inputs:
        return None
    within: dict[str, int] = defaultdict(int)
    outside = sum(found.layer_inputs.values())
    for path, saved in found.saved.items():
        layer = next((each for each in found.layer_inputs if path == each or path.startswith(f"{each}.")), None)
        if layer is None:
            outside += saved
        else:
            within[layer] += saved
    return outside + max(within.values(), default=0)


def _cached(made: Subject, found: Pass) -> Iterator[int]:
    """Bytes of the keys and values that each call's layer keeps: (D + E) · G · tokens of each sequence; a window w
    keeps the w − 1 that the next token sees, in a cache whose layers have windows.

    With latent attention, a layer keeps one row of kv_lora_rank + qk_rope_head_dim numbers for each token, and with an
    indexer one more. What an encoder computes is not kept, nor are keys that another layer has.
    """
    text = made.text
    window = None if getattr(text, "layer_types", None) else getattr(text, "sliding_window", None)
    own = vars(text) if text is not None else {}  # a field that differs between layers cannot be read as an attribute
    calls = [(path, made.model.get_submodule(path), call) for path, call in found.attention]
    by_layer = any(hasattr(module, "kv_lora_rank") for _, module, _ in calls)
    numbered = any(hasattr(module, "layer_idx") for _, module, _ in calls)
    for path, module, call in calls:
        encodes = getattr(made.config, "is_encoder_decoder", False) and "encoder" in path and "decoder" not in path
        if encodes or getattr(module, "is_kv_shared_layer", False):
            continue
        if numbered and not hasattr(module, "layer_idx"):
            continue  # a cache keeps keys by the number of their layer
        heads = getattr(module, "num_key_value_heads", 0)
        repeated = isinstance(heads, int) and heads > 0 and call.key_heads % heads == 0  # after they were kept
        numbers = (heads if repeated else call.key_heads) * (call.depth + call.value_depth)
        fields = vars(module) if by_layer else own
        if fields.get("kv_lora_rank") and fields.get("qk_rope_head_dim"):
            numbers = fields["kv_lora_rank"] + fields["qk_rope_head_dim"]
        numbers += getattr(getattr(module, "indexer", None), "head_dim", 0)  # its keys, which all heads share
        tokens = call.keys
        if found.slides:  # transformers' cache reads the window of the configuration
            tokens = min(kept(call), window - 1) if isinstance(window, int) else kept(call)
        yield call.batch * numbers * tokens * call.itemsize


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


class Format(NamedTuple):
    """How a configuration stores weights. name: for messages · bytes_of: of a matrix (rows, columns) · experts, linear:
    what it covers · kept: modules that it leaves out.
    """

    name: str
    bytes_of: Callable[[int, int], float]
    linear: bool
    experts: bool
    kept: tuple[str, ...]


def quantization(config: Any) -> Format | str | None:
    """The format of a configuration; its name alone if the layout is unknown, None if weights are not quantized."""
    found = getattr(config, "quantization_config", None)
    if not found:
        return None
    fields = found if isinstance(found, dict) else found.to_dict()
    method = str(fields.get("quant_method") or "").lower()
    kept = fields.get("modules_to_not_convert") or fields.get("llm_int8_skip_modules") or fields.get("ignore") or ()
    kept = tuple(each.removeprefix("re:") for each in kept)
    group = fields.get("group_size") or 128
    bits = fields.get("bits") or fields.get("w_bit") or 4
    match method:
        case "bitsandbytes" if fields.get("load_in_4bit") or fields.get("_load_in_4bit"):
            scale = 1 + 4 / 256 if fields.get("bnb_4bit_use_double_quant") else 4
            return Format("bitsandbytes, 4 bits", lambda a, b: a * b * (0.5 + scale / 64), True, False, kept)
        case "bitsandbytes":
            return Format("bitsandbytes, 8 bits", lambda a, b: a * b + 4 * a, True, False, kept)
        case "gptq" | "awq" if isinstance(bits, int):
            index = 4 if method == "gptq" else 0  # the group of each column

            def packed(a: int, b: int) -> float:
                groups = -(-b // group) if group > 0 else 1
                return a * b * bits / 8 + a * groups * (2 + bits / 8) + index * b

            return Format(f"{method}, {bits} bits, groups of {group}", packed, True, False, kept)
        case "fp8" | "fbgemm_fp8":
            block = fields.get("weight_block_size")
            tall, wide = block if block else (1, 10**9)
            return Format("fp8", lambda a, b: a * b + 4 * -(-a // tall) * -(-b // wide), True, True, kept)
        case "mxfp4":
            return Format("mxfp4", lambda a, b: a * b * (0.5 + 1 / 32), False, True, kept)
    return method or "unknown"


def _quantized(model: nn.Module, form: Format) -> int:
    """Bytes of all parameters, each once."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    modules = [(path, module) for path, module in model.named_modules() if module is not head]
    stored = {id(each) for path, module in modules for each in _stored(path, module, form)}
    total = 0.0
    for weight in model.parameters():
        copies = weight.shape[0] if weight.ndim == 3 else 1
        total += copies * form.bytes_of(*weight.shape[-2:]) if id(weight) in stored else weight.nbytes
    return round(total)


def _stored(path: str, module: nn.Module, form: Format) -> Iterator[nn.Parameter | Any]:
    """The matrices of a module that the format covers."""
    if any(part and (part in path or re.fullmatch(part, path)) for part in form.kept):
        return
    if form.linear and isinstance(module, nn.Linear):
        yield module.weight
    elif form.experts and is_experts(module):
        yield from (each for each in matrices(module) if each.ndim == 3)


def held_in(folder: Path) -> tuple[int, int] | None:
    """Numbers and bytes of the safetensors files of a folder; None without any. Raises Refused for a damaged file."""
    tensors: dict[str, tuple[int, int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        handle = opened(file)
        try:
            header, _ = header_of(handle, file.name, "cost")
        finally:
            os.close(handle)
        for name, entry in header.items():
            if entry["dtype"] != "I64":  # positions, which old files hold beside the weights
                begin, end = entry["data_offsets"]
                tensors[name] = (math.prod(entry["shape"]), end - begin)
    if not tensors:
        return None
    numbers, sizes = zip(*tensors.values(), strict=True)
    return sum(numbers), sum(sizes)
