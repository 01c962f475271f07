"""How ranks exchange arrays, one after another in the same order on every rank.

What is needed of a way to send bytes (`Transport`), and arrays over it. Before anything travels, ranks compare what
they are about to do, and a refusal on one is raised on all (`agreed`). Parts of an array go to other ranks, and their
gradients come back (`Redistribution`): where a part goes to several ranks, its gradient is the sum of theirs, in the
order of ranks. The processes of torch.distributed use gloo on CPUs, on an own group with an own limit of time
(`Processes`): before each exchange a rank writes what it begins into the store of the group, from which the others read
what a lost rank did last.
"""

from __future__ import annotations

import functools
import hashlib
import json
import mmap
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ..common.arrays import as_tensor, is_tensor, read_array
from ..common.errors import Reason, Refused, first_line, refuse
from ..common.optional import requires_extra

Arrays = Sequence[np.ndarray]


class Transport(Protocol):
    """A way to send bytes between ranks, numbered from 0."""

    rank: int
    ranks: int

    def swap(
        self, step: str, outgoing: np.ndarray, going: Sequence[int], coming: Sequence[int]
    ) -> Callable[[], list[np.ndarray]]:
        """Begins to send each rank its bytes; returns a function that waits and returns the bytes from each rank.

        step: what is exchanged, in words, for errors. outgoing: the bytes for each rank, one after another. going,
        coming: how many bytes go to each rank, and come from it.
        """


class Alone:
    """A `Transport` without other ranks."""

    rank, ranks = 0, 1

    def swap(
        self, step: str, outgoing: np.ndarray, going: Sequence[int], coming: Sequence[int]
    ) -> Callable[[], list[np.ndarray]]:
        """`Transport.swap`."""
        return lambda: [outgoing]


def swap_arrays(
    transport: Transport, step: str, outgoing: Sequence[Arrays], like: Sequence[Arrays]
) -> Callable[[], list[Arrays]]:
    """Begins to send each rank some arrays; returns a function that waits and returns the arrays from each rank.

    outgoing: for each rank, also views, which are copied once. What is for this rank is returned as it is. like: for
    each rank, arrays of the shapes and dtypes of those that it sends to this one.
    """
    going, coming = (
        [0 if other == transport.rank else sum(each.nbytes for each in arrays) for other, arrays in enumerate(side)]
        for side in (outgoing, like)
    )
    sent = room(sum(going))
    for other, part in enumerate(np.split(sent, np.cumsum(going)[:-1])):
        if other != transport.rank:
            write(views(part, outgoing[other]), outgoing[other])
    wait, own = transport.swap(step, sent, going, coming), outgoing[transport.rank]

    def received() -> list[Arrays]:
        parts = enumerate(zip(wait(), like, strict=True))
        return [own if other == transport.rank else [*views(part, arrays)] for other, (part, arrays) in parts]

    return received


def gather(transport: Transport, step: str, message: bytes) -> list[bytes]:
    """The message of each rank; all have the same length."""
    arrays = [[np.frombuffer(message, np.uint8)]] * transport.ranks
    return [each.tobytes() for (each,) in swap_arrays(transport, step, arrays, arrays)()]


def views(content: np.ndarray, like: Arrays) -> Iterator[np.ndarray]:
    """Bytes as arrays of the shapes and dtypes of others, one after another."""
    begin = 0
    for each in like:
        yield content[begin : begin + each.nbytes].view(each.dtype).reshape(each.shape)
        begin += each.nbytes


def write(into: Iterable[np.ndarray], arrays: Iterable[np.ndarray]) -> None:
    """Copies the numbers of arrays into others of the same shapes."""
    for target, source in zip(into, arrays, strict=True):
        target[...] = source


def room(size: int) -> np.ndarray:
    """Bytes in memory of their own, which take none until they are written to, and are returned to the system when they
    are freed: malloc keeps freed megabytes, and NumPy takes memory in pieces of 2 MB.
    """
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8)[:size]


