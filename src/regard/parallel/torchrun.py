"""Starts a command of regard once for each rank, through torchrun, and says how it ended."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from types import FrameType

from ..common.optional import requires_extra
from .exchange import Processes, Transport

STOP = "REGARD_STOP_FILE"  # names a file; it exists once the user has requested a stop
# Older versions of torch lack these: there, Ctrl-C sends SIGINT to each rank, which has 30 seconds to save and end.
NEWER = {"signals_to_handle": "SIGHUP,SIGQUIT", "shutdown_timeout": 60}


def under_torchrun() -> int | None:
    """The number of ranks, if this process is one that torchrun started; otherwise None."""
    return int(os.environ["WORLD_SIZE"]) if {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys() else None


def stop_requested() -> bool:
    """Whether the user has interrupted the process that started this rank. Ranks have sessions of their own, so a
    Ctrl-C does not reach them.
    """
    return STOP in os.environ and os.path.exists(os.environ[STOP])


@contextlib.contextmanager
def joined(seconds: float) -> Iterator[Transport]:
    """Inside, this process is one of the ranks that torchrun started. seconds: how long a rank waits for the others."""
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    try:
        transport = Processes(dist.group.WORLD, seconds)
        try:
            yield transport
        finally:
            transport.release()
    finally:
        dist.destroy_process_group()


@requires_extra("regard.parallel", "torch")
def run_as_ranks(ranks: int, arguments: Sequence[str]) -> int:
    """Runs `python -m regard` with these arguments in several processes on this machine; returns the exit status.

    The first Ctrl-C or SIGTERM lets the ranks finish what they do (`stop_requested`); a second one ends them.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.CRITICAL)  # torchrun's own report, which `_ended` replaces
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks)))
    with tempfile.TemporaryDirectory(prefix="regard-ranks-") as folder, _interruptible(Path(folder, "stop")):
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=ranks,
            run_id="regard",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
            **{name: value for name, value in NEWER.items() if name in {each.name for each in fields(LaunchConfig)}},
        )
        try:
            elastic_launch(config, sys.executable)("-m", "regard", *arguments)
        except ChildFailedError as failed:
            return _ended({rank: (each.exitcode, each.pid) for rank, each in failed.failures.items()})
        except SignalException as error:
            return 128 + int(error.sigval)
    return 0


@contextlib.contextmanager
def _interruptible(stop: Path) -> Iterator[None]:
    """The first SIGINT or SIGTERM creates the file; a second one ends the ranks."""
    from torch.distributed.elastic.multiprocessing import SignalException

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.exists():
            raise SignalException("interrupted twice", signal.Signals(number))
        stop.touch()

    os.environ[STOP] = str(stop)
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        del os.environ[STOP]


def _ended(failures: dict[int, tuple[int, int]]) -> int:
    """Names the ranks that a signal ended, on standard error; returns the exit status of the command.

    failures: by rank, its exit status (negative: the signal that ended it) and its process id.
    """
    own = {-signal.SIGTERM} if len({status for status, _ in failures.values()}) > 1 else set()  # sent by torchrun
    for rank, (status, process) in sorted(failures.items()):
        if status < 0 and status not in own:
            name = signal.Signals(-status).name
            print(f"regard: rank {rank} (process {process}) was ended by {name}.", file=sys.stderr)
    statuses = [status for status, _ in failures.values() if status > 0]
    return max(statuses) if statuses else 1
