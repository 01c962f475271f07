"""Engine "flex": PyTorch's FlexAttention, with rules lowered from the expressions and blocks from the Plan."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from ...common.caching import Memo
from ...language.expr import Read, Var, walk
from ...language.problem import Problem
from ..plan import Plan, plan
from .device_call import DeviceCall, on_device
from .lowering import mask_of, score_of, whole_of

SIZE = 128  # rows and keys of a block: what FlexAttention's kernels are tuned for

Lists = tuple[torch.Tensor, torch.Tensor]


_known: Memo[dict[str, torch.Tensor]] = Memo(16)


def block_mask(problem: Problem, device: torch.device, mask: Callable) -> BlockMask:
    """The plan of the problem as a BlockMask on the device. mask: `mask(batch, head, row, key)`, rows counted from 0.

    >>> import numpy as np
    >>> from regard.language.masks import causal
    >>> q = np.zeros((384, 8), np.float32)
    >>> found = block_mask(Problem.of(q, q, None, mask=causal()), torch.device("cpu"), lambda b, h, q, kv: q >= kv)
    >>> found.kv_num_blocks.flatten().tolist(), found.full_kv_num_blocks.flatten().tolist()
    ([1, 1, 1], [0, 1, 2])
    """
    rest = (*problem.dims.values(), problem.query_start.tobytes(), str(device))
    blocks = _known((problem.mask,), rest, lambda: _blocks(plan(problem, SIZE, SIZE), device))
    lengths = problem.dims["Q"], problem.dims["K"]
    return BlockMask(seq_lengths=lengths, **blocks, BLOCK_SIZE=(SIZE, SIZE), mask_mod=mask)


def _blocks(found: Plan, device: torch.device) -> dict[str, torch.Tensor]:
    """The runs of the plan, block by block, as BlockMask has them: per tile of rows the blocks of keys that it visits,
    and per block of keys the tiles that visit it; mixed and full ones separately.
    """
    B, H, Q, K = (found.dims[name] for name in "BHQK")
    tiles, units = -(-Q // SIZE), -(-K // SIZE)
    lead = B if found.per_batch else 1, H if found.per_head else 1
    first, last, mixed = found.runs.astype(np.int64).T
    begin, end = first // SIZE, -(-last // SIZE)
    count = end - begin
    unit = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - begin, count)
    tile = np.repeat(found.tile_of, count)
    some = np.repeat(mixed, count) == 1
    if K % SIZE:
        some |= unit == units - 1
    if Q % SIZE:
        some |= tile % tiles == tiles - 1
    group, row = np.divmod(tile, tiles)

    def listed(chosen: np.ndarray, line: np.ndarray, other: np.ndarray, lines: int, others: int) -> Lists:
        """The number of chosen blocks on each line, and their indices in ascending order."""
        place = group[chosen] * lines + line[chosen]
        order = np.argsort(place, kind="stable")
        place, which = place[order], other[chosen][order]
        counts = np.bincount(place, minlength=lead[0] * lead[1] * lines)
        index = np.zeros((len(counts), others), np.int32)
        index[place, np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)] = which
        return tuple(
            on_device(torch.from_numpy(part.astype(np.int32).reshape(*lead, *sizes)), device)
            for part, sizes in ((counts, (lines,)), (index, (lines, others)))
        )

    blocks = {}
    for name, *sides in (("kv", row, unit, tiles, units), ("q", unit, row, units, tiles)):
        for kind, chosen in (("", some), ("full_", ~some)):
            blocks[f"{kind}{name}_num_blocks"], blocks[f"{kind}{name}_indices"] = listed(chosen, *sides)
    return blocks


DEVICES = ("cuda", "xpu")
LEAST_DEPTH = 16  # of the compiled kernels: queries and values of a smaller depth are padded with zeros
SHAPES = 64  # how often the kernels of one pair of rules are compiled: for other depths and dtypes, gradients, autocast


def why_not(call: DeviceCall) -> list[str]:
    """Every reason why FlexAttention cannot compute the call; empty if it can."""
    problem, reasons = call.problem, []
    if call.q.device.type not in DEVICES:
        reasons.append(f"FlexAttention is not compiled for {call.q.device.type}")
    if problem.dropout is not None:
        reasons.append("FlexAttention does not support dropout")
    if call.real == torch.float64:
        reasons.append("FlexAttention's kernels do not support float64")
    if 0 in problem.dims.values():
        reasons.append("the call is empty: FlexAttention needs at least one row, one key and depth")
    return reasons


def attend(call: DeviceCall, run: Callable | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(out (B, H, Q, E), lse (B, H, Q)) by the compiled kernels, or by `run`, with the parameters of flex_attention.

    Sinks are logits in the denominator only, so they rescale the output of the kernel: out · σ(lse − s), where s = ln Σ
    exp(sinks).
    """
    problem = call.problem
    mask, score = rules(call)
    blocks = None if mask is None else block_mask(problem, call.q.device, mask)
    q, k, v = (_deep(tensor, tensor.shape[3]) for tensor in (call.q, call.k, call.v))
    run = run or compiled(str(problem.mask), str(problem.score))
    with torch._dynamo.config.patch(recompile_limit=SHAPES):
        out, aux = run(
            q,
            k,
            v,
            score_mod=score,
            block_mask=blocks,
            scale=problem.scale,
            enable_gqa=q.shape[1] != k.shape[1],
            return_aux=AuxRequest(lse=True),
            kernel_options=_options(call),
        )
    out, lse = out[..., : call.v.shape[3]], aux.lse.to(call.real)
    if call.sinks is None or not call.sinks.shape[1]:
        return out, lse
    sink = call.sinks.to(call.real).logsumexp(1)[None, :, None]
    empty = lse == -torch.inf
    some = torch.where(empty, 0, lse)  # the derivative at −inf would be NaN
    share = torch.where(empty, 0, torch.sigmoid(some - sink))
    return (out * share[..., None]).to(out.dtype), torch.where(empty, sink, torch.logaddexp(some, sink))