def sparse(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros that take no memory until they are written to."""
    return room(int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)


class Lost(RuntimeError):
    """An exchange between ranks failed; the process group cannot be used afterwards.

    Args:
        message: which rank did not take part, in which exchange, and what it did last.

    Examples:
        >>> import regard.parallel as rp
        >>> raise rp.Lost("rank 2 ended")
        Traceback (most recent call last):
        regard.parallel.Lost: rank 2 ended
    """

    def __init__(self, message: str):
        super().__init__(message)


T = TypeVar("T")
READY, REFUSES, FAILS = b"=", b"?", b"!"
LENGTH = 8  # bytes of a length


def agreed(transport: Transport, where: str, prepare: Callable[[], tuple[T, dict[str, str]]]) -> T:
    """What `prepare` returns on this rank, once all ranks are about to do the same.

    With different sizes on two ranks, gloo fails on one of them and the others wait forever. So each call begins with a
    message of fixed length: whether the rank refuses, and the length and a hash of what it is about to do, as text.

    prepare: returns its result, and what has to be equal on all ranks, by name.

    Raises:
        Refused: on every rank what one rank refused, word for word; or what differs between ranks.
        Lost: another error on another rank, in words; on the rank itself its own.
    """
    error: BaseException | None = None
    found: T | None = None
    content: Any
    try:
        found, terms = prepare()
        status, content = READY, terms
    except Refused as refused:
        error, status = refused, REFUSES
        content = [refused.where, [asdict(each) for each in refused.reasons]]
    except Exception as raised:  # whatever it is, the other ranks must not wait for this one
        error, status, content = raised, FAILS, f"{type(raised).__name__}: {first_line(raised)}"
    text = json.dumps(content).encode()
    head = status + len(text).to_bytes(LENGTH, "little") + hashlib.sha256(text).digest()
    heads = gather(transport, f"{where}: agreement", head)
    if len(set(heads)) == 1 and status == READY:
        return found  # type: ignore[return-value] # what `prepare` returned, which may be None
    lengths = [int.from_bytes(each[1 : 1 + LENGTH], "little") for each in heads]
    texts = gather(transport, f"{where}: details", text.ljust(max(lengths), b"\0"))
    contents = [json.loads(each[:length]) for each, length in zip(texts, lengths, strict=True)]
    if error is not None and status == FAILS:
        raise error
    kinds = [each[:1] for each in heads]
    if FAILS in kinds:
        rank = kinds.index(FAILS)
        raise Lost(f"{where}: rank {rank} raised {contents[rank]}; nothing was exchanged")
    if REFUSES in kinds:
        place, reasons = contents[kinds.index(REFUSES)]
        raise Refused(place, [Reason(**each) for each in reasons])
    raise _different(where, contents)


def _different(where: str, terms: list[dict[str, str]]) -> Refused:
    """The terms that differ, each with the ranks that have each value."""
    reasons = []
    for name in dict.fromkeys(name for each in terms for name in each):
        ranks: dict[str, list[int]] = {}
        for rank, each in enumerate(terms):
            ranks.setdefault(each.get(name, "nothing"), []).append(rank)
        if len(ranks) > 1:
            given = "; ".join(f"{_named(of)}: {value}" for value, of in ranks.items())
            reasons.append(
                Reason(
                    f"the ranks disagree about {name}",
                    given,
                    "the same on every rank",
                    "call it with the same arguments on every rank, in the same order of calls",
                )
            )
    return Refused(where, reasons)


def _named(ranks: list[int]) -> str:
    """The ranks in words, shortened."""
    shown = ", ".join(map(str, ranks[:4])) + (" …" if len(ranks) > 4 else "")
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}"


class Redistribution(NamedTuple):
    """For arrays (B, heads, tokens, depth): take[t] is what rank t gets of this rank's array, put[s] where what comes
    from rank s goes in the result; each has places (heads, tokens), slices or arrays of indices. name: what goes, in
    words. shape: (heads, tokens) before and after. overlaps: whether a part goes to several ranks.
    """

    transport: Transport
    name: str
    take: Sequence[Sequence[tuple[slice, Any]]]
    put: Sequence[Sequence[tuple[slice, Any]]]
    shape: tuple[tuple[int, int], tuple[int, int]]
    overlaps: bool = False

    def exchange(self, step: str, array: np.ndarray, *, back: bool = False) -> np.ndarray:
        """The array after the redistribution; or before it (`back`), where several parts are added in the order of the
        ranks. step: in words, for errors.
        """
        take, put, shape = (self.put, self.take, self.shape[0]) if back else (self.take, self.put, self.shape[1])
        add = back and self.overlaps
        wide: Any = np.result_type(array.dtype, np.float32) if add else array.dtype
        found = sparse((len(array), *shape, array.shape[3]), np.dtype(wide))
        targets = [[(slice(None), *place) for place in places] for places in put]
        outgoing = [[array[(slice(None), *place)].astype(wide, copy=False) for place in places] for places in take]
        like = [[found[place] for place in places] for places in targets]
        for places, arrays in zip(targets, swap_arrays(self.transport, step, outgoing, like)(), strict=True):
            for place, part in zip(places, arrays, strict=True):
                found[place] = found[place] + part if add else part
        return found.astype(array.dtype, copy=False)


def redistribute(move: Redistribution, value: Any, *, back: bool = False) -> Any:
    """An array or tensor (…, heads, tokens, depth) after a redistribution, or before it (`back`); autograd takes
    gradients the other way. Every rank calls it, and its backward pass, in the same order.
    """
    if not is_tensor(value):
        return _moved(move, value, back)
    return linear(value, lambda each: _moved(move, each, back), lambda gradient: _moved(move, gradient, not back))


def linear(value: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any]) -> Any:
    """forward(value) of a tensor, where forward is linear; backward(gradient) is the gradient of the value."""
    return _linear_node().apply(value, forward, backward)


@functools.cache
def _linear_node() -> Any:
    """The node of torch's autograd for `linear`."""
    import torch

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any]) -> Any:
            ctx.pull_back = backward
            return forward(value)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, gradient: Any) -> tuple[Any, None, None]:
            return ctx.pull_back(gradient), None, None

    return Linear


