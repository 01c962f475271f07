"""Passes: runs a model without data once, and notes what each of its modules does, reads and keeps.

A model's code may make tensors of its own, with values or without, and may compute with its mask in place of passing it
on. So it is run with new tensors on the meta device and on the CPU; in training, with what chance decides (dropout,
hidden stretches of sound) and without; if it computes with its mask, on its own attention code, which forms every pair;
and if it chooses experts by values, with stand-ins for them.
"""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from ...common.errors import Refused, first_line, refuse
from ...torch.hf.tiny_models import tiny_config
from ..build import Subject
from ..inputs import candidates, with_values, without_data
from ..stand_ins import NAME, AttentionCall, Recurrence, StandIn, replace_routed
from ..stand_ins import noted as noted_states
from .modules import chosen_experts, flops, is_experts, is_known
from .operations import Counter, Product, tensors

CACHES = ("past_key_values", "cache", "cache_params", "state")  # what models call what they keep for the next token
aten = torch.ops.aten
MIXES = {aten.copy_.default, aten._to_copy.default, aten.index.Tensor}  # these take tensors of two devices


@dataclass
class ModuleCall:
    """A call of a module that has parameters itself. path: its name in the model · flops: by its formula, forward ·
    known: whether its kind is, so that the formula is certain · gradients: operations of those that its backward pass
    forms, of its input and of its weights · reached: whether the backward pass comes to it.
    """

    path: str
    flops: int
    known: bool
    gradients: int
    reached: bool = False

    @property
    def backward(self) -> int:
        """Operations of the backward pass."""
        return self.gradients if self.reached else 0

    def watch(self, out: Any) -> None:
        """Notes whether a gradient comes to its result."""
        results = tensors(out)
        for each in (*results, *(result._base for result in results)):  # a view may be written to, and is then another
            if each is not None and each.grad_fn is not None:
                each.grad_fn.register_prehook(self._reach)

    def _reach(self, gradients: Any) -> None:
        self.reached = True


@dataclass
class Pass:
    """What was noted. forward, backward: products that ran · saved: bytes kept for the backward pass, by the module
    that ran · layer_inputs: bytes that enter a layer that can be checkpointed · chosen: experts that a token meets ·
    cache: bytes that the returned cache holds, keys and values first, then recurrent states · slides: whether it may
    forget keys that no window reaches any more · recurrences: with the module that ran them.
    """

    modules: list[ModuleCall] = field(default_factory=list)
    forward: list[Product] = field(default_factory=list)
    backward: list[Product] = field(default_factory=list)
    attention: list[tuple[str, AttentionCall]] = field(default_factory=list)
    saved: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    layer_inputs: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    chosen: dict[str, int] = field(default_factory=dict)
    cache: tuple[int, int] = (0, 0)
    slides: bool = True
    recurrences: list[tuple[str, Recurrence]] = field(default_factory=list)


def run(model: nn.Module, given: dict[str, Any], phase: str, training: bool = True) -> Pass:
    """One pass. phase: "prefill", "decode" (a second call, with one more token after the given ones) or "train" (with
    the modules in the mode `training`).
    """
    found = Pass()
    counter = Counter(model.named_parameters(remove_duplicate=False))
    train = phase == "train"
    model.train(train and training)
    states = noted_states(model, lambda: counter.path)
    with torch.set_grad_enabled(train), Unanswered(), states as recurrent:
        if phase == "decode":
            given = next_step(model, given)
            recurrent.clear()
        names = {module: path for path, module in model.named_modules()}

        def note(call: AttentionCall, module: nn.Module | None) -> None:
            found.attention.append((counter.path if module is None else names.get(module, ""), call))

        def note_saved(size: int) -> None:
            found.saved[counter.path] += size

        kept = saving(model, note_saved) if train else nullcontext()
        with _watched(model, found, counter, train) as rows, counter, StandIn(model, note).watching(), kept:
            out = model(**given)
            loss = loss_of(out) if train else None
        found.forward, counter.products = counter.products, []
        for weight, x, made in recurrent.convolutions:  # called as functions, as calls of what holds their weights
            path, count = counter.name_of(weight).rpartition(".")[0], 2 * weight.shape[-1] * made.numel()
            gradients = count * (x.requires_grad + weight.requires_grad)
            found.modules.append(ModuleCall(path, count, True, gradients, made.requires_grad))
        _add_read(model, found, rows)
        if loss is not None and loss.requires_grad:
            with counter:
                loss.backward()
            found.backward = counter.products
    found.recurrences = recurrent.states
    found.cache = held(*cache_of(out))
    layers = getattr(cache_of(out)[1], "layers", [None])
    found.slides = any(getattr(layer, "is_sliding", True) for layer in layers)
    model.zero_grad(set_to_none=True)
    return found


