"""Layers with divided heads, over real processes: outputs and gradients of one process, the same bits on every rank;
and which heads a rank has.
"""

import copy
import functools
import itertools
import pickle
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import parallelize_module

import regard as rg
import regard.parallel as rp
import regard.torch as rt
from regard.parallel.head_parallel import divided
from regard.torch import positions as places
from tests.parallel.ranks import on_ranks
from tests.parallel.started import results
from tests.support.refusals import refusal

CAUSAL = rg.causal()


def rows(seed: int, *shape: int, dtype=torch.float32) -> torch.Tensor:
    """Random rows that need gradients, the same in every process."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()


def self_attention(layer, mask, dtype=torch.float32):
    """One input, with a mask."""
    x = rows(1, 2, 9, 12, dtype=dtype)
    return layer(x, mask=mask), [x]


def with_memory(layer):
    """Rows and a memory, which is also projected beforehand: two calls."""
    x, memory = rows(1, 2, 5, 12), rows(2, 2, 7, 10)
    return layer(x, memory) + layer(x, layer.remember(memory)), [x, memory]


def with_cache(layer):
    """Two appends to a cache with the key heads of the layer; no gradients."""
    cache = rg.KVCache(layer.kv_heads, layer.head_dim, batch=2)
    with torch.no_grad():
        layer.eval()
        return torch.cat([layer(rows(seed, 2, 4, 12), mask=BY_HEAD, cache=cache) for seed in (1, 2)], 1), []


def multi_head(layer, mask):
    """Different query, key and value, in torch's layout."""
    q, k, v = rows(1, 5, 2, 12), rows(2, 7, 2, 10), rows(3, 7, 2, 11)
    return layer(q, k, v, need_weights=False, attn_mask=mask)[0], [q, k, v]


def same_rows(layer):
    """One input for query, key and value, and floats that are added for each head."""
    x, added = rows(1, 2, 5, 12), rows(9, 2 * 6, 5, 5).detach()
    return layer(x, x, x, need_weights=False, attn_mask=added)[0], [x]


def learned(layer):
    """The layer, with random learned positions and sinks."""
    for number, parameter in enumerate(layer.parameters()):
        if not parameter.any():
            parameter.data = rows(100 + number, *parameter.shape).detach()
    return layer


BY_HEAD = CAUSAL & (rg.query - rg.key <= rg.head + 1)
causal, by_head = (functools.partial(self_attention, mask=mask) for mask in (CAUSAL, BY_HEAD))
Layer, Multi = functools.partial(rt.Attention, 12), functools.partial(rt.MultiHeadAttention, 12, 6)
CASES = {  # a layer, and how it is called
    "whole groups": (lambda: Layer(6, bias=True), causal),
    "three groups": (lambda: Layer(6, 3, dropout=0.5), by_head),
    "rotary, sinks, norms": (
        lambda: Layer(6, 3, head_dim=4, value_dim=3, sinks=2, query_key_norm=True, positions=places.Rotary(4)),
        causal,
    ),
    "more ranks than key heads": (
        lambda: Layer(6, 2, bias=True, query_key_norm=True),
        by_head,
    ),
    "one key head": (lambda: Layer(6, 1, dropout=0.2, bias=True), lambda layer: self_attention(layer, None)),
    "learned positions": (
        lambda: Layer(6, 2, positions=places.Buckets(6)),
        causal,
    ),
    "slopes": (lambda: Layer(6, positions=places.ALiBi(6)), causal),
    "bfloat16": (lambda: Layer(6, 3).bfloat16(), lambda layer: self_attention(layer, CAUSAL, torch.bfloat16)),
    "memory": (lambda: Layer(6, 2, memory_dim=10, bias=True), with_memory),
    "cache": (lambda: Layer(6, 2), with_cache),
    "differential": (
        lambda: rt.DifferentialAttention(12, 6, 2, depth=1, head_dim=2, positions=places.Rotary(2), dropout=0.2),
        by_head,
    ),
    "multi-head": (
        lambda: Multi(kdim=10, vdim=11, dropout=0.3, add_bias_kv=True, add_zero_attn=True),
        lambda layer: multi_head(layer, BY_HEAD),
    ),
    "multi-head, one input": (lambda: Multi(batch_first=True), same_rows),
}


