"""Cost: parameters, operations, bytes and time of a model, from its configuration alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..common.arrays import name_of_dtype
from ..common.errors import Reason, refuse, refuse_all
from ..common.text.keywords import known_keywords
from ..common.text.units import unit
from ..language.expr import Expr
from .build import Subject, subject
from .counting.lines import attention_work, lines
from .counting.modules import is_experts
from .counting.operations import Product, tensors
from .counting.passes import Pass, ran
from .inputs import by_name, reads_tokens, unread
from .machine import Machine
from .memory import Format, held_in, kept, memory, quantization
from .result import Columns, Line, Memory, ModelCost, Time, total
from .stand_ins import AttentionCall

PHASES = ("prefill", "decode", "train")
MOST = 10**9  # tokens, and sequences: more is a typing error
CROSS = re.compile(r"cross|encoder_attn|encdec", re.I)
USUAL = 2048  # tokens, where none are given
# How configurations call their number of positions: of transformers, of regard.models, and of models in plain torch.
LONGEST = ("max_position_embeddings", "n_positions", "longest", "block_size", "max_seq_len")


@known_keywords
def cost(
    model: Any,
    *,
    tokens: int | None = None,
    batch: int = 1,
    phase: str = "prefill",
    mask: Expr | None = None,
    dtype: str | torch.dtype | None = None,
    machine: str | Path | Machine | None = None,
    inputs: Any = None,
) -> ModelCost:
    """What a model costs: parameters, operations, bytes and memory of each part, from its configuration alone.

    For n tokens in B sequences, a linear layer from a to b has a·b + b parameters and 2·a·b·n·B operations. Attention
    has 2·(D + E)·pairs·H·B, where the pairs are those that its mask allows: n·(n + 1)/2 for a causal one. The backward
    pass has as many operations for each gradient that it forms. The model is built on torch's meta device and runs
    there once; no weights are read or allocated.

    Args:
        model: a torch module, a configuration of transformers (or a dict), the name of an architecture, a folder with
            config.json, a config.json, or a hub id.
        tokens: n, of each sequence; by default 2048, or fewer if the model allows fewer. Refused for models that read
            no tokens.
        batch: B, the number of sequences.
        phase: "prefill" (one forward pass over n tokens), "decode" (one more token after n), or "train" (forward and
            backward).
        mask: a rule in place of the model's own in self-attention, such as `rg.causal() & rg.window(512)`.
        dtype: of weights and activations; by default that of the configuration.
        machine: for the time bound: "here" (measured), a known machine such as "h100-sxm", or a machine file.
        inputs: what the forward of a module takes, a tensor, tuple or dict, in place of tokens and batch; by default
            tensors that it accepts are made.

    Returns:
        A `ModelCost`: `print` shows it; `.layers`, `.memory`, `.time`, `.faults` hold it; `.to_json()` is plain data.

    Raises:
        Refused: the model cannot be built or run without data, or an argument is impossible.

    Source:
        Vaswani et al. 2017, table 1; Kaplan et al. 2020, section 2.1, for the parts that both count.

    Examples:
        >>> import regard as rg
        >>> found = rg.cost("gpt2", tokens=1024)
        >>> found.parameters.counted, found.layers[0].attention.pairs
        (124439808, 6297600)
    """
    known = machine if isinstance(machine, Machine) or machine is None else Machine.named(str(machine))
    return priced(built(model, dtype, inputs), tokens, batch, phase, mask, known)


def built(model: Any, dtype: str | torch.dtype | None = None, inputs: Any = None) -> Subject:
    """The model of a name, path, configuration or module, without data."""
    made = subject(model, _dtype(dtype))
    return made if inputs is None else replace(made, inputs=by_name(made.model, inputs))


def _takes_mask(path: str, call: AttentionCall) -> bool:
    """Whether a rule can take the place of the call's: its keys are not those of another sequence."""
    return call.rows + call.start == call.keys and not CROSS.search(path)


