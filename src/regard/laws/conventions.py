"""Conventions: what functions of attention are free to choose, and what a call means depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Conventions:
    """The choices of one function; the first of each are those of the laws.

    always: "causal" if every call is causal, "alibi" if every call adds ALiBi to its scores · causal: how causal masks,
    windows and starts are aligned if Q ≠ K: "bottom-right" or "top-left" · scale: None for 1/√D, else the fixed
    number · softcap: whether it is applied "before-bias" or "after-bias" · groups: how key heads are shared:
    "repeat-interleave" or "tile" · lse: "natural", "base-2", or "natural-unscaled", that of q·k without the scale ·
    empty_row: the output of a fully masked row: "zero", "nan", "mean", or "any" if nothing is promised · empty_lse:
    its lse: "-inf", "inf" or "any"
    """

    always: tuple[str, ...] = ()
    causal: str = "bottom-right"
    scale: float | None = None
    softcap: str = "before-bias"
    groups: str = "repeat-interleave"
    lse: str = "natural"
    empty_row: str = "zero"
    empty_lse: str = "-inf"

    @property
    def packed(self) -> bool:
        """Whether the rows of all batch entries are in one axis, so that no key exists beyond the lengths."""
        return False
