"""regard bench: measure regard beside whatever else is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..common.errors import refuse

__all__ = ["bench"]


def bench(
    cases: Annotated[
        str,
        typer.Option(
            help=(
                "Which cases, with commas: names, kinds (causal) or patterns (dense-2k-*); model, learning, "
                "lens and system are four more."
            )
        ),
    ] = "",
    engines: Annotated[
        str,
        typer.Option(
            help="Which engines, with commas: regard, forward, sdpa, eager, flex, onnxruntime, openvino, jax."
        ),
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="At most 512 rows and short bursts: does everything work?")
    ] = False,
    save: Annotated[
        Path | None, typer.Option("--json", dir_okay=False, help="Write everything that was measured to this file.")
    ] = None,
) -> None:
    """Measure regard beside whatever else is installed; every result is checked before it is timed."""
    from rich.console import Console

    from ..bench.run import run

    if save and not save.parent.is_dir():
        raise refuse(
            "bench",
            "no such folder",
            given=str(save.parent),
            expected="a folder for the JSON file",
            fix="create it first",
        )
    with Console(stderr=True).status("starting") as status:
        found = run(listed(cases), listed(engines), quick, Console(), status.update)
    if save:
        save.write_text(json.dumps(found, indent=1) + "\n")


def listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