def priced(
    made: Subject,
    tokens: int | None,
    batch: int,
    phase: str,
    mask: Expr | None = None,
    machine: Machine | None = None,
) -> ModelCost:
    """The cost of a model that is built."""
    refuse_all("cost", _problems(tokens, batch, phase))
    length, batch = _sizes(made, tokens, batch)
    made, found, given = ran(made, length, batch, phase)
    if mask is not None:
        _replace_masks(made, found, mask)
    table = lines(made.model, found, phase)
    backward = _backward(table, found) if phase == "train" else Columns(0, 0)
    held, parameters = memory(made, found, phase), total(line.parameters for line in table)
    files = None if made.folder is None else held_in(made.folder)
    if files is not None:
        numbers, size = files
        held = replace(held, weights=replace(held.weights, measured=size))
        parameters = parameters if quantization(made.config) else replace(parameters, measured=numbers)
    dtype = name_of_dtype(made)
    return ModelCost(
        name=made.name,
        model=type(made.model).__name__,
        phase=phase,
        tokens=length,
        batch=batch,
        dtype=dtype,
        parameters=parameters,
        active=sum(line.active for line in table),
        lines=table,
        memory=held,
        time=None if machine is None else _time(machine, made.model, found, phase, dtype),
        backward=backward,
        faults=tuple(_faults(table, held, parameters, backward)),
        notes=tuple(_notes(made, found, given, table, length)),
    )


def _time(machine: Machine, model: nn.Module, found: Pass, phase: str, dtype: str) -> Time:
    """The least time that a machine needs for the products of a pass, and how much of it is due to operations.

    Each product takes at least max(operations / peak, bytes / bandwidth). Weights count as memory traffic if all of
    them exceed the largest cache, other arrays if they do so alone; elementwise work, and waiting, are not in it.
    """
    in_memory = sum(each.nbytes for each in model.parameters()) > machine.cache
    work = [  # operations, bytes of weights, other bytes
        (each.flops, _weights_read(model, found, each), each.read - each.weight_bytes + each.written)
        for each in (*found.forward, *found.backward)
    ]
    for _, call in found.attention:
        forward, _, done = attention_work(call)
        work += [(forward, 0, call.moved), *([(done, 0, 2 * call.moved)] if phase == "train" else [])]
    least = compute = 0.0
    for flops, weight, rest in work:
        moved = (weight if in_memory else 0) + (rest if rest > machine.cache else 0)
        seconds = machine.bound(flops, moved, dtype, footprint=math.inf if moved else 0)
        least += seconds
        compute += seconds if flops / machine.rate(dtype) >= seconds else 0.0
    rates = f"{unit(machine.rate(dtype), 'FLOP/s')} in {dtype}, {unit(machine.bandwidth, 'B/s')}"
    return Time(f"{machine.name} ({machine.where}: {rates})", least, compute, least - compute)


def _weights_read(model: nn.Module, found: Pass, product: Product) -> int:
    """Bytes of weights that a product reads at least; of experts, those that one token meets."""
    owner = product.weight.rpartition(".")[0]
    experts = owner in found.chosen and is_experts(model.get_submodule(owner))
    return product.weight_bytes * (found.chosen[owner] if experts else 1)


def _replace_masks(made: Subject, found: Pass, mask: Expr) -> None:
    """Puts a rule in the place of the model's own in the calls of a pass that take it."""
    if not any(starmap(_takes_mask, found.attention)) or any(not product.weight for product in found.forward):
        raise refuse(
            "cost",
            "the mask cannot take the place of the model's own",
            f"mask={mask!r} for {type(made.model).__name__}",
            "a model all of whose attention is recognized as calls",
            "leave out mask=, or count a model that uses transformers' interface",
        )
    found.attention = [
        (path, replace(call, rule=mask, tensor=False, cached=kept(call)) if _takes_mask(path, call) else call)
        for path, call in found.attention
    ]


def _backward(table: tuple[Line, ...], found: Pass) -> Columns:
    """Operations of the backward pass: those of attention calls are known from their pairs, others are counted too."""
    formula = sum(line.backward for line in table)
    calls = sum(attention_work(call)[1] for _, call in found.attention)
    calls += sum(line.backward for line in table if line.forward.counted is None)  # no product runs in a recurrence
    counted = calls + sum(product.flops for product in found.backward)
    return Columns(formula if all(line.forward.formula is not None for line in table) else None, counted)


