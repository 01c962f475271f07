"""Limits: which calls a function takes, so that cases make no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..conventions.fields import Adapter


@dataclass(frozen=True)
class Limits:
    """What a function takes, read from its adapter and from two calls: `rectangular`, whether Q ≠ K; `wide`, whether
    D ≠ E.
    """

    adapter: Adapter
    rectangular: bool = True
    wide: bool = True

    @property
    def batch(self) -> bool:
        """Whether there can be more than one batch entry."""
        return "B" in self.adapter.layout or self.packed

    @property
    def packed(self) -> bool:
        """Whether rows of all batch entries are in one axis."""
        return self.adapter.layout == "THD" and self.takes("cu_seqlens_q")

    @property
    def heads(self) -> int | None:
        """How many heads there can be; None for any number."""
        layout = self.adapter.layout
        if "H" in layout or (layout == "BSD" and self.takes("heads")):
            return None
        return self.adapter.heads or 1

    @property
    def grouped(self) -> bool:
        """Whether query heads can share key heads."""
        return self.heads != 1 and self.adapter.groups != "none"

    @property
    def dtype(self) -> str:
        """The dtype of most cases."""
        return self.adapter.dtypes[0] if self.adapter.dtypes else "float32"

    def takes(self, role: str) -> bool:
        """Whether the function has a parameter for a role."""
        return role in self.adapter.parameters

    def sizes(self, **wanted: Any) -> dict[str, Any]:
        """Sizes near the wanted ones that the function takes; B, H, G, Q, K, D, E and dtype by name."""
        found: dict[str, Any] = {"B": 2, "H": 4, "Q": 5, "K": 7, "D": 8, "dtype": self.dtype} | wanted
        found.setdefault("G", found["H"])
        if not self.batch:
            found["B"] = min(found["B"], 1)
        if self.heads is not None:
            found["H"] = self.heads
        elif "alibi" in self.adapter.always and found["H"]:  # implementations differ about other numbers of slopes
            found["H"] = 1 << (found["H"].bit_length() - 1)
        found["G"] = min(found["G"], found["H"]) if self.grouped else found["H"]
        if found["G"] and found["H"] % found["G"]:
            found["G"] = 1 if self.grouped else found["H"]
        if not self.rectangular:
            found["Q"] = found["K"] = max(found["Q"], found["K"])
        found.setdefault("E", found["D"])
        if not self.wide:
            found["E"] = found["D"]
        return found
