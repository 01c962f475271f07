"""`python -m bench`: benchmarks regard against other installed libraries."""

from __future__ import annotations

from typing import Annotated

import typer


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
    as_json: Annotated[bool, typer.Option("--json", help="Print all measurements as JSON.")] = False,
) -> None:
    """Benchmark regard against other installed libraries.

    Every result is verified before it is timed. With --json the tables go to standard error.
    """
    from bench.run import run
    from regard.cli.terminal import Console, emit_json

    errors = Console(stderr=True)
    with errors.status("starting") as status:
        progress = status.update if errors.is_terminal else errors.print  # in a file, what an interrupted run measured
        results = run(listed(cases), listed(engines), quick, Console(stderr=as_json), progress)
    if as_json:
        emit_json(results)


def listed(text: str) -> list[str]:
    """Splits a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


if __name__ == "__main__":
    typer.run(bench)
