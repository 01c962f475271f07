"""What a profile found: figures as data, a table to print, and the timeline of one run to save."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from .observed_call import ObservedCall
from .timeline import Timeline

__all__ = ["Profile"]

LISTED = 40  # rows of a table; of more calls, those that take longest


@dataclass(frozen=True, eq=False, repr=False)
class Profile:
    """What `regard.torch.profile` found; print it, read its parts, or save its timeline.

    calls: in the order they were made. whole: seconds of a run of the model that nobody watched; watched: of one that
    was watched.
    backward: whether both include the way back. repeats: runs that the medians are of. threads: torch's. notes: what
    these figures leave out.
    """

    model: str
    calls: tuple[ObservedCall, ...]
    whole: float
    watched: float
    backward: bool
    repeats: int
    threads: int
    notes: list[str]
    timeline: Timeline

    @property
    def seconds(self) -> float:
        """Of all attention calls together, those without a time left out."""
        return sum(call.total for call in self.calls if not math.isnan(call.total))

    @property
    def flops(self) -> int:
        """Of all attention calls together, there and back."""
        return sum(call.flops + (call.backward_flops or 0) for call in self.calls)

    @property
    def share(self) -> float:
        """Of the model's time that is attention."""
        return self.seconds / self.whole if self.whole else math.nan

    def save(self, path) -> Path:
        """Writes the timeline of one run as a Chrome trace, which Perfetto and chrome://tracing open; .gz compresses
        it.
        """
        return self.timeline.save(path)

    def tensorboard(self, folder, worker: str = "regard") -> Path:
        """Writes the timeline where TensorBoard's profiler plugin looks: tensorboard --logdir folder."""
        return self.timeline.tensorboard(folder, worker)

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=180, color_system=None)
        console.print(self)
        return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        console = Console(file=io.StringIO(), width=180, record=True)
        console.print(self)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def __rich__(self) -> Group:
        way = "there and back" if self.backward else "forward"
        head = Text(
            f"{self.model}: {_time(self.whole)} a run {way} ({_time(self.watched)} watched), median of {self.repeats}; "
            f"{self.threads} threads of torch"
        )
        if not self.calls:
            return Group(
                head,
                Text("no attention call was seen: none of regard, of torch, of FlexAttention, and none written out"),
            )
        rest = len(self.calls) - LISTED
        hidden = [Text(f"{rest} calls that took less time are not listed")] if rest > 0 else []
        reasons = dict.fromkeys((call.engine, call.why) for call in self.calls)
        return Group(
            head,
            self._table(),
            *hidden,
            *[Text(f"{engine}: {why}", style="dim") for engine, why in reasons],
            *[Text(note, style="dim") for note in self.notes],
        )

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("#", "layer", "engine", "q · keys", "dtype"):
            table.add_column(heading, no_wrap=heading != "layer", overflow="fold")
        both = ("back",) if self.backward else ()
        for heading in ("time", *both, "GFLOP", "GFLOP/s", "of peak", "memory", "modelled", "of the run"):
            table.add_column(heading, justify="right", no_wrap=True)
        shown = self.calls
        if len(shown) > LISTED:
            longest = sorted(shown, key=lambda call: -call.total if call.total == call.total else 0.0)[:LISTED]
            shown = tuple(sorted(longest, key=lambda call: call.index))
        for call in shown:
            table.add_row(
                str(call.index),
                call.layer,
                call.engine,
                _sizes(call.dims),
                call.dtype,
                _time(call.seconds),
                *([_time(call.backward)] if self.backward else []),
                f"{(call.flops + (call.backward_flops or 0)) / 1e9:.3g}",
                _number(call.rate / 1e9, ".3g"),
                _number(call.share, ".0%"),
                _bytes(call.measured),
                _bytes(call.modelled),
                _number(call.total / self.whole, ".1%"),
            )
        timed = [call for call in self.calls if not math.isnan(call.total)]
        rate = sum(call.flops + (call.backward_flops or 0) for call in timed) / self.seconds if timed else math.nan
        back = [_time(sum(call.backward or 0 for call in timed))] if self.backward else []
        table.add_section()
        table.add_row(
            str(len(self.calls)),
            "all",
            "",
            "",
            "",
            _time(sum(call.seconds for call in timed)),
            *back,
            f"{self.flops / 1e9:.3g}",
            _number(rate / 1e9, ".3g"),
            "",
            "",
            "",
            f"{self.share:.1%}",
        )
        return table


def _sizes(dims: dict[str, int]) -> str:
    """B×H×Q×D · G×K, and ×E where the values have another depth."""
    if not dims:
        return "?"
    B, H, G, Q, K, D, E = (dims[name] for name in "BHGQKDE")
    return f"{B}×{H}×{Q}×{D} · {G}×{K}" + (f"×{E}" if E != D else "")


def _time(seconds: float | None) -> str:
    if seconds is None or math.isnan(seconds):
        return "–"
    unit, factor = ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)
    return f"{seconds * factor:.3g} {unit}"


def _bytes(size: int | None) -> str:
    if size is None:
        return "–"
    unit, factor = ("GB", 1e9) if size >= 1e9 else ("MB", 1e6) if size >= 1e6 else ("kB", 1e3)
    return f"{size / factor:.3g} {unit}"


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)