def _moved(move: Redistribution, value: Any, back: bool) -> Any:
    array = read_array(value, "parallel")
    flat = array.reshape(int(np.prod(array.shape[:-3])), *array.shape[-3:])
    found = move.exchange(f"gradient of {move.name}" if back else move.name, flat, back=back)
    found = found.reshape(*array.shape[:-3], *found.shape[1:])
    return as_tensor(found) if is_tensor(value) else found


SECONDS = 60.0  # that a rank waits for the others
GRACE = 1.5  # seconds in which the ranks that are left say that they have failed too
_known: weakref.WeakKeyDictionary[Any, dict[float, Processes]] = weakref.WeakKeyDictionary()


class Processes:
    """The ranks of a group of torch.distributed."""

    def __init__(self, group: Any, seconds: float):
        import torch.distributed as dist

        self.ranks, self.rank = dist.get_world_size(group), dist.get_rank(group)
        members = dist.get_process_group_ranks(group)
        self._group = dist.new_group(
            members, timeout=timedelta(seconds=seconds), backend="gloo", use_local_synchronization=True
        )
        self._store = self._group.get_group_store()
        self._count = 0

    def swap(
        self, step: str, outgoing: np.ndarray, going: Sequence[int], coming: Sequence[int]
    ) -> Callable[[], list[np.ndarray]]:
        """`Transport.swap`."""
        import torch
        import torch.distributed as dist

        sent, found = torch.from_numpy(outgoing), torch.from_numpy(room(sum(coming)))
        self._begin(step)
        run = functools.partial(
            dist.all_to_all_single, found, sent, [*coming], [*going], group=self._group, async_op=True
        )
        works = [self._guarded(step, run)]

        def wait() -> list[np.ndarray]:
            self._guarded(step, works[0].wait)
            works.clear()  # which frees what was sent
            return np.split(found.numpy(), np.cumsum(coming)[:-1])

        return wait

    def release(self) -> None:
        """Gives up the group, whose threads end once torch destroys it, even if something still holds this object.

        A thread of gloo that frees its last tensor while Python shuts down ends the process with SIGABRT.
        """
        self._group = None

    def _begin(self, step: str) -> None:
        self._count += 1
        self._guarded(step, lambda: self._store.set(f"regard {self.rank}", f"{self._count}|{time.time()}|{step}"))

    def _guarded(self, step: str, run: Callable[[], Any]) -> Any:
        """The result of an operation; where it fails, `Lost` says which rank did not take part."""
        try:
            return run()
        except RuntimeError as error:
            raise Lost(self._report(step)) from error

    def _report(self, step: str) -> str:
        """Which ranks did not take part in the exchange that failed, from what all of them wrote."""
        here = f"exchange {self._count} ({step})"
        try:
            self._store.set(f"regard failed {self.rank}", f"{self._count}")
            deadline, others = time.monotonic() + GRACE, [rank for rank in range(self.ranks) if rank != self.rank]
            silent = list(others)
            while silent and time.monotonic() < deadline:
                silent = [rank for rank in silent if not self._store.check([f"regard failed {rank}"])]
                time.sleep(0.02)
            last = {rank: self._last(rank) for rank in others}
        except RuntimeError:
            return f"{here}: the rank that holds the store of the process group ended, which is usually rank 0"
        late = [rank for rank in others if last[rank][0] < self._count]
        missing = [rank for rank in late if rank in silent] or late or silent
        if not missing:
            return f"{here}: the other ranks gave up before this one began it; their errors say why"
        return "; ".join(self._named(rank, *last[rank], here) for rank in missing)

    def _last(self, rank: int) -> tuple[int, float, str]:
        """The number, the time and the name of the last exchange that a rank began."""
        if not self._store.check([f"regard {rank}"]):
            return 0, 0.0, ""
        count, when, step = self._store.get(f"regard {rank}").decode().split("|", 2)
        return int(count), float(when), step

    def _named(self, rank: int, count: int, when: float, step: str, here: str) -> str:
        ago = f"{max(0.0, time.time() - when):.1f} s ago"
        if count >= self._count:
            return f"rank {rank} ended during {here}, which it began {ago}"
        if not count:
            return f"rank {rank} has not begun {here}, nor any exchange before it"
        return f"rank {rank} has not begun {here}; its last was exchange {count} ({step}), begun {ago}"


@requires_extra("regard.parallel", "torch")
def processes(group: Any = None, seconds: float = SECONDS) -> Transport:
    """The ranks of a group, of a DeviceMesh of one dimension, or of all processes (None); a transport as it is."""
    import torch.distributed as dist

    if hasattr(group, "swap"):
        return group
    if not (dist.is_available() and dist.is_initialized()):
        raise refuse(
            "regard.parallel",
            "the process does not know of others",
            "torch.distributed is not initialized",
            "a process group on gloo",
            'start with torchrun, and call torch.distributed.init_process_group("gloo")',
        )
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            raise refuse(
                "regard.parallel",
                "the mesh has several dimensions",
                f"{group}",
                "one dimension: the ranks that share a sequence",
                'pass one of them: mesh["rows"]',
            )
        group = group.get_group()
    group = dist.group.WORLD if group is None else group
    known = _known.setdefault(group, {})
    if seconds not in known:
        known[seconds] = Processes(group, seconds)
    return known[seconds]
