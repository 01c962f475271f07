"""The processes of torch.distributed as a `Transport`: gloo on CPUs, on an own group with an own limit of time.

The operation that is used moves bytes only (`all_to_all_single` of uint8). Before each of them a rank writes what it
begins into the store of the group, from which the others read what a lost rank did last.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from ...common.errors import refuse
from ...common.optional import requires_extra
from .transport import Lost, Transport, room

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