def _add_read(model: nn.Module, found: Pass, rows: dict[str, int]) -> None:
    """Linear layers whose weights another module reads: once for each row that this module is given."""
    called = {call.path for call in found.modules}
    for path, reader in {(each.weight.rpartition(".")[0], each.module) for each in found.forward if each.weight}:
        module = model.get_submodule(path)
        if path not in called and isinstance(module, nn.Linear):
            count = 2 * module.in_features * module.out_features * rows.get(reader, 0)
            learns = module.weight.requires_grad
            found.modules.append(ModuleCall(path, count, True, count * (1 + learns), torch.is_grad_enabled()))


def next_step(model: nn.Module, given: dict[str, Any]) -> dict[str, Any]:
    """The inputs of the next step: one token for each sequence, and the cache of a first call."""
    first: Any = model(**given, use_cache=True) if "use_cache" in inspect.signature(model.forward).parameters else None
    name, cache = cache_of(first)
    if cache is None:
        raise refuse(
            "cost",
            "the model has no cache",
            f"phase='decode' for {type(model).__name__}",
            "a model that writes token after token",
            "choose the phase prefill or train",
        )
    step = {name: cache, "use_cache": True}
    tokens = "decoder_input_ids" if "decoder_input_ids" in given else "input_ids"
    step[tokens] = given[tokens][:, :1]
    if getattr(first, "encoder_last_hidden_state", None) is not None:
        from transformers.modeling_outputs import BaseModelOutput

        step["encoder_outputs"] = BaseModelOutput(last_hidden_state=first.encoder_last_hidden_state)
    return step


def loss_of(out: Any) -> torch.Tensor | None:
    """A number that depends on every output."""
    found, waiting = [], [out]
    while waiting:
        each = waiting.pop()
        if isinstance(each, torch.Tensor) and each.requires_grad:
            found.append(each.sum())
        elif isinstance(each, list | tuple | Mapping):
            waiting += each.values() if isinstance(each, Mapping) else each
    return torch.stack([each.float() for each in found]).sum() if found else None


@contextmanager
def _watched(model: nn.Module, found: Pass, counter: Counter, train: bool) -> Iterator[dict[str, int]]:
    """Hooks on every module: which one runs, how many rows it is given, and what those with parameters do."""
    stack: list[str] = []
    rows: dict[str, int] = defaultdict(int)
    handles = []

    def enter(path: str) -> Any:
        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            stack.append(path)
            counter.path = path
            rows[path] += _rows((args, kwargs))
            if train and _layer(module):
                given = tensors((args[:1], kwargs.get("hidden_states")))
                found.layer_inputs[path] += sum(each.nbytes for each in given if each.is_floating_point())

        return before

    def leave(path: str) -> Any:
        def after(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
            stack.pop()
            counter.path = stack[-1] if stack else ""
            own = [each for each in module._parameters.values() if each is not None]
            if own:
                wanted = any(each.requires_grad for each in tensors((args, kwargs)))
                learns = any(each.requires_grad for each in own)
                if is_experts(module):
                    found.chosen[path] = chosen_experts(module, args, kwargs)
                count = int(flops(module, args, kwargs, out))
                call = ModuleCall(path, count, is_known(module), count * (wanted + learns))
                call.watch(out)
                found.modules.append(call)

        return after

    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(enter(path), with_kwargs=True))
        handles.append(module.register_forward_hook(leave(path), with_kwargs=True))
    try:
        yield rows
    finally:
        for handle in handles:
            handle.remove()


def saving(model: nn.Module, note: Callable[[int], None]) -> Any:
    """Hooks that note the bytes saved for the backward pass: each storage once, without parameters and buffers."""
    known = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}
    alive: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            known.add(storage._cdata)
            note(storage.nbytes())
            alive.append(tensor)  # so that its storage is not given to another tensor
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


def _layer(module: nn.Module) -> bool:
    """Whether transformers can checkpoint the module: keep its input only, and run it again."""
    return any(kind.__name__ == "GradientCheckpointingLayer" for kind in type(module).__mro__)


def _rows(given: Any) -> int:
    """Rows of the first tensor: all of its axes but the last, or of a table of tokens all."""
    first = next((each for each in tensors(given) if each.numel()), None)
    if first is None:
        return 0
    return first.numel() // first.shape[-1] if first.is_floating_point() and first.ndim else first.numel()


def cache_of(out: Any) -> tuple[str, Any]:
    """(the argument that takes it, the cache that a model returned, or None)."""
    found = ((name, getattr(out, name, None)) for name in CACHES)
    return next(((name, cache) for name, cache in found if cache is not None), (CACHES[0], None))


