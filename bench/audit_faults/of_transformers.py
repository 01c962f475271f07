"""Faults that are planted into tiny random models of transformers, by changing their code and attributes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from regard.torch.hf.tiny_models import tiny_model

ROTARY = ("llama", "mistral", "gemma2", "qwen3", "gpt_oss", "phi", "cohere")
INTERFACE = (*ROTARY, "gpt_neox", "gpt2", "bert", "t5", "vit", "opt")
SCALE, MASK, POSITIONS = ("scale",), ("mask", "causal"), ("position", "rota")

# Faults by name: words of the causes that are right, and the hosts that can have the fault.
FAULTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "scale missing": (SCALE, tuple(name for name in INTERFACE if name != "t5")),
    "scale of the width": (SCALE, INTERFACE),
    "scale declared twice": (SCALE, (*INTERFACE, "bloom")),
    "scale of one layer": (SCALE, INTERFACE),
    "rotary base": (("base", "frequenc"), ROTARY),
    "rotary of queries alone": (("keys are not rotated",), ROTARY),
    "rotary pairs": (("pair",), ROTARY),
    "rotary of one layer missing": (("not rotated",), ROTARY),
    "positions not added": (POSITIONS, ("gpt2", "bert", "opt", "vit")),
    "output projection skipped": (("projection", "never read"), ("llama", "bert", "vit", "gpt_neox", "qwen3", "opt")),
    "groups tiled": (("repeat", "tile"), ("mistral", "gemma2", "gpt_oss")),
    "heads merged in the wrong order": (("transpose", "merged", "reshape"), INTERFACE),
    "keys as values": (("values",), ("gpt2", "bert", "vit", "opt", "phi", "t5")),
    "softcap dropped": (("softcap", "argument"), ("gemma2",)),
    "sinks dropped": (("sink", "argument"), ("gpt_oss",)),
    "window dropped": (("window",), ("mistral", "gemma2", "gpt_oss")),
    "no causal mask": (MASK, ("llama", "qwen3", "gpt2", "phi", "opt")),
    "padding ignored": (("attention_mask", "padding"), ("llama", "gemma2", "gpt2", "bert", "opt", "gpt_neox")),
    "slopes doubled": (("slope",), ("bloom",)),
    "bias of upper layers missing": (("bias",), ("t5",)),
    # held back
    "scale doubled": (SCALE, INTERFACE),
    "scale inverted": (SCALE, INTERFACE),
    "rotary of keys alone": (("queries are not rotated",), ROTARY),
    "rotary backwards": (("direction", "backward"), ROTARY),
    "rotary of half": (("share", "depth", "part"), ("llama", "mistral", "qwen3")),
    "norm of queries skipped": (("norm",), ("qwen3",)),
    "window one longer": (("window",), ("mistral", "gemma2", "gpt_oss")),
    "windows on the wrong layers": (("window",), ("gemma2", "gpt_oss")),
    "mask sees the next token": (MASK, ("llama", "qwen3", "gpt2", "gemma2")),
    "slopes of the wrong heads": (("slope",), ("bloom",)),
    "values of the next head": (("head", "values"), INTERFACE),
}
HELD_BACK = list(FAULTS)[20:]
HOSTS = ["llama", "gpt2", "bert", "gemma2", "t5", "gpt_neox", "qwen3", "bloom", "mistral"]
HOSTS_HELD_BACK = ["vit", "phi", "opt", "cohere", "gpt_oss"]


def fits(fault: str, host: str) -> bool:
    """Whether a host can have a fault."""
    return host in FAULTS[fault][1]


@contextlib.contextmanager
def host(name: str, fault: str | None = None) -> Iterator[tuple[Any, dict[str, Any]]]:
    """(a model, healthy or with a fault; the arguments of `audit`). SDPA and eager attention have the same fault."""
    model = tiny_model(name)
    with contextlib.ExitStack() as stack:
        if fault is not None:
            for patch in planted(name, model, fault):
                stack.enter_context(patch)
        yield model, {}


def planted(name: str, model: Any, fault: str) -> Iterator[Any]:
    """The changes that are this fault."""
    layers = [part for part in model.modules() if _is_attention(part)]
    code = sys.modules[type(layers[0]).__module__]
    if fault in CALLS:
        yield _interface(code, CALLS[fault], layers)
    elif fault == "scale declared twice":
        for layer in layers:
            attribute = "inv_norm_factor" if name == "bloom" else "scaling" if hasattr(layer, "scaling") else "scale"
            yield mock.patch.object(layer, attribute, getattr(layer, attribute) * 8**-0.5)
    elif fault == "rotary base":
        for part in model.modules():
            for buffer in [key for key, _ in part.named_buffers(recurse=False) if key.endswith("inv_freq")]:
                setattr(part, buffer, getattr(part, buffer) ** 0.7)
    elif fault in ROTATIONS:
        yield mock.patch.object(code, "apply_rotary_pos_emb", _rotation(code, ROTATIONS[fault]))
    elif fault == "positions not added":
        for part in model.modules():
            for key in ("wpe", "position_embeddings", "embed_positions"):
                table = getattr(part, key, None)
                if isinstance(table, torch.nn.Module):
                    yield mock.patch.object(table, "forward", _zero(table.forward))
                elif isinstance(table, torch.Tensor):
                    table.data = table.data * 0
    elif fault == "output projection skipped":
        for layer in model.modules():
            for key in ("o_proj", "out_proj", "dense"):
                part = getattr(layer, key, None)
                inside = "ttention" in type(layer).__name__ or type(layer).__name__ == "BertSelfOutput"
                if inside and isinstance(part, torch.nn.Linear) and part.in_features == part.out_features:
                    yield mock.patch.dict(vars(layer), {key: lambda x: x})  # found before the module of this name
    elif fault == "norm of queries skipped":
        for layer in layers:
            yield mock.patch.object(layer.q_norm, "forward", lambda x: x)
    elif fault in MASKS:
        for key in ("create_causal_mask", "create_sliding_window_causal_mask", "create_bidirectional_mask"):
            if hasattr(code, key):
                yield mock.patch.object(code, key, MASKS[fault](code, key))
    elif fault.startswith("slopes"):
        right = code._get_alibi_slopes
        wrong = (lambda n, d: 2 * right(n, d)) if fault == "slopes doubled" else (lambda n, d: right(n, d).flip(0))
        yield mock.patch.object(code, "_get_alibi_slopes", wrong)
    else:
        raise ValueError(fault)


def _is_attention(part: Any) -> bool:
    return type(part).__name__.endswith("Attention") and not any(map(_is_attention, part.children()))


def _interface(code: Any, change: Callable[..., dict], layers: list[Any]) -> Any:
    """Changes what is given to the attention function of a model, whichever it is."""
    real = code.ALL_ATTENTION_FUNCTIONS

    def get_interface(name, default):
        function = real.get_interface(name, default)

        def changed(module, q, k, v, mask=None, **more):
            given = {"q": q, "k": k, "v": v, "mask": mask, **more}
            after = change(given, module, layers)
            finish = after.pop("finish", lambda out: out)
            groups = after.pop("groups", None)
            used = default if after.pop("plain", False) else function
            patch = mock.patch.object(module, "num_key_value_groups", groups) if groups else contextlib.nullcontext()
            with patch:
                out, weights = used(module, after.pop("q"), after.pop("k"), after.pop("v"), after.pop("mask"), **after)
            return finish(out), weights

        return changed

    return mock.patch.object(code, "ALL_ATTENTION_FUNCTIONS", SimpleNamespace(get_interface=get_interface))


def _scaled(by: Callable[[float, int, int], float], first: int = 0) -> Callable[..., dict]:
    def change(given, module, layers):
        scale, depth = given.get("scaling"), given["q"].shape[-1]
        right = depth**-0.5 if scale is None else scale
        if module in layers[first:] and not (first and module is layers[0]):
            given["scaling"] = by(right, depth, depth * given["q"].shape[1])
        return given

    return change


def _tiled(given, module, layers):
    count = given["q"].shape[1] // given["k"].shape[1]
    return given | {"k": given["k"].repeat(1, count, 1, 1), "v": given["v"].repeat(1, count, 1, 1), "groups": 1}


def _merged(given, module, layers):
    return given | {"finish": lambda out: out.transpose(1, 2).reshape(out.shape)}


def _without_bias(given, module, layers):
    above = not module.has_relative_attention_bias
    return given | ({"position_bias": torch.zeros_like(given["position_bias"])} if above else {})


def _without_sinks(given, module, layers):
    return given | {"s_aux": torch.full_like(module.sinks, -1e9), "finish": lambda out: out}


# What is changed in a call of the attention function.
CALLS: dict[str, Callable[..., dict]] = {
    "scale missing": _scaled(lambda right, depth, width: 1.0),
    "scale of the width": _scaled(lambda right, depth, width: width**-0.5),
    "scale of one layer": _scaled(lambda right, depth, width: right * 1.5, 1),
    "scale doubled": _scaled(lambda right, depth, width: 2 * right),
    "scale inverted": _scaled(lambda right, depth, width: depth**0.5),
    "groups tiled": _tiled,
    "heads merged in the wrong order": _merged,
    "keys as values": lambda given, module, layers: given | {"v": given["k"]},
    "softcap dropped": lambda given, module, layers: given | {"softcap": None},
    "sinks dropped": _without_sinks,
    "bias of upper layers missing": _without_bias,
    "values of the next head": lambda given, module, layers: given | {"v": given["v"].roll(-1, 1)},
}


def _apart(right: Any, which: int) -> Callable[..., Any]:
    def rotate(q, k, *more, **named):
        turned = right(q, k, *more, **named)
        return (turned[0], k) if which == 0 else (q, turned[1])

    return rotate


def _backwards(right: Any, code: Any) -> Callable[..., Any]:
    return lambda q, k, cos, sin, *more, **named: right(q, k, cos, -sin, *more, **named)


def _other_pairs(right: Any, code: Any) -> Callable[..., Any]:
    def rotate(q, k, cos, sin, *more, **named):
        turned = cos.shape[-1]
        at = torch.cat([torch.arange(0, turned, 2), torch.arange(1, turned, 2), torch.arange(turned, q.shape[-1])])
        back = at.argsort()
        return tuple(part[..., back] for part in right(q[..., at], k[..., at], cos, sin, *more, **named))

    return rotate


def _upper_layer(right: Any, code: Any) -> Callable[..., Any]:
    calls: list[None] = []

    def rotate(q, k, *more, **named):
        calls.append(None)
        return right(q, k, *more, **named) if len(calls) % 2 else (q, k)

    return rotate


def _half(right: Any, code: Any) -> Callable[..., Any]:
    def rotate(q, k, cos, sin, *more, **named):
        half = q.shape[-1] // 2
        cut = [torch.cat([part[..., : half // 2], part[..., : half // 2]], -1) for part in (cos, sin)]
        turned = right(q[..., :half], k[..., :half], *cut, *more, **named)
        return tuple(torch.cat([part, old[..., half:]], -1) for part, old in zip(turned, (q, k)))

    return rotate


# What is changed in the rotation of queries and keys.
ROTATIONS: dict[str, Callable[..., Any]] = {
    "rotary of queries alone": lambda right, code: _apart(right, 0),
    "rotary of keys alone": lambda right, code: _apart(right, 1),
    "rotary pairs": _other_pairs,
    "rotary of one layer missing": _upper_layer,
    "rotary backwards": _backwards,
    "rotary of half": _half,
}


def _rotation(code: Any, change: Callable[..., Any]) -> Callable[..., Any]:
    return change(code.apply_rotary_pos_emb, code)


def _zero(forward: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **named: 0 * forward(*args, **named)


def _config(config: Any, **changes: Any) -> Any:
    import copy

    made = copy.copy(config)
    for key, value in changes.items():
        setattr(made, key, value)
    return made


def _no_window(code: Any, key: str) -> Callable[..., Any]:
    return code.create_causal_mask


def _longer(code: Any, key: str) -> Callable[..., Any]:
    right = getattr(code, key)

    def create(config, *args, **named):
        window = getattr(config, "sliding_window", None)
        return right(config if window is None else _config(config, sliding_window=window + 1), *args, **named)

    return create


def _exchanged(code: Any, key: str) -> Callable[..., Any]:
    other = {"create_causal_mask": "create_sliding_window_causal_mask"}.get(key, "create_causal_mask")
    return getattr(code, other)


def _unpadded(code: Any, key: str) -> Callable[..., Any]:
    right = getattr(code, key)
    return lambda *args, **named: right(*args, **named | {"attention_mask": None})


def _shown(diagonal: int | None) -> Callable[..., Any]:
    """A mask that hides no key, or only those after the next."""

    def of(code: Any, key: str) -> Callable[..., Any]:
        def create(config, inputs_embeds, *args, **named):
            count = inputs_embeds.shape[1]
            cache = named.get("past_key_values")
            keys = count + (cache.get_seq_length() if cache is not None else 0)
            seen = torch.ones(1, 1, count, keys)
            seen = seen if diagonal is None else seen.tril(keys - count + diagonal)
            return torch.where(seen > 0, 0.0, torch.finfo(torch.float32).min).to(inputs_embeds.dtype)

        return create

    return of


# How masks are made instead.
MASKS: dict[str, Callable[..., Any]] = {
    "window dropped": _no_window,
    "window one longer": _longer,
    "windows on the wrong layers": _exchanged,
    "padding ignored": _unpadded,
    "no causal mask": _shown(None),
    "mask sees the next token": _shown(1),
}
