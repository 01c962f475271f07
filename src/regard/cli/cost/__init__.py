"""`regard cost`: what a model costs, and Table 1 of the paper on attention."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from .model import model_cost
from .table1 import table1

__all__ = ["HELP", "costs"]

HELP = "Print what a model costs (the word `model` may be left out), or Table 1 of the paper on attention."


class _Costs(TyperGroup):
    """`regard cost llama` is `regard cost model llama`: a first word that names no command is a model."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named or not args else ["model", *args])


costs = typer.Typer(cls=_Costs, no_args_is_help=True, rich_markup_mode=None)
costs.command("model")(model_cost)
costs.command("table1")(table1)
