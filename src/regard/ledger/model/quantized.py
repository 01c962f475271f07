"""Quantized weights: bytes of the formats that a configuration can name, from their layouts.

A format stores each weight in some bits, and scales (and zeros) for each group of weights. The embedding, the output
layer, norms and biases stay as they are.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from ...common.files.tensors import header_of, opened
from ..counting.modules import is_experts, matrices


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
    method = str(fields.get("quant_method", "") or "").lower()
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


def weight_bytes(model: nn.Module, form: Format) -> int:
    """Bytes of all parameters, each once."""
    total, seen = 0.0, set()
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    for path, module in model.named_modules():
        stored = list(_stored(path, module, form)) if module is not head else []
        for weight in (each for each in module._parameters.values() if each is not None):
            if id(weight) in seen:
                continue
            seen.add(id(weight))
            if any(weight is each for each in stored):
                copies = weight.shape[0] if weight.ndim == 3 else 1
                total += copies * form.bytes_of(*weight.shape[-2:])
            else:
                total += weight.numel() * weight.element_size()
    return round(total)


def _stored(path: str, module: nn.Module, form: Format) -> Iterator[nn.Parameter | Any]:
    """The matrices of a module that the format covers."""
    if any(part and (part in path or re.fullmatch(part, path)) for part in form.kept):
        return
    if form.linear and isinstance(module, nn.Linear):
        yield module.weight
    elif form.experts and is_experts(module):
        yield from (each for each in matrices(module) if each.ndim == 3)


class Held(NamedTuple):
    """Numbers and bytes of all tensors in a folder."""

    numbers: int
    bytes: int


def held_in(folder: Path) -> Held | None:
    """What the safetensors files of a folder hold; None without any. Raises Refused for a damaged file."""
    tensors: dict[str, tuple[int, int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        handle = opened(file)
        try:
            header, _ = header_of(handle, file.name, "cost")
        finally:
            os.close(handle)
        for name, entry in header.items():
            if entry["dtype"] == "I64":
                continue  # positions, which old files hold beside the weights
            begin, end = entry["data_offsets"]
            tensors[name] = (math.prod(entry["shape"]), end - begin)
    if not tensors:
        return None
    return Held(*(sum(each[at] for each in tensors.values()) for at in (0, 1)))