def rules(call: DeviceCall) -> tuple[Callable | None, Callable | None]:
    """The mask and the score as functions of a row index from 0, as FlexAttention calls them, not of a position."""
    problem, whole = call.problem, whole_of(call.problem)
    mask = mask_of(problem, {table: tensor.detach() for table, tensor in call.tables.items()}, whole)
    score = score_of(problem, call.tables, call.real, whole)
    start = _start(problem.query_start.tobytes(), whole, call.q.device)
    return None if mask is None else _mask_of_rows(mask, start), None if score is None else _score_of_rows(score, start)


@functools.lru_cache(64)
def _start(positions: bytes, whole: torch.dtype, device: torch.device) -> torch.Tensor:
    """The positions of the first rows on the device, copied once: the layers of a model share them."""
    return on_device(torch.tensor(np.frombuffer(positions, np.int64), dtype=whole), device)


def _options(call: DeviceCall) -> dict[str, int]:
    """How FlexAttention lays out its kernel, where its own choice does not fit.

    Tables that the score reads pair by pair are loaded ahead like keys and values, and torch does not count the shared
    memory that they take (128 × 128 numbers of 4 bytes for each stage): with its three stages no kernel of 16-bit
    tensors can be started.
    """
    score = call.problem.score
    pairs = score is not None and any(
        isinstance(node, Read) and any(isinstance(each, Var) and each.name == "key" for each in walk(*node.index))
        for node in walk(score)
    )
    return {"num_stages": 1} if pairs and call.q.itemsize == 2 else {}


def _mask_of_rows(mask: Callable, start: torch.Tensor) -> Callable:
    def mask_mod(batch, head, row, key):
        return mask(batch, head, row + start[batch], key)

    return mask_mod


def _score_of_rows(score: Callable, start: torch.Tensor) -> Callable:
    def score_mod(logit, batch, head, row, key):
        return score(logit, batch, head, row + start[batch], key)

    return score_mod


@functools.lru_cache(64)
def compiled(mask: str, score: str) -> Callable:
    """FlexAttention compiled for the rules with this text.

    torch.compile counts recompilations per code object, and past its limit it would run the unfused version, which
    builds the matrix. So each pair of rules has its own function, and fullgraph=True raises an error past the limit.
    """
    code = _run.__code__.replace(co_name=f"attention_{abs(hash((mask, score)))}")
    return torch.compile(types.FunctionType(code, _run.__globals__, code.co_name, None, None), fullgraph=True)


def _run(q, k, v, **more):
    return flex_attention(q, k, v, **more)


def _deep(tensor: torch.Tensor, depth: int) -> torch.Tensor:
    return torch.nn.functional.pad(tensor, (0, LEAST_DEPTH - depth)) if depth < LEAST_DEPTH else tensor
