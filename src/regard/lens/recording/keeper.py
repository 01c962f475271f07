"""What is asked to be kept of a run, and the calls as they come, within the limit, in memory or on disk."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...common.errors import Reason, Refused, refuse
from ..runs.call import Call
from ..runs.run import Run, Step
from ..storage.byte_sizes import shown, size_of
from ..storage.folder import Writer
from .axes import Axes
from .passes import Growing
from .recorded_call import Recorded, completed

__all__ = ["Asked", "Keeper", "Passed", "keeping"]

VALUES = 64_000_000  # bytes: up to here v, x and out are kept where nobody says


@dataclass(frozen=True)
class Asked:
    """layers: by number or pattern · entry: of the batch · values: whether v, x and out are kept, None while they are
    small · limit: the most bytes · into, overwrite: the folder that calls are written to one by one."""

    layers: Sequence[int | str] | None = None
    entry: int = 0
    values: bool | None = None
    limit: int | str = "2GB"
    into: str | Path | None = None
    overwrite: bool = False

    def __post_init__(self):
        size_of(self.limit, "look")
        if isinstance(self.entry, bool) or not isinstance(self.entry, int) or self.entry < 0:
            raise refuse(
                "look",
                "no batch entry",
                given=f"entry={self.entry!r}",
                expected="its number, counted from 0",
                fix="leave it out for the first",
            )

    def wants(self, name: str, number: int | None) -> bool:
        return self.layers is None or any(fits(part, name, number) for part in self.layers)


@dataclass(eq=False)
class Passed:
    """Calls that are not kept: those that nobody asked for, by name, and those that could not be, with the reason."""

    over: set[str] = field(default_factory=set)
    left_out: list[dict[str, str]] = field(default_factory=list)


@dataclass(eq=False)
class Keeper:
    """Takes calls as they come. alike: how many calls will be like the first one of a layer, from which the size of the
    whole is
    predicted. rows: how many there will be once passes are joined, 0 where there is one pass."""

    asked: Asked
    axes: Axes
    alike: Callable[[str], int]
    rows: int = 0
    writer: Writer | None = None
    calls: list[Call] = field(default_factory=list)
    growing: dict[tuple[str, int], Growing] = field(default_factory=dict)
    names: set[tuple[str, int | None]] = field(default_factory=set)
    held: int = 0
    values: bool | None = None

    def take(self, recorded: Recorded) -> None:
        """A call that was made; one of a generation waits for the later passes."""
        self._admit(recorded)
        name = recorded.call.name
        self.names.add((name, recorded.call.layer))
        if not self.rows:
            self._keep(recorded)
        elif (name, recorded.nth) in self.growing:
            self.growing[name, recorded.nth].add(recorded)
        else:
            self.growing[name, recorded.nth] = Growing(recorded)

    def run(self, name: str, text: str, passed: Passed, steps: Sequence[Step], facts: dict[str, Any]) -> Run:
        """The run of everything that came. Refused: nothing came, or not from the layers that were asked for."""
        for each in self.growing.values():
            self._keep(each.joined())
        self._complain(name, passed)
        known = {**facts, "entry": self.asked.entry, "left_out": passed.left_out, "values": bool(self.values)}
        if self.asked.layers is not None:
            known["layers"] = list(self.asked.layers)
        if self.writer is not None:
            return self.writer.finish(name, text, self.axes.used, steps, known)
        return Run(name, text, self.axes.used, tuple(self.calls), tuple(steps), known)

    def _keep(self, recorded: Recorded) -> None:
        queries, keys = self.axes.place(recorded)
        call = completed(recorded, queries, keys, self.axes.special(keys), bool(self.values))
        self.calls.append(call if self.writer is None else self.writer.add(call))

    def _admit(self, recorded: Recorded) -> None:
        """Refuses before the memory or the disk is full: from the first call on, by the size that the whole will
        have.
        """
        limit = size_of(self.asked.limit, "look")
        if self.values is None:
            times = max(1, self.alike(recorded.call.name)) * max(1.0, self.rows / max(recorded.call.shape[1], 1))
            self.values = (
                recorded.nbytes(True) * times <= min(VALUES, limit) if self.asked.values is None else self.asked.values
            )
            predicted = int(recorded.nbytes(self.values) * times)
            if predicted > limit:
                raise self._too_large(recorded, predicted, "about ", limit)
        self.held += recorded.nbytes(self.values)
        if self.held > limit:
            raise self._too_large(recorded, self.held, "more than ", limit)

    def _too_large(self, recorded: Recorded, size: int, word: str, limit: int) -> Refused:
        _, Q, K = recorded.call.shape
        mend = "choose layers, as in layers=[0, 5], or raise limit="
        return refuse(
            "look",
            "the run would be larger than the limit",
            given=(
                f"{word}{shown(size)}: {shown(recorded.nbytes(bool(self.values)))} for {recorded.call.name} with {Q} "
                f"rows and {K} keys"
            ),
            expected=f"at most {shown(limit)}",
            fix=mend + (", or values=False" if self.values else ""),
        )

    def _complain(self, name: str, passed: Passed) -> None:
        seen = self.names | {(each["call"].split(": ")[0], None) for each in passed.left_out}
        reasons = []
        for part in self.asked.layers or ():
            if not any(fits(part, *each) for each in seen):
                others = ", ".join(sorted(passed.over | {each for each, _ in seen})[:8])
                reasons.append(
                    Reason(
                        "no such layer",
                        given=f"{part!r}",
                        expected=f"a number, a name or a pattern such as '*.attn', of: {others}",
                        fix="choose among these",
                    )
                )
        for axis in set(self.axes.needed) - set(self.axes.used) if self.calls else ():
            sizes = " or ".join(sorted(self.axes.used))
            reasons.append(
                Reason(
                    "words that fit no call",
                    given=f"{len(self.axes.known[axis])} tokens",
                    expected=sizes,
                    fix="give one for every row or key",
                )
            )
        if not self.calls and not reasons:
            why = "; ".join(sorted({each["reason"] for each in passed.left_out})) or UNSEEN
            reasons.append(
                Reason(
                    "nothing to look at",
                    given=f"{name}: {why}",
                    expected="a call of attention through regard, torch, transformers' "
                    "interface, or a softmax between two products",
                    fix="pass the weights themselves with weights=",
                )
            )
        if reasons:
            raise Refused("look", reasons)


UNSEEN = "no attention call was seen"


def fits(part: int | str, name: str, number: int | None) -> bool:
    """Whether a layer of this name and number is meant."""
    return part == number if isinstance(part, int) else fnmatch.fnmatchcase(name, part)


@contextlib.contextmanager
def keeping(asked: Asked, axes: Axes, alike: Callable[[str], int], rows: int = 0) -> Iterator[Keeper]:
    """A keeper that writes into the folder that was asked for; what an error leaves half written is removed."""
    keeper = Keeper(asked, axes, alike, rows)
    if asked.into is None:
        yield keeper
        return
    with Writer(asked.into, asked.limit, overwrite=asked.overwrite) as keeper.writer:
        yield keeper
