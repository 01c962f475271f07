"""Statistics of the weights over several ranks: those of a row where it is computed, those of a key at its owner."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from ...api.statistics import Statistics
from ...common.arrays import like
from ...common.compiled import outside_programs
from ...common.errors import refuse
from ...common.public import ArrayLike, ArrayT
from ...engines import dispatch
from ...language.callables import Mask, Score
from ...language.checks.arguments import Arguments
from ...language.checks.numbers import Starts, counted
from ...language.measures import Mass, Measure, Request, checked_request
from ..exchange import SECONDS, Transport, agreed, processes, swap_arrays
from ..placement import Placement
from ..work import positions_of, stripe_of
from .forward import Here, each_stripe
from .prepare import compiled_only, shards, terms

WHERE = "parallel.attention_stats"


@outside_programs
def attention_stats(
    q: ArrayT,
    k: ArrayT,
    *,
    of: str | Measure | Iterable[str | Measure],
    place: Placement,
    mask: Mask | None = None,
    score: Score | None = None,
    scale: SupportsFloat | None = None,
    batch_start: SupportsIndex | None = None,
    head_start: SupportsIndex | None = None,
    sinks: ArrayLike | None = None,
    group: Any = None,
    timeout: float = SECONDS,
) -> Statistics:
    """Exact statistics of the weights of one sequence whose tokens are divided over processes.

    P = softmax(score(scale · q kᵀ) where mask), over the keys of all ranks; the measures of `regard.attention_stats`.

    Measures of rows are bit-identical to those of one process. What a key receives is the sum over the rows of all
    ranks, in float64 in the order of ranks, which equals that of one process to a rounding.

    Args:
        q: (…, H, n, D) the queries of the n tokens that this rank holds, as for `regard.parallel.attention`.
        k: (…, G, n, D) their keys.
        of: one or more measures, as for `regard.attention_stats`, except maps (`pooled`).
        place: who holds and who computes what.
        mask: which keys a row may attend to.
        score: changes the logits.
        scale: the factor of q·k, by default 1/√D.
        batch_start: the number of the first batch entry in a larger call.
        head_start: the number of the first query head in a larger call.
        sinks: extra logits in the denominator, (H,) or (H, n).
        group: the process group, or a DeviceMesh of one dimension.
        timeout: seconds that a rank waits for the others.

    Returns:
        The results by the names of the measures, for the tokens that this rank holds: (…, H, n) each.

    Raises:
        Refused: as for `regard.attention_stats`; maps, which several ranks would have to draw together.
        Lost: a rank ended or is late.

    Source:
        Clark et al. 2019 (entropy, distance and mass of heads).

    Examples:
        >>> import torch, torch.distributed as dist, regard as rg, regard.parallel as rp
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # with torchrun: ("gloo")
        >>> place = rp.place(300, ranks=dist.get_world_size(), mask=rg.causal())
        >>> x = place.shard(torch.ones(2, 300, 8), axis=1, rank=dist.get_rank())
        >>> rp.attention_stats(x, x, of=["entropy", "received"], mask=rg.causal(), place=place)
        Statistics(entropy: [2, 300], received: [2, 300])
        >>> dist.destroy_process_group()
    """
    arguments = Arguments(mask, score, scale, None, sinks, batch_start=batch_start, head_start=head_start)
    transport = processes(group, timeout)
    here, arrays, lead, request = agreed(transport, WHERE, lambda: _prepared(transport, (q, k), of, place, arguments))
    real = here.whole.real

    def shaped(value: np.ndarray) -> Any:
        value = value.astype(real) if value.dtype.kind == "f" else value
        return like(q, np.ascontiguousarray(value.reshape(*lead, *value.shape[3:])))

    return Statistics({name: _each(shaped, value) for name, value in _answers(here, arrays, request).items()})


def _each(change: Callable[..., Any], *values: Any) -> Any:
    """What a function makes of the arrays of a measure, which may be a tuple of them."""
    if isinstance(values[0], tuple):
        return type(values[0])(*(_each(change, *parts) for parts in zip(*values, strict=True)))
    return change(*values)


def _prepared(
    transport: Transport, tensors: tuple[Any, Any], of: Any, place: Placement, arguments: Arguments
) -> tuple[tuple[Here, tuple[np.ndarray, ...], tuple[int, ...], Request], dict[str, str]]:
    """What this rank does, q and k as (B, heads, tokens, depth), the axes of a result, and the measures over all."""
    arrays, wide, lead = shards(WHERE, transport, place, tensors)
    given = arguments._asdict()
    del given["dropout"], given["seed"]
    request = checked_request(wide[0], wide[1], of, where=WHERE, **given)
    if any(request.of_kind("pooled")):
        raise refuse(
            WHERE,
            "maps are not drawn over several ranks",
            "pooled(…)",
            "measures of rows, and what keys receive",
            "draw the map on one rank: regard.attention_stats",
        )
    compiled_only(WHERE, request.problem)
    here = Here.of(request.problem, stripe_of(request.problem.dims["G"]), place, transport, gradients=False)
    names = "; ".join(f"{measure.name} ({measure.kind})" for measure in request.measures)
    return (here, arrays, lead, request), terms(here, place, [], False) | {"the measures": names}


def _answers(here: Here, arrays: tuple[np.ndarray, ...], request: Request) -> dict[str, Any]:
    """Every measure by name: (B, H, n, …) for the tokens held here."""
    dims, (q, k) = here.whole.dims, arrays
    q = here.lent("queries", q)
    nothing = np.broadcast_to(np.zeros((), q.dtype), (*k.shape[:3], 1))
    blank = here.part(slice(0, dims["G"]), q[:, :, :0], here.whole.k, here.whole.v, 0)
    empty = dispatch.measured(Request(blank, request.measures))
    received = [measure.name for measure in request.of_kind("received")]

    def room(value: np.ndarray) -> np.ndarray:
        return np.zeros((dims["B"], dims["H"], len(here.computed), *value.shape[3:]), value.dtype)

    parts = {name: _each(room, value) for name, value in empty.items() if name not in received}
    columns = np.zeros((dims["B"], dims["H"], dims["K"]))

    def measure_stripe(heads: slice, keys: np.ndarray, values: np.ndarray) -> None:
        rows = here.queries(heads)
        for span, start in here.spans:
            problem = here.part(heads, q[:, rows, span], keys, values, start)
            results = dispatch.measured(Request(problem, _in_heads(request, rows)))
            for name in received[:1]:
                columns[:, rows] += results[name]
            for name, part in parts.items():
                _each(np.copyto, _each(operator.itemgetter((slice(None), rows, span)), part), results[name])

    each_stripe(here, k, nothing, measure_stripe)

    def at_home(name: str, value: np.ndarray) -> np.ndarray:
        B, H, rows, *rest = value.shape
        moved = here.returned(name, value.reshape(B, H, rows, int(np.prod(rest))))
        return moved.reshape(*moved.shape[:3], *rest)

    answers = {name: _each(functools.partial(at_home, name), part) for name, part in parts.items()}
    if received:
        answers |= dict.fromkeys(received, _at_owners(here, columns))
    return {name: answers[name] for name in empty}


def _in_heads(request: Request, rows: slice) -> tuple[Measure, ...]:
    """The measures, whose sets of keys count heads from the first one of a stripe."""
    starts = Starts(head=rows.start or None)
    return tuple(
        replace(each, keys=counted(each.keys, starts)) if isinstance(each, Mass) and each.keys is not None else each
        for each in request.measures
    )


def _at_owners(here: Here, columns: np.ndarray) -> np.ndarray:
    """What each key received from the rows of all ranks, (B, H, n), for the tokens held here; in the order of ranks."""
    owner, (B, H, tokens) = here.routes.owner, columns.shape
    pages = [np.flatnonzero(owner == other) for other in range(here.routes.ranks)]
    outgoing = [[columns[..., positions_of(each, tokens)]] for each in pages]
    total = np.zeros((B, H, len(here.held)))
    for (part,) in swap_arrays(here.transport, "what keys receive", outgoing, [[total]] * here.routes.ranks)():
        total += part
    return total
