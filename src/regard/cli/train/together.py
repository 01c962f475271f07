"""Over how many processes `regard train` trains: starts them, or joins those that torchrun has started."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from ...common.errors import Reason, Refused

if TYPE_CHECKING:
    from ...models.training.over_ranks import Alone

SECONDS = 300.0  # that a rank waits for the others; one that ends is noticed at once


@contextlib.contextmanager
def together(ranks: int | None, divide: str | None) -> Iterator[Alone]:
    """The team of this process. Without torchrun, several ranks are started, and the command exits with their status.

    What all ranks refuse is printed by one of them. Where a rank is lost, each of the others says so.
    """
    from ...models.training.over_ranks import Alone, Ranks
    from ...parallel.exchange.lost import Lost
    from ...parallel.torchrun import joined, run_as_ranks, under_torchrun

    started = under_torchrun()
    _check(ranks, divide, started)
    if started is None and ranks is not None and ranks > 1:
        raise typer.Exit(run_as_ranks(ranks, sys.argv[1:]))
    if started in (None, 1):
        yield Alone()
        return
    with joined(SECONDS) as transport:
        team = Ranks(transport, divide or "batch")
        try:
            yield team
        except Refused as refused:
            if team.first:
                raise
            raise typer.Exit(2) from refused
        except Lost as lost:
            print(
                f"regard: rank {transport.rank}: {lost}. The last checkpoint is complete: continue with --resume.",
                file=sys.stderr,
            )
            raise typer.Exit(1) from lost


def _check(ranks: int | None, divide: str | None, started: int | None) -> None:
    """Refuses numbers of ranks that cannot be, and --divide without ranks."""
    reasons = []
    if ranks is not None and ranks < 1:
        reasons.append(Reason("--ranks is too small", f"{ranks}", "1 or more", "omit it for one process"))
    if started is not None and ranks not in (None, started):
        reasons.append(
            Reason(
                "--ranks differs from the processes of torchrun",
                f"--ranks {ranks}, {started} processes",
                f"--ranks {started}",
                "omit it under torchrun",
            )
        )
    if divide not in (None, "batch", "tokens"):
        reasons.append(Reason("--divide is unknown", f"{divide}", "batch or tokens", "choose one of them"))
    elif divide is not None and (started or ranks or 1) == 1:
        reasons.append(
            Reason(
                "there is nothing to divide",
                f"--divide {divide} with one process",
                "several ranks",
                "add --ranks 2, or omit --divide",
            )
        )
    if reasons:
        raise Refused("train", reasons)
