"""Lines: sums what a pass noted into one line for each part of each layer, formula beside count."""

from __future__ import annotations

import re
from collections import defaultdict

from torch import nn

from ..result import Columns, Line
from ..stand_ins import AttentionCall
from .modules import is_experts, multiplies_once
from .modules import parameters as declared
from .operations import Product
from .pairs import counted, pairs
from .passes import Pass

Key = tuple[str, int | None, str]  # stack, number of the layer, part
STATE = re.compile(r"mamba|deltanet|rwkv|recurrent|linear_?attention|short_?conv|lightning|xlstm", re.I)
ATTENTION = re.compile(r"attention|attn", re.I)
PROJECTION = re.compile(r"attn|attention|qkv|query|key|value|(^|[._])[qkvo](_|$)|proj_?[qkvo]?$", re.I)
EXPERTS = re.compile(r"moe|experts|sparse", re.I)
NORM = re.compile(r"norm", re.I)


class Places:
    """The parts of one model. attending: paths of the modules that called transformers' attention interface."""

    def __init__(self, model: nn.Module, attending: list[str]):
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.attending = set(attending)
        head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        tables = {id(each.weight) for each in self.modules.values() if isinstance(each, nn.Embedding)}
        self.heads = {
            path
            for path, module in self.modules.items()
            if module is head or (isinstance(module, nn.Linear) and id(module.weight) in tables)
        }
        self._found: dict[str, Key] = {}

    def of(self, path: str) -> Key:
        """The part that a module with parameters belongs to."""
        if path not in self._found:
            self._found[path] = (*self.layer(path), self._part(path))
        return self._found[path]

    def layer(self, path: str) -> tuple[str, int | None]:
        """(stack, number) of the layer: the first part of the path that is a number."""
        names = path.split(".")
        for at, name in enumerate(names):
            if name.isdigit():
                return ".".join(names[:at]), int(name)
        return "", None

    def result_of(self, path: str) -> Key:
        """The line of a product of two results: of a module's own attention, its recurrent state, or outside both."""
        stack, number = self.layer(path)
        if self._inside(path, STATE):
            return stack, number, "states"
        return stack, number, "attention" if number is not None or self._inside(path, ATTENTION) else "other"

    def _part(self, path: str) -> str:
        module = self.modules[path]
        if path in self.heads:
            return "head"
        if isinstance(module, nn.Embedding):
            return "embedding"
        if NORM.search(type(module).__name__):
            return "norms"
        if self._inside(path, STATE):
            return "projections"
        around = [each for each in self.attending if path == each or path.startswith(f"{each}.") or not each]
        if around:
            whole = max(around, key=len) in ("", ".".join(filter(None, map(str, self.layer(path)))))
            return "projections" if not whole or PROJECTION.search(path) else "feed-forward"
        if is_experts(module) or self._inside(path, EXPERTS):
            return "experts"
        if self._inside(path, ATTENTION):
            return "projections"
        return "feed-forward" if self.layer(path)[1] is not None else "other"

    def _inside(self, path: str, pattern: re.Pattern[str]) -> bool:
        """Whether the module or one around it, within its layer, has such a class."""
        names = path.split(".")
        outer = len(self.layer(path)[0].split(".")) + 1 if self.layer(path)[1] is not None else 0
        around = [".".join(names[:end]) for end in range(outer + 1, len(names) + 1)]
        return any(pattern.search(type(self.modules[each]).__name__) for each in around if each in self.modules)


class _Sums:
    """A line while it is summed. formula, count: operations, forward."""

    def __init__(self) -> None:
        self.declared = self.held = self.active = 0
        self.formula = self.count = self.backward = self.done = 0
        self.scores = self.pairs = self.moved = self.saved = 0
        self.known = True  # whether all of it has a formula
        self.counted = True  # whether all of it can be counted


