"""`regard bench`: benchmarks regard against other installed libraries."""

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
            help="Run only these cases (comma-separated): names, kinds (causal), patterns (dense-2k-*), shapes, "
            "families, model, learning, lens, system.",
            show_default="all",
        ),
    ] = "",
    engines: Annotated[
        str,
        typer.Option(
            help="Run only these engines (comma-separated): regard, forward, sdpa, eager, flex, onnxruntime, "
            "openvino, jax.",
            show_default="all installed",
        ),
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Limit sizes to 512 rows and measure briefly, as a smoke test.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option("--json", dir_okay=False, help="Write all measurements to this file.")
    ] = None,
) -> None:
    """Benchmark regard against other installed libraries.

    Every result is verified before it is timed.
    """
    from ..bench.run import run
    from .terminal import Console

    if save and not save.parent.is_dir():
        raise refuse(
            "bench",
            "no such folder",
            given=str(save.parent),
            expected="an existing folder for the JSON file",
            fix="create the folder",
        )
    with Console(stderr=True).status("starting") as status:
        results = run(listed(cases), listed(engines), quick, Console(), status.update)
    if save:
        save.write_text(json.dumps(results, indent=1) + "\n")


def listed(text: str) -> list[str]:
    """Splits a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]
