"""`regard cost`: what a model costs: parameters, operations, bytes and time, from its configuration alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..common.errors import refuse
from ..common.optional import requires_extra
from .arguments import Inputs, flag, model_of, option
from .terminal import emit, emit_json


def cost(
    model: Annotated[
        str,
        typer.Argument(
            help="An architecture (llama), a folder with config.json, a config.json, a hub id, or FILE.py:CLASS."
        ),
    ],
    tokens: Annotated[int | None, option("Tokens of each sequence.", "2048, or what the model allows")] = None,
    batch: Annotated[int, option("Number of sequences.")] = 1,
    phase: Annotated[str, option("prefill, decode, train, or several of them, comma-separated.")] = "prefill",
    dtype: Annotated[str | None, option("Of weights and activations.", "as in the configuration")] = None,
    machine: Annotated[
        str | None, option("For the time bound: here, a known machine (h100-sxm), or a machine file.")
    ] = None,
    fit: Annotated[str | None, option("Memory (24GB): the longest context and the largest batch that fit it.")] = None,
    over: Annotated[
        str | None, option("Numbers of tokens (512,2048,8192): a line for each, with attention's share.")
    ] = None,
    measure: Annotated[
        bool,
        flag("--measure", "Run the model here with random weights: memory and time beside the bound."),
    ] = False,
    layers: Annotated[bool, flag("--layers", "Print a line for each part of each layer.")] = False,
    plot: Annotated[Path | None, option("With --over: draw the lines over the tokens into this PNG file.")] = None,
    inputs: Inputs = None,
    as_json: Annotated[bool, flag("--json", "Print JSON.")] = False,
) -> None:
    """Print what a model costs: parameters, operations, bytes, memory and time.

    Every number is found from declared sizes (formula) and by running the model without data (counted). Exit status: 0,
    1 if two numbers do not agree, 2 invalid arguments.
    """
    with requires_extra("cost", "hf"):
        from ..ledger import Machine
        from ..ledger.cost import PHASES, built, priced
        from ..ledger.fit import fit as fitting
        from ..ledger.fit import size
        from ..ledger.result import check_plot, draw, lengths, report
        from ..ledger.result import over as table

    phases = [each.strip() for each in phase.split(",")]
    unknown = [each for each in phases if each not in PHASES]
    if unknown:
        expected = f"one or more of {', '.join(PHASES)}"
        raise refuse("cost", "the phase is unknown", ", ".join(unknown), expected, "choose one")
    if measure and machine not in (None, "here"):
        expected, given = "--machine here, or no machine", f"--measure --machine {machine}"
        raise refuse("cost", "only this machine can be measured", given, expected, "leave one out")
    wanted = [] if over is None else lengths(over)
    if plot is not None:
        check_plot(plot, wanted)
    known = Machine.named("here") if measure else None if machine is None else Machine.named(machine)
    what, example = model_of("cost", model, inputs, guess=False)
    resized = inputs is None and (tokens is not None or batch != 1 or over is not None or fit is not None)
    subject = built(what, dtype, None if resized else example)
    found = [priced(subject, tokens, batch, each, machine=known) for each in phases]
    if measure:
        from ..ledger.measure import measured

        found = [measured(subject, each) for each in found]
    memory = None if fit is None else size(fit)
    fits = [] if memory is None else [fitting(subject, memory, each.phase, each.tokens, batch) for each in found]
    many = [[priced(subject, each, batch, one, machine=known) for each in wanted] for one in phases if wanted]
    if as_json:
        sizes = [[each.to_json() for each in costs] for costs in many]
        costs = [each.to_json() for each in found]
        emit_json({"costs": costs, "fits": [vars(each) for each in fits], "over": sizes})
    else:
        fitted = ["\n".join(map(str, fits))] if fits else []
        how = "as in the configuration, or float32; --dtype names another" if dtype is None else "as --dtype says"
        origin = f"configuration: {subject.origin}; dtype: {found[0].dtype}, {how}"
        reports = [*(report(each, layers) for each in found), *map(table, many), *fitted]
        emit("\n\n\n".join([f"{origin}\n{reports[0]}", *reports[1:]]))
    if plot is not None:
        draw(plot, many)
        typer.echo(f"Plot written to {plot}.", err=True)
    if any(each.faults for each in found):
        raise typer.Exit(1)