def lines(model: nn.Module, found: Pass, phase: str) -> tuple[Line, ...]:
    """One line for each part of each layer, in the order of the model."""
    places = Places(model, [path for path, _ in found.attention])
    sums: dict[Key, _Sums] = defaultdict(_Sums)
    train = phase == "train"
    _add_parameters(model, found, places, sums)
    counts: dict[str, int] = defaultdict(int)
    formulas = _formulas(found)
    multiplies = {path for path in formulas if multiplies_once(places.modules[path])}
    read = set()  # modules whose parameters another one reads
    for product in found.forward:
        owner = product.weight.rpartition(".")[0]
        if not product.weight and product.module in multiplies:  # its weight is a result of its parameters
            owner = product.module
        line = sums[places.of(owner) if owner else places.result_of(product.module)]
        line.count += product.flops
        line.moved += product.read + product.written + more_experts(model, found, product)
        if owner:
            counts[owner] += product.flops
            read |= {owner} - {product.module}
        else:  # a product of two results: no sizes are declared for it
            line.known = False
    for path, (formula, backward, known) in formulas.items():
        line = sums[places.of(path)]
        line.formula += formula
        line.backward += backward if train else 0
        line.known &= formula == counts[path] or (known and path not in read)
    for path in counts.keys() - {call.path for call in found.modules}:
        sums[places.of(path)].known = False  # its parameters are read by another module
    if train:
        _rest_of_backward(found, sums)
    for path, call in found.attention:
        _add_attention(sums[*places.layer(path), "attention"], call, train)
    for path, state in found.recurrences:
        line = sums[*places.layer(path), "states"]
        line.counted = False
        line.formula += state.flops
        line.backward += 2 * state.flops if train else 0
        line.moved += state.moved
    for path, saved in found.saved.items():
        key = (*places.layer(path), "attention") if path in places.attending else places.of(path)
        sums[key].saved += saved
    return tuple(
        _line(key, each) for key, each in sums.items() if any((each.held, each.formula, each.count, each.saved))
    )


def more_experts(model: nn.Module, found: Pass, product: Product) -> int:
    """Bytes of the other experts that the rows of a product meet: each is read once, all if there are enough rows."""
    owner = product.weight.rpartition(".")[0]
    if owner not in found.chosen or not product.weight_bytes:
        return 0
    module = model.get_submodule(owner)
    rows = product.flops * next(module.parameters()).element_size() // (2 * product.weight_bytes)
    return product.weight_bytes * (min(module.num_experts, rows) - 1)


def _formulas(found: Pass) -> dict[str, tuple[int, int, bool]]:
    """(forward, backward, whether the kind is known) of each module, over all its calls."""
    sums: dict[str, tuple[int, int, bool]] = {}
    for call in found.modules:
        forward, backward, _ = sums.get(call.path, (0, 0, True))
        sums[call.path] = forward + call.flops, backward + call.backward, call.known
    return sums


def _rest_of_backward(found: Pass, sums: dict[Key, _Sums]) -> None:
    """What the backward pass does beyond the formulas belongs to the lines without one."""
    unknown = [line for line in sums.values() if not line.known]
    rest = sum(product.flops for product in found.backward) - sum(line.backward for line in sums.values())
    whole = sum(line.count for line in unknown)
    for line in unknown:
        line.backward += rest * line.count // whole if whole else 0


def _add_parameters(model: nn.Module, found: Pass, places: Places, sums: dict[Key, _Sums]) -> None:
    """Parameters by declared sizes, and as tensors; one that two modules share counts where it comes first."""
    seen: set[int] = set()
    for path, module in model.named_modules():
        own = [each for each in module._parameters.values() if each is not None]
        fresh = [each for each in own if id(each) not in seen]
        seen.update(map(id, fresh))
        if not own:
            continue
        line = sums[places.of(path)]
        held = sum(each.numel() for each in fresh)
        line.declared += int(declared(module)) - sum(each.numel() for each in own) + held
        line.held += held
        chosen = found.chosen.get(path)
        met, of = 1, 1
        if hasattr(module, "used"):
            met, of = module.used
        elif chosen is not None and is_experts(module):
            met, of = chosen, module.num_experts
        line.active += held * met // of


def attention_work(call: AttentionCall) -> tuple[int, int, int]:
    """(forward, backward, backward if scores are formed anew) of a call, in operations."""
    allowed = pairs(call.rule, call.batch, call.heads, call.rows, call.keys, call.start)
    forward = 2 * (call.depth + call.value_depth) * allowed
    return forward, 2 * forward, 2 * (3 * call.depth + 2 * call.value_depth) * allowed


def _add_attention(line: _Sums, call: AttentionCall, train: bool) -> None:
    count = counted(call.rule, call.batch, call.heads, call.rows, call.keys, call.start)
    forward, backward, done = attention_work(call)
    width = 2 * (call.depth + call.value_depth)
    line.pairs += forward // width
    line.scores += 2 * call.depth * forward // width
    line.formula += forward
    line.count += forward if count is None else width * count
    if train:
        line.backward += backward
        line.done += done
    line.moved += call.moved


def _line(key: Key, found: _Sums) -> Line:
    return Line(
        *key,
        Columns(found.declared, found.held),
        found.active,
        Columns(found.formula if found.known else None, found.count if found.counted else None),
        found.backward,
        found.done,
        found.pairs,
        found.scores,
        found.pairs,
        found.moved,
        found.saved,
    )
