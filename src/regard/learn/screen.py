"""Screen: a lesson in the terminal: prose, code, questions, the result of a check, and the learner's answers."""

from __future__ import annotations

import os
import select
import sys
import time
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from .chapter import Exercise
from .checking.problem import Checked, message

WIDTH = 88  # columns of prose, at most; lines of code may be longer
INDENT = (0, 0, 0, 4)
BAR = 20  # columns of the bar that shows how much of a chapter is done
MOMENT = 0.3  # seconds


class Stopped(Exception):
    """The learner stops here; the next `regard learn` goes on from here."""


class Screen:
    """Shows a lesson on a console, and reads answers from the keyboard or a pipe.

    done: how much of the chapter is done, from 0 to 1 · interactive: whether a person reads and types
    """

    done = 0.0

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = min(console.width, WIDTH)
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()

    def heading(self, text: str) -> None:
        self.console.print()
        self.console.print(Text(text, "bold"))
        self.console.print()

    def prose(self, markdown: str) -> None:
        self.console.print(Markdown(markdown), width=self.width)
        self.console.print()

    def code(self, code: str) -> None:
        self.console.print(
            Padding(
                Syntax(code.strip("\n"), "python", background_color="default", word_wrap=True),
                INDENT,
            )
        )
        self.console.print()

    def output(self, text: str) -> None:
        for line in text.splitlines():
            self.console.print(Padding(Text(line, "cyan"), INDENT))
        self.console.print()

    def note(self, text: str, style: str = "dim") -> None:
        self.console.print(Text(text, style), width=self.width)

    def right(self, text: str) -> None:
        self.note(text, "bold green")

    def wrong(self, text: str) -> None:
        self.note(text, "bold yellow")

    def checked(self, result: Checked, exercise: Exercise) -> None:
        """What came out of a check: the problem, how to see it by hand, and the likely cause."""
        console, found = self.console, message(result, exercise)
        if found.printed:
            self.note("your code printed")
            self.output(found.printed)
        if found.right:
            self.right(found.says)
            return
        self.wrong(found.says)
        console.print(Text(found.what))
        for line in found.details:
            console.print(Padding(Text(line), INDENT))
        if found.about:
            console.print()
        if found.mistake:
            console.print(Text.assemble(("known mistake  ", "dim"), (found.mistake, "bold"), found.alike))
        for name, words in found.about:
            console.print(Text.assemble((f"  {name:11}  ", "dim"), words))

    def answer(self, how: str) -> str:
        """What the learner types; Stopped at the end of the input, or on Ctrl-C."""
        self.console.print(Text(f"{how} > ", "bold"), end="")
        return self._line()

    def pause(self) -> None:
        """Waits for Enter in a terminal; a pipe or a file goes on."""
        if self.interactive:
            full = round(BAR * self.done)
            self.console.print(Text(f"{'━' * full}{'─' * (BAR - full)} Press Enter to continue.", "dim"), end="")
            self._line()

    def line_soon(self) -> str | None:
        """A line, if one is typed within a moment; None otherwise, and where only a pipe could be read."""
        if self.interactive and os.name == "posix":
            return self._line() if select.select([sys.stdin], [], [], MOMENT)[0] else None
        time.sleep(MOMENT)
        return None

    def _line(self) -> str:
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            line = ""
        if not line:
            self.console.print()
            raise Stopped
        if not sys.stdin.isatty():
            self.console.print(Text(line.rstrip("\n")))
        return line.rstrip("\n")

    def table(self, rows: list[list[Any]]) -> None:
        """Rows of words, in columns."""
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=False)
        for column in zip(*rows):  # words to be typed, such as the names of files, are the last to be cut
            table.add_column(no_wrap=not any(" " in str(cell) for cell in column), overflow="fold")
        for row in rows:
            table.add_row(*(Text(str(each)) for each in row))
        self.console.print(table)