def training_step(layer, call) -> dict[str, torch.Tensor]:
    """The output, and the gradients of inputs and parameters, of a call after torch.manual_seed."""
    torch.manual_seed(5)
    out, inputs = call(layer)
    if inputs:
        (out.float() * torch.linspace(-1, 1, out.numel()).reshape(out.shape)).sum().backward()
    found = {"output": out.detach(), **{f"input {i}": x.grad for i, x in enumerate(inputs)}}
    return found | {name: each.grad for name, each in layer.named_parameters() if inputs}


def whole(name: str):
    """The whole layer of a case."""
    torch.manual_seed(3)
    return learned(CASES[name][0]())


def twice(layer, call) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], str]:
    """A step of the divided layer, a step of a copy of it, and which heads it has."""
    other = copy.deepcopy(layer)
    return training_step(layer, call), training_step(other, call), str(layer.part)


def divided_steps(ranks: int) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Each case on this rank: a step of the divided layer, and one of a copy of it; and what is refused."""
    mesh, found = init_device_mesh("cpu", (ranks,)), {}
    for name, (_, call) in CASES.items():
        layer = whole(name)
        if mesh.get_local_rank():
            torch.nn.init.zeros_(next(layer.parameters()))  # the parameters of rank 0 count
        model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([torch.nn.ModuleDict({"attention": layer})])})
        parallelize_module(model, mesh, {"layers.*.attention": rp.HeadParallel()})
        found[name] = twice(layer, call)
    return found, refusals(mesh) if ranks == 2 else {}


def refusals(mesh) -> dict[str, str | None]:
    """What is refused on this rank, by a part of it; rank 1 alone does something else, and every rank says so."""
    last = mesh.get_local_rank() == 1

    def divide(layer):
        parallelize_module(layer, mesh, rp.HeadParallel())
        return layer

    layer, multi, x = divide(Layer(6)), divide(Multi()), torch.zeros(2, 5, 12)
    calls = {
        "cannot be divided": lambda: divide(torch.nn.Linear(2, 2)),
        "DividedAttention": lambda: divide(layer),
        "at most 1 ranks": lambda: divide(Layer(1)),
        "the ranks disagree about the layer": lambda: divide(Layer(6 if last else 3)),
        "(2, 5, 13)": lambda: layer(torch.zeros(2, 5, 13) if last else x),
        "the ranks disagree about the inputs": lambda: layer(torch.zeros(2, 6, 12) if last else x),
        "the ranks disagree about training": lambda: layer.train(not last)(x),
        "need_weights=False": lambda: multi(x, x, x),
        "state_dict()": lambda: pickle.dumps(layer),
        "an input is a DTensor": lambda: layer.train()(DTensor.from_local(x, mesh, [Replicate()])),
        "broadcasts to (B, H, Q, K)": lambda: layer.train()(x, mask=torch.ones(2, 6, 5, 5, dtype=torch.bool)),
    }
    return {text: refusal(call) for text, call in calls.items()}


def own_part(name: str, layer, part: rp.Heads, wanted: torch.Tensor) -> torch.Tensor:
    """The part of a gradient of the whole layer that belongs to a rank."""
    if isinstance(layer, rt.MultiHeadAttention):
        at = torch.arange(12).unflatten(0, (6, -1))[part.query].flatten()
        thirds = torch.cat([at, at + 12, at + 24])
        chosen = {"in_proj_weight": thirds, "in_proj_bias": thirds, "out_proj.weight": (slice(None), at)}
        chosen |= dict.fromkeys(("q_proj_weight", "k_proj_weight", "v_proj_weight"), at)
        chosen |= dict.fromkeys(("bias_k", "bias_v"), (slice(None), slice(None), at))
        return wanted[chosen.get(name, slice(None))]
    kind = name.split(".")[0]
    if kind in ("q", "k", "v"):
        of, count = (part.query, part.heads) if kind == "q" else (part.key, part.key_heads)
        return wanted.unflatten(0, (count, -1))[of].flatten(0, 1)
    if name == "o.weight":
        return wanted.unflatten(1, (part.heads, -1))[:, part.query].flatten(1, 2)
    return wanted[part.query] if kind == "sinks" else wanted


@pytest.mark.sweep
@pytest.mark.parametrize("ranks", [2, 3])
def test_layers_over_processes(ranks):
    """Outputs and gradients of one process up to rounding; bits that are the same on every rank and in a second run."""
    done = results(ranks, __name__, "divided_steps", ranks)
    compared([found for found, _ in done], CASES)
    for _, refused in done:
        assert all(text in told for text, told in refused.items()), refused


def test_simulated_ranks():
    """Two key heads on four ranks, and on five: the same, with threads in place of processes."""
    names = "more ranks than key heads", "learned positions"
    for ranks in (4, 5):
        layers = {(name, rank): whole(name) for name in names for rank in range(ranks)}

        def steps(transport, layers=layers) -> dict[str, Any]:
            return {name: twice(divided(layers[name, transport.rank], transport, 0), CASES[name][1]) for name in names}

        compared(on_ranks(ranks, steps), names)


def compared(by_rank, names) -> None:
    """Asserts what the tests say of the steps of each rank."""
    ranks = len(by_rank)
    for name in names:
        layer = whole(name)
        wanted = training_step(layer, CASES[name][1])
        near = {"rtol": 0.05, "atol": 0.05} if name == "bfloat16" else {"rtol": 1e-4, "atol": 1e-5}
        held: dict[str, list[tuple[rp.Heads, torch.Tensor]]] = {}
        for rank in range(ranks):
            found, again, told = by_rank[rank][name]
            H, G = (6, 6) if isinstance(layer, rt.MultiHeadAttention) else (layer.heads, layer.kv_heads)
            part = rp.heads(rank, ranks=ranks, heads=H, key_heads=G)
            assert told == str(part) and found.keys() == wanted.keys()
            for key, value in found.items():
                torch.testing.assert_close(value, own_part(key, layer, part, wanted[key]), **near)
                assert torch.equal(value, again[key]), f"{name}: {key} of a copy, in a second run"
                held.setdefault(key, []).append((part, value))
        for key, pairs in held.items():
            for (part, value), (other, theirs) in itertools.combinations(pairs, 2):
                if (key.startswith(("k.", "v.")) and part.key == other.key) or not key.startswith(OF_A_RANK):
                    assert torch.equal(value, theirs), f"{name}: {key} of ranks {part.rank} and {other.rank}"


# Gradients of the heads of a rank; all others have the same bits everywhere.
OF_A_RANK = ("q.", "k.", "v.", "q_proj", "k_proj", "v_proj", "in_proj", "bias_", "sinks", "o.weight", "out_proj.weight")


# ---- the heads of a rank ---------------------------------------------------------------------------------------------

SIZES = [(R, G * group, G) for G in range(1, 8) for group in range(1, 5) for R in range(1, G * group + 1)]


def test_every_query_head_is_computed_once_with_its_key_head():
    """Over all ranks; a rank's own numbers of heads pair a query head with its key head as the whole layer does."""
    for ranks, heads, key_heads in SIZES:
        parts = [rp.heads(rank, ranks=ranks, heads=heads, key_heads=key_heads) for rank in range(ranks)]
        assert [head for part in parts for head in part.query] == list(range(heads))
        group = heads // key_heads
        for part in parts:
            assert len(part.query) % len(part.key) == 0
            own_group = len(part.query) // len(part.key)
            paired = [part.key[number // own_group] for number in range(len(part.query))]
            assert paired == [head // group for head in part.query]
            assert own_group == group or len(part.key) == 1
            assert part.sharers == tuple(other.rank for other in parts if other.key == part.key)
        sizes = [len(part.key) for part in parts]
        assert max(sizes) - min(sizes) <= 1


def test_all_heads_are_key_heads_by_default():
    """key_heads=None is multi-head attention."""
    assert rp.heads(1, ranks=3, heads=7).key == range(3, 5)


@pytest.mark.parametrize(
    "given, problems",
    [
        ({"rank": 0, "ranks": 2, "heads": 10, "key_heads": 4}, ["key_heads=2, key_heads=5, heads=8, heads=12"]),
        ({"rank": 0, "ranks": 9, "heads": 8, "key_heads": 2}, ["at most 8 ranks", "ranks=8"]),
        ({"rank": 2, "ranks": 2, "heads": 2, "key_heads": 3}, ["key_heads=2", "0 to 1"]),
        ({"rank": 0, "ranks": 0, "heads": -1, "key_heads": 1}, ["ranks=0", "heads=-1"]),
        ({"rank": 0.5, "ranks": 2, "heads": 2}, ["rank is not an integer"]),
    ],
)
def test_refusals_name_the_nearest_sizes_that_work(given, problems):
    """Every problem is listed."""
    found = refusal(lambda: rp.heads(given.pop("rank"), **given))
    assert all(problem in found for problem in problems), found