def held(name: str, cache: Any) -> tuple[int, int]:
    """Bytes of the tensors that a cache holds: (keys and values, recurrent states)."""
    sums, seen, waiting = [0, 0], set(), [(name, cache)]
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            # MiniMax keeps its states in linear_cache.
            sums["state" in name or "linear" in name] += value.nbytes if value.is_floating_point() else 0
        elif isinstance(value, dict | list | tuple):
            waiting += [(name, each) for each in (value.values() if isinstance(value, dict) else value)]
        elif any(kind.__module__.startswith("transformers.cache") for kind in type(value).__mro__):
            waiting += vars(value).items()
    return sums[0], sums[1]


class Unanswered(TorchDispatchMode):
    """Inside the mode, a truth value without data is False, and tensors of two devices can be combined.

    Models ask whether a token is padding, or whether a mask hides anything. Without values nothing is padding, and
    nothing is hidden, so both are False. What a model checks (`torch._check`) is true. Questions for a number have no
    answer: they stop the run, as torch does. A table that a model makes on the CPU, from sizes, loses its values where
    it meets a tensor without values.
    """

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        truth = operation is aten._local_scalar_dense.default and args[0].dtype is torch.bool
        if (truth or operation is aten.equal.default) and args[0].is_meta:
            return False
        if operation is aten._is_all_true.default and args[0].is_meta:
            return torch.ones((), dtype=torch.bool, device="cpu")
        kwargs = kwargs or {}
        if len({each.device.type for each in tensors((args, kwargs))}) > 1 and operation not in MIXES:
            args, kwargs = tree_map_only(torch.Tensor, lambda each: each.to("meta"), (args, kwargs))
        return operation(*args, **kwargs)


SIZES = ((12, 2), (20, 3))  # tokens and sequences


def confirm(made: Subject) -> None:
    """Raises Refused if the operations differ."""
    config = tiny_config(type(made.config), made.config)
    kind: Any = type(made.model)
    with torch.device("meta"):
        small = kind._from_config(copy.deepcopy(config), attn_implementation=NAME).eval()
    replace_routed(small)
    for tokens, batch in SIZES:
        given = next(candidates(small, tokens, batch))
        with torch.device("meta"):
            expected = _operations(small, given)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            real = kind._from_config(copy.deepcopy(config), attn_implementation=NAME).eval()
            found = _operations(real, with_values(real, given))
        if found != expected:
            raise refuse(
                "cost",
                "which experts a token meets depends on values",
                f"{kind.__name__}: {found:,} operations of a small model with data, {expected:,} by its sizes",
                "a model in which each token meets the same number of experts",
                "count a model of another architecture",
            )


def _operations(model: nn.Module, given: dict[str, Any]) -> int:
    return sum(product.flops for product in run(model, given, "prefill").forward)


WAYS = (("meta", True), ("meta", False), ("cpu", False))  # where new tensors are, whether modules are in training mode


def ran(made: Subject, tokens: int, batch: int, phase: str) -> tuple[Subject, Pass, dict[str, Any]]:
    """The model as it ran, the pass, and its inputs, which are the first that the model accepts."""
    failed: list[Exception] = []
    for each in _ways(made):
        for given in _inputs(made, tokens, batch):
            for device, training in WAYS if phase == "train" else WAYS[1:]:
                try:
                    with torch.device(device) if device == "meta" else nullcontext():
                        return each, run(each.model, given, phase, training), given
                except Exception as error:  # third-party code may reject an input with any error
                    if isinstance(error, Refused) and error.where == "cost":
                        raise  # it concerns the question, not the way
                    failed.append(error)
        refused = [error for error in failed if isinstance(error, Refused)]
        if not refused:
            break
    if refused:
        raise refused[0]
    if made.config is not None and replace_routed(made.model):
        confirm(made)
        given = next(_inputs(made, tokens, batch))
        with torch.device("meta"):
            return made, run(made.model, given, phase), given
    raise refuse(
        "cost",
        "the model cannot run without data",
        f"{type(made.model).__name__}: {type(failed[0]).__name__}: {first_line(failed[0])[:120]}",
        "a model whose operations depend on shapes alone",
        "pass the language model or the image model inside it",
    ) from failed[0]


def _inputs(made: Subject, tokens: int, batch: int) -> Iterator[dict[str, Any]]:
    """Those of the caller, or all that the model may accept."""
    return candidates(made.model, tokens, batch) if made.inputs is None else iter([without_data(made)])


def _ways(made: Subject) -> Iterator[Subject]:
    """The model as it is, and with its own attention code."""
    yield made
    if not made.own_attention:
        made.model.set_attn_implementation("eager")
        yield replace(made, own_attention=True)
