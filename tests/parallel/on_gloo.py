"""What each real process computes in test_processes.py."""

import os
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import regard as rg
import regard.parallel as rp
from regard.language.checks.arguments import Arguments
from regard.parallel.context import on_devices
from tests.parallel.decoded import texts

CASES = {  # the placement and the rules
    "causal": ("contiguous", {"mask": rg.causal()}),
    "documents": ("zigzag", {"mask": rg.causal() & rg.documents(lengths=[700, 1800]), "score": rg.alibi(4)}),
    "window, dropout": ("excess", {"mask": rg.causal() & rg.window(300), "dropout": 0.1, "seed": 3}),
}


def whole():
    """q, k, v and the gradient of the output, of all tokens."""
    torch.manual_seed(0)
    return [torch.randn(1, heads, 2500, 16) for heads in (4, 2, 2, 4)]


def of_four():
    """For each case: (out, dq, dk, dv) of the tokens of this rank, and their positions."""
    found, (q, k, v, dout), rank = {}, whole(), dist.get_rank()
    for name, (placement, rules) in CASES.items():
        place = rp.place(2500, ranks=4, mask=rules["mask"], heads=4, among=placement)
        mine = [place.shard(each, axis=2, rank=rank).requires_grad_() for each in (q, k, v)]
        out = rp.attention(*mine, place=place, **rules)
        out.backward(place.shard(dout, axis=2, rank=rank))
        found[name, placement] = place.positions(rank), out.detach(), *(each.grad for each in mine)
    found["causal", "DTensors"] = of_dtensors((q, k, v, dout))
    found["causal", "rows and heads"] = of_rows_and_heads((q, k, v, dout))
    return found


def of_two(steps, tokens):
    """What two ranks compute with the functions of GPUs, the losses of a training, and texts."""
    return of_gpus([each.bfloat16() for each in whole()]), trained(steps), texts(tokens)


def of_gpus(tensors):
    """The same by the functions that GPUs use, on the CPU."""
    place = rp.place(2500, ranks=2, mask=rg.causal(), among="zigzag")
    q, k, v, dout = (place.shard(each, axis=2, rank=dist.get_rank()) for each in tensors)
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    rules = Arguments(**CASES["window, dropout"][1])
    prepared, _ = on_devices.checked("attention", dist.get_rank(), place, tuple(leaves), rules)
    out, _ = on_devices.attend(prepared, None, tuple(leaves), rules)
    out.backward(dout)
    return prepared.positions, out.detach(), *(each.grad for each in leaves)


def of_dtensors(tensors):
    """The same of the shards of DTensors in their own order, which are moved to a zig-zag placement and back."""
    mesh = init_device_mesh("cpu", (4,))
    q, k, v, dout = (distribute_tensor(each, mesh, [Shard(2)]) for each in tensors)
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    place = rp.place(2500, ranks=4, mask=rg.causal(), among="zigzag")
    out, lse = rp.attention_with_lse(*leaves, mask=rg.causal(), place=place)
    out.backward(dout)
    assert out.placements == (Shard(2),) and out.shape == dout.shape and lse.shape == dout.shape[:3]
    positions = torch.arange(2500).chunk(4)[dist.get_rank()]
    return positions.numpy(), out.detach().to_local(), *(each.grad.to_local() for each in leaves)


def of_rows_and_heads(tensors):
    """The same on a mesh of two dimensions."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "heads"))
    row, part = mesh.get_local_rank("rows"), mesh.get_local_rank("heads")
    place = rp.place(2500, ranks=2, mask=rg.causal())
    q, k, v, dout = (place.shard(each, axis=2, rank=row, part=part, parts=2) for each in tensors)
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    out = rp.attention(*leaves, mask=rg.causal(), place=place, group=mesh["rows"], heads_group=mesh["heads"])
    out.backward(dout)
    return place.positions(row, part=part, parts=2), out.detach(), *(each.grad for each in leaves)


def trained(steps, alone=False):
    """The losses of a layer of attention of which each rank computes its tokens; or, alone, all of them."""
    torch.manual_seed(1)
    tokens, width = 1500, 32
    x, target = torch.randn(2, tokens, width)
    weights = [(torch.randn(width, width) / 6).requires_grad_() for _ in range(3)]
    place = None if alone else rp.place(tokens, ranks=dist.get_world_size(), mask=rg.causal())
    if place is not None:
        x, target = (place.shard(each, axis=0, rank=dist.get_rank()) for each in (x, target))
    losses = []
    for _ in range(steps):
        q, k, v = ((x @ each).unflatten(1, (4, 8)).transpose(0, 1) for each in weights)
        if place is None:
            out = rg.attention(q, k, v, mask=rg.causal())
        else:
            out = rp.attention(q, k, v, mask=rg.causal(), place=place)
        loss = ((out.transpose(0, 1).flatten(1) - target) ** 2).sum() / tokens
        loss.backward()
        total = [loss.detach().clone(), *(each.grad for each in weights)]
        if place is not None:
            for each in total:
                dist.all_reduce(each)
        losses.append(float(total[0]))
        with torch.no_grad():
            for each in weights:
                each -= 0.05 * each.grad
                each.grad = None
    return losses


def mine_of(place):
    """q, k and v of this rank."""
    return [place.shard(each, axis=2, rank=dist.get_rank()) for each in whole()[:3]]


def error_of(call):
    """(type, text, seconds) of the error that a call raises."""
    begin = time.monotonic()
    try:
        call()
    except Exception as error:  # whatever it is, the test looks at it
        return type(error).__name__, str(error), time.monotonic() - begin
    return None


def fails():
    """Rank 1 refuses its scale; then rank 2 has another mask; then all compute; then rank 1 ends."""
    rank, place = dist.get_rank(), rp.place(2500, ranks=dist.get_world_size(), mask=rg.causal())

    def call(mask=None, scale=None):
        return rp.attention(*mine_of(place), mask=rg.causal() if mask is None else mask, scale=scale, place=place)

    refused = error_of(lambda: call(scale=float("nan") if rank == 1 else None))
    disagreed = error_of(lambda: call(mask=rg.window(30) if rank == 2 else None))
    finite = bool(call().isfinite().all())
    if rank == 1:
        os._exit(7)
    return refused, disagreed, finite, error_of(call)


def is_late(seconds):
    """Rank 2 begins its last call when the others have given up."""
    place, store = rp.place(2500, ranks=3, mask=rg.causal()), dist.distributed_c10d._get_default_store()

    def call(**options):
        rp.attention(*mine_of(place), mask=rg.causal(), place=place, **options)

    call()  # compiles, with the usual time to wait
    dist.barrier()
    call(timeout=seconds)
    if dist.get_rank() == 2:
        store.wait(["rank 0 gave up", "rank 1 gave up"])
    error = error_of(lambda: call(timeout=seconds))
    store.set(f"rank {dist.get_rank()} gave up", "")
    return error
