"""Windows: what the number or the pair that the function takes counts."""

from __future__ import annotations

from typing import NamedTuple


class Counted(NamedTuple):
    """value: one number or a pair · causal: whether the call must be causal to mean this window."""

    value: int | tuple[int, int]
    causal: bool


def counted(window: tuple[int | None, int | None], convention: str, causal: bool, unlimited: int) -> Counted | None:
    """A window (keys before, keys after) in a convention; None if it cannot be expressed. causal: whether the call is;
    unlimited: a number of keys beyond any.

    One number says how far a row sees back. What it says about the keys after a row differs between libraries, so a
    window without such keys is passed with a causal mask, which means the same.
    """
    before = unlimited if window[0] is None else window[0]
    after = unlimited if window[1] is None else window[1]
    if convention == "left-right":
        return Counted((before, after), False)
    if convention == "left-right-self-included":
        return Counted((before + 1, after + 1), False)
    if convention == "both-sides" and before == after:
        return Counted(before, False)
    if after == 0 or causal:
        return Counted(before + (convention == "self-included"), True)
    return None
