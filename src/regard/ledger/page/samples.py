"""Samples: what a pass of one size notes, as a flat table of numbers, and what does not depend on the size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from ...language.expr import Expr
from ..cost import passed
from ..counting.lines import attention_work, lines, more_experts
from ..counting.operations import Product
from ..counting.parts import Key, Places
from ..counting.passes import Pass
from ..memory import by_layer, cached, memory
from ..model.build import Subject
from ..result import Line
from ..roofline import weights_read
from ..stand_ins.attention import AttentionCall

__all__ = ["Sample", "sampled"]


@dataclass(frozen=True)
class Sample:
    """One pass. numbers: by name, all that may depend on the size · calls: of attention, with their lines · products:
    what is the same for every size: (line, whether backward, experts) · table: the lines · parameters: of each line,
    how many are in matrices, and elsewhere.
    """

    numbers: dict[Hashable, int]
    calls: list[tuple[Key, AttentionCall]]
    products: list[tuple[Key, bool, dict[str, int] | None]]
    table: dict[Key, Line] = field(repr=False)
    parameters: dict[Key, list[int]] = field(repr=False)
    fixed: dict[str, Any] = field(default_factory=dict)


def sampled(made: Subject, tokens: int, batch: int, phase: str, mask: Expr | None = None) -> Sample:
    """The numbers of one pass."""
    made, found, _ = passed(made, tokens, batch, phase, mask)
    places = Places(made.model, [path for path, _ in found.attention])
    table = {(line.stack, line.layer, line.part): line for line in lines(made.model, found, phase)}
    calls = [(places.attention(path), call) for path, call in found.attention]
    numbers: dict[Hashable, int] = {}
    products = _products(made, found, places, numbers)
    _add_lines(made, found, table, places, numbers)
    for path, size in cached(made.model, made.config, found) if found.cache[0] and made.config is not None else ():
        key = ("kept", places.attention(path))
        numbers[key] = numbers.get(key, 0) + size
    for number, (_, call) in enumerate(calls):
        for name in ("batch", "rows", "keys", "start"):
            numbers["call", number, name] = getattr(call, name)
    held = memory(made.model, made.config, found, phase)
    numbers["cache"], numbers["states"], numbers["working"] = held.kv_cache.value, held.states, held.working
    if held.checkpointed is not None:
        outside, within = by_layer(found)
        numbers["outside"] = outside
        numbers |= {("within", path): size for path, size in within.items()}
    fixed = {
        "weights": held.weights.value,
        "gradients": held.gradients,
        "optimizer": held.optimizer,
        "checkpoints": held.checkpointed is not None,
    }
    sizes = _parameters(made, places)
    return Sample(numbers, calls, products, table, sizes, fixed)


def _parameters(made: Subject, places: Places) -> dict[Key, list[int]]:
    """Of each line, how many parameters are in matrices, and elsewhere; shared ones count where they come first."""
    found: dict[Key, list[int]] = defaultdict(lambda: [0, 0])
    seen: set[int] = set()
    for path, module in made.model.named_modules():
        for each in module._parameters.values():
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                found[places.of(path)][each.ndim < 2] += each.numel()
    return found


def _add_lines(
    made: Subject, found: Pass, table: dict[Key, Line], places: Places, numbers: dict[Hashable, int]
) -> None:
    """Of each line what its attention calls, and experts that are read by more rows, do not add: these have rules."""
    sums: list[dict[Key, int]] = [defaultdict(int) for _ in range(4)]
    forward, backward, moved, weights = sums
    for path, call in found.attention:
        key = places.attention(path)
        work = attention_work(call)
        forward[key] += work[0]
        backward[key] += work[1]
        moved[key] += call.moved
    for product in found.forward:
        key = _place(places, product)
        moved[key] += more_experts(made.model, found, product)
        weights[key] += product.weight_bytes
    for key, line in table.items():
        numbers["forward", key] = line.forward.value - forward[key]
        numbers["backward", key] = line.backward - backward[key] if line.backward else 0
        numbers["moved", key] = line.moved - moved[key]
        numbers["saved", key] = line.saved
        numbers["weights", key] = weights[key]


def _products(
    made: Subject, found: Pass, places: Places, numbers: dict[Hashable, int]
) -> list[tuple[Key, bool, dict[str, int] | None]]:
    """The products in order. One of the backward pass that reads no parameter follows the other one of its layer."""
    kinds: list[tuple[Key, bool, dict[str, int] | None]] = []
    before: tuple[Key, int] = ("", None, "other"), -1
    for number, product in enumerate((*found.forward, *found.backward)):
        backward = number >= len(found.forward)
        follows = backward and not product.weight and product.flops == before[1]
        key = before[0] if follows else _place(places, product)
        before = key, product.flops
        rest = product.read - product.weight_bytes + product.written
        numbers["product", number, "flops"] = product.flops
        numbers["product", number, "weight"] = weights_read(made.model, found, product)
        numbers["product", number, "rest"] = rest
        kinds.append((key, backward, None if backward else _experts(made, found, product)))
    return kinds


def _experts(made: Subject, found: Pass, product: Product) -> dict[str, int] | None:
    """Sizes of the experts that a product reads: more rows meet more of them."""
    owner = product.weight.rpartition(".")[0]
    if owner not in found.chosen or not product.weight_bytes:
        return None
    module = made.model.get_submodule(owner)
    itemsize = next(module.parameters()).element_size()
    return {"experts": module.num_experts, "itemsize": itemsize, "bytes": product.weight_bytes}


def _place(places: Places, product: Product) -> Key:
    """The line of a product."""
    if product.weight:
        return places.of(product.weight.rpartition(".")[0])
    return places.result_of(product.module) if product.flops else (*places.layer(product.module), "other")
