"""`regard models`: tests which architectures of transformers run on regard."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ..common.errors import refuse
from ..common.optional import requires_extra


def models(
    names: Annotated[
        list[str] | None, typer.Argument(help="Architectures (model_type), such as llama.", show_default="all")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", dir_okay=False, help="Write the table to this file, between its two marker lines."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all results as JSON.")] = False,
) -> None:
    """Test which architectures of transformers run on regard.

    Compares outputs, gradients and generated tokens of a small random model of each architecture with those of its own
    attention. With --json the lines go to standard error.

    Exit status: 0 all agree, 1 a difference, 2 invalid arguments.
    """
    import warnings

    with requires_extra("models", "look"):
        import transformers

        from ..torch.hf import architectures
    from .terminal import Console, emit_json

    if save and not (save.is_file() and architectures.marked(save.read_text(encoding="utf-8"))):
        raise refuse(
            "models",
            "the file has no marker lines",
            str(save),
            f"a file with the lines {architectures.FIRST} and {architectures.LAST}",
            "add these two lines where the table should be inserted",
        )
    architectures.check_names(names or [])
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    console, rows = Console(stderr=as_json), []
    for name in names or sorted(architectures.families()):
        rows.append(architectures.compare(name))
        console.print(rows[-1].line(), markup=False, soft_wrap=True)
    counts = {result: sum(row.result == result for row in rows) for result in architectures.RESULTS}
    console.print(", ".join(f"{count} {result}" for result, count in counts.items()), markup=False)
    if save:
        save.write_text(
            architectures.placed(save.read_text(encoding="utf-8"), architectures.table(rows)), encoding="utf-8"
        )
    if as_json:
        emit_json([dataclasses.asdict(row) for row in rows])
    if counts["differs"]:
        raise typer.Exit(1)
