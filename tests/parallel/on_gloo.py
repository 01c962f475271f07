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
from tests.parallel import steps
from tests.parallel.decoded import texts

CAUSAL = rg.causal()

CASES = {  # the placement and the rules
    "causal": ("contiguous", {"mask": CAUSAL}),
    "documents": ("zigzag", {"mask": CAUSAL & rg.documents(lengths=[700, 1800]), "score": rg.alibi(4)}),
    "window, dropout": ("excess", {"mask": CAUSAL & rg.window(300), "dropout": 0.1, "seed": 3}),
}


def whole():
    """q, k, v and the gradient of the output, of all tokens."""
    torch.manual_seed(0)
    return [torch.randn(1, heads, 2500, 16) for heads in (4, 2, 2, 4)]


def placed(ranks, **more):
    return rp.place(2500, ranks=ranks, mask=CAUSAL, **more)


def of_four():
    """For each case: the positions of the tokens of this rank, and their out, dq, dk and dv; then what `fails`."""
    found, rank = {}, dist.get_rank()
    for name, (placement, rules) in CASES.items():
        place = rp.place(2500, ranks=4, mask=rules["mask"], heads=4, among=placement)
        mine = [place.shard(each, axis=2, rank=rank) for each in whole()]
        found[name, placement] = place.positions(rank), step(attends(rp.attention, place=place, **rules), mine)
    found["causal", "DTensors"] = of_dtensors(whole())
    found["causal", "rows and heads"] = of_rows_and_heads(whole())
    yield found, None
    yield found, fails()


def attends(attention, **rules):
    """A function of q, k and v alone, for `step`."""
    return lambda q, k, v: [attention(q, k, v, **rules)]


def step(call, tensors):
    """out, dq, dk and dv of q, k, v and the gradient of the output."""
    return steps.step(call, tensors[:3], tensors[3:])


def of_two():
    """What two ranks compute with the functions of GPUs, and texts."""
    return of_gpus([each.bfloat16() for each in whole()]), texts(8)


def of_gpus(tensors):
    """The same by the functions that GPUs use, on the CPU."""
    place = placed(2, among="zigzag")
    mine = [place.shard(each, axis=2, rank=dist.get_rank()) for each in tensors]
    rules = Arguments(**CASES["window, dropout"][1])

    def call(*qkv):
        prepared, _ = on_devices.checked("attention", dist.get_rank(), place, qkv, rules)
        return [on_devices.attend(prepared, None, qkv, rules)[0]]

    return place.positions(dist.get_rank()), step(call, mine)


def of_dtensors(tensors):
    """The same of the shards of DTensors in their own order, which are moved to a zig-zag placement and back."""
    mesh = init_device_mesh("cpu", (4,))
    q, k, v, dout = (distribute_tensor(each, mesh, [Shard(2)]) for each in tensors)
    leaves = [each.detach().requires_grad_() for each in (q, k, v)]
    out, lse = rp.attention_with_lse(*leaves, mask=CAUSAL, place=placed(4, among="zigzag"))
    out.backward(dout)
    assert out.placements == (Shard(2),) and out.shape == dout.shape and lse.shape == dout.shape[:3]
    positions = torch.arange(2500).chunk(4)[dist.get_rank()]
    return positions.numpy(), [each.to_local() for each in (out.detach(), *(each.grad for each in leaves))]


def of_rows_and_heads(tensors):
    """The same on a mesh of two dimensions."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "heads"))
    where = {"rank": mesh.get_local_rank("rows"), "part": mesh.get_local_rank("heads"), "parts": 2}
    place = placed(2)
    mine = [place.shard(each, axis=2, **where) for each in tensors]
    groups = {"group": mesh["rows"], "heads_group": mesh["heads"]}
    return place.positions(**where), step(attends(rp.attention, mask=CAUSAL, place=place, **groups), mine)


def attended(place, mask, **options):
    """Attention of the tokens of this rank."""
    mine = [place.shard(each, axis=2, rank=dist.get_rank()) for each in whole()[:3]]
    return rp.attention(*mine, mask=mask, place=place, **options)


def error_of(*arguments, **options):
    """(type, text, seconds) of the error that `attended` raises."""
    begin = time.monotonic()
    try:
        attended(*arguments, **options)
    except Exception as error:  # whatever it is, the test looks at it
        return type(error).__name__, str(error), time.monotonic() - begin
    return None


def fails():
    """Rank 1 refuses its scale; then rank 2 has another mask; then all compute; then rank 1 ends."""
    rank = dist.get_rank()
    place = placed(dist.get_world_size())
    refused = error_of(place, CAUSAL, scale=float("nan") if rank == 1 else None)
    disagreed = error_of(place, rg.window(30) if rank == 2 else CAUSAL)
    finite = bool(attended(place, CAUSAL).isfinite().all())
    if rank == 1:
        os._exit(7)
    return refused, disagreed, finite, error_of(place, CAUSAL)


def is_late(seconds):
    """Rank 2 begins its last call when the others have given up."""
    place, store = placed(3), dist.distributed_c10d._get_default_store()
    attended(place, CAUSAL)  # compiles, with the usual time to wait
    dist.barrier()
    attended(place, CAUSAL, timeout=seconds)
    if dist.get_rank() == 2:
        store.wait(["rank 0 gave up", "rank 1 gave up"])
    error = error_of(place, CAUSAL, timeout=seconds)
    store.set(f"rank {dist.get_rank()} gave up", "")
    return error