def _faults(table: tuple[Line, ...], held: Memory, parameters: Columns, backward: Columns) -> list[str]:
    """Numbers that should agree and do not."""
    faults = []
    for line in table:
        where = " ".join(filter(None, (line.stack, "" if line.layer is None else str(line.layer), line.part)))
        for what, columns in (("parameters", line.parameters), ("operations", line.forward)):
            if not columns.agree:
                faults.append(f"{where}: {what}: formula {columns.formula:,}, counted {columns.counted:,}")
    if not backward.agree:
        faults.append(f"operations of the backward pass: formula {backward.formula:,}, counted {backward.counted:,}")
    if not parameters.agree and parameters.measured is not None:
        faults.append(f"parameters: counted {parameters.counted:,}, in the files {parameters.measured:,}")
    if not held.kv_cache.agree:
        faults.append(f"bytes of the cache: formula {held.kv_cache.formula:,}, allocated {held.kv_cache.counted:,}")
    return faults


def _notes(made: Subject, found: Pass, given: dict[str, Any], table: tuple[Line, ...], length: int) -> list[str]:
    notes = []
    limit = longest(made)
    if limit is not None and length > limit:
        notes.append(f"{length:,} tokens are more than the {limit:,} positions of the model")
    if reads_tokens(made.model) and unread(made.model, given):
        notes.append(f"run on tokens alone, without {' and '.join(unread(made.model, given))}")
    form = quantization(made.config)
    if isinstance(form, Format):
        notes.append(f"weights are stored as {form.name}: their bytes are a formula")
    elif form:
        notes.append(f"the weights' format {form} is not known: bytes are those of weights that are not quantized")
    if any(hasattr(module, "used") for module in made.model.modules()):
        notes.append("its code chooses experts by values: the operations are confirmed on small models with data")
    if any(call.tensor for _, call in found.attention):
        notes.append("a mask is an array that has no values here: all pairs are counted in its layers")
    kinds = {type(module).__name__.lower() for module in made.model.modules()}
    parts = {line.part for line in table}
    if not parts & {"attention", "states"} and any("attention" in kind for kind in kinds):
        notes.append("no call of attention was recognized: its operations are not in the sums")
    if any(line.part == "attention" and line.forward.value and not line.pairs for line in table):
        notes.append(
            "the model computes attention itself, outside transformers' interface: all pairs, as its code does"
        )
    return notes


def _problems(tokens: int | None, batch: int, phase: str) -> Iterator[Reason]:
    for name, value in (("tokens", tokens), ("batch", batch)):
        if value is not None and not (type(value) is int and 1 <= value <= MOST):
            expected = f"a whole number from 1 to {MOST:,}"
            yield Reason(f"{name} cannot be used", repr(value), expected, "correct it")
    if phase not in PHASES:
        expected = f"one of {', '.join(PHASES)}"
        yield Reason("the phase is unknown", repr(phase), expected, "choose one")


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None:
        return None
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        expected = "float32, bfloat16, float16 or another dtype of torch"
        raise refuse("cost", "the dtype is unknown", repr(dtype), expected, "choose one")
    return found


def _sizes(made: Subject, tokens: int | None, batch: int) -> tuple[int, int]:
    """The number of tokens and of sequences."""
    if made.inputs is not None:
        if tokens is not None or batch != 1:
            raise refuse(
                "cost",
                "the inputs have sizes of their own",
                f"tokens={tokens}, batch={batch} beside inputs",
                "either inputs, or tokens and batch",
                "leave one out; fit and over compare numbers of tokens, and need a model without inputs",
            )
        first = next(iter(tensors(made.inputs)), torch.empty(1, 1))
        return (first.shape[1] if first.ndim in (2, 3) else 1), (first.shape[0] if first.ndim else 1)
    if reads_tokens(made.model):
        return (tokens if tokens is not None else min(longest(made) or USUAL, USUAL)), batch
    if tokens is None:
        return 1, batch
    raise refuse(
        "cost",
        "the model reads no tokens",
        f"tokens={tokens} for {type(made.model).__name__}",
        "no number of tokens: the configuration gives the size of the input",
        "leave it out",
    )


def longest(made: Subject) -> int | None:
    """The most tokens that a configuration allows, if it says so."""
    found = (getattr(made.text, name, None) for name in LONGEST)
    return next((each for each in found if type(each) is int and each > 0), None)
