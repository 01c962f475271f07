"""Rotary positions: pairs of a query or key turn with their place, so that a score depends on distances only."""

from __future__ import annotations

from typing import Any

import torch

from ...common.errors import Reason, Refused, refuse
from .config import read_config
from .position import Position, fitting
from .scaling import Scaling

__all__ = ["Rotary"]


class Rotary(Position):
    """Turns each pair of components by position · θᵢ, with θᵢ = base^(−2i/d).

    x′₂ᵢ = x₂ᵢ cos − x₂ᵢ₊₁ sin, x′₂ᵢ₊₁ = x₂ᵢ₊₁ cos + x₂ᵢ sin; then q′·k′ depends on the distance of q and k alone.

    depth (D): of queries and keys. interleaved: pairs are neighbours (GPT-J, Cohere, GLM); by default component i pairs
    with i + d/2 (Llama, GPT-NeoX). fraction: the share of the depth that turns, d = int(depth · fraction); the rest
    stays as it is.
    scaling: for longer texts than the model was trained on: Linear, NTK, DynamicNTK, YaRN, Llama3 or LongRoPE.

    Angles are worked out from the positions at each call, in float32 (float64 for float64 x), also under autocast; x
    keeps its dtype. A position may be any whole number. Nothing is learned, and state_dict is empty.

    Refused, with all reasons at once: a depth without pairs, positions that do not fit x.

    Source: Su et al. 2021.

    >>> x = torch.tensor([[[[1.0, 0.0]]]])
    >>> Rotary(2).rotate(x, torch.tensor([1]))  # one radian
    tensor([[[[0.5403, 0.8415]]]])
    """

    frequencies: torch.Tensor

    def __init__(
        self,
        depth: int,
        base: float = 10000.0,
        *,
        interleaved: bool = False,
        fraction: float = 1.0,
        scaling: Any = None,
    ):
        super().__init__()
        turned = int(depth * fraction)
        wrong = []
        if not 0 < fraction <= 1:
            wrong.append(
                Reason(
                    "fraction is no share",
                    given=f"{fraction!r}",
                    expected="above 0, at most 1",
                    fix="leave it out to turn the whole depth",
                )
            )
        elif turned < 2 or turned % 2:
            wrong.append(
                Reason(
                    "the depth does not fall into pairs",
                    given=f"depth={depth}, fraction={fraction}: {turned} components",
                    expected="an even number, at least 2",
                    fix="choose an even depth, or another fraction",
                )
            )
        if not base > 1:
            wrong.append(
                Reason(
                    "base is too small",
                    given=f"{base!r}",
                    expected="a number above 1, usually 10000",
                    fix="take it from the model's config",
                )
            )
        if scaling is not None and not isinstance(scaling, Scaling):
            wrong.append(
                Reason(
                    "scaling is no scaling",
                    given=f"{scaling!r}",
                    expected="Linear, NTK, DynamicNTK, YaRN, Llama3 or LongRoPE",
                    fix="for a transformers config: Rotary.from_config(config)",
                )
            )
        if wrong:
            raise Refused("Rotary", wrong)
        self.depth, self.base, self.interleaved, self.turned = depth, float(base), interleaved, turned
        self.scaling = Scaling() if scaling is None else scaling
        self._kept: tuple | None = None
        self.register_buffer("frequencies", self._frequencies(torch.get_default_device()), persistent=False)

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] != self.depth:
            raise refuse(
                "Rotary",
                "x has another depth",
                given=f"x {tuple(x.shape)}",
                expected=f"(…, n, {self.depth})",
                fix="give Rotary the depth of a head: d_model / heads",
            )
        cos, sin = self._cos_sin(fitting("Rotary", x, positions), x.dtype)
        turning, still = x[..., : self.turned], x[..., self.turned :]
        half = self.turned // 2
        partner = turning.unflatten(-1, (half, 2)).flip(-1).flatten(-2) if self.interleaved else turning.roll(half, -1)
        turned = turning * cos + partner * sin
        return torch.cat((turned, still), dim=-1) if still.shape[-1] else turned

    def _cos_sin(self, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Of these places; kept as long as they are asked for again, as keys do after queries, and all layers of a
        model.
        """
        if torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or positions.is_inference():
            return self._worked_out(positions, dtype)  # nobody would see whether the places were changed in between
        asked = (positions._version, dtype)
        if self._kept is None or self._kept[0] is not positions or self._kept[1] != asked:
            self._kept = positions, asked, self._worked_out(positions, dtype)
        return self._kept[2]

    def _worked_out(self, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, d), or (B, 1, n, d) where entries of a batch stand elsewhere; the sine of each pair's first component is
        negative.
        """
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        pace = self.scaling.reaching(self.frequencies, self.turned, self.base, positions)
        angles = positions[..., None].to(exact) * pace.to(exact)
        if positions.dim() > 1:
            angles = angles.unsqueeze(-3)
        magnitude = self.scaling.magnitude
        cos, sin = (angles.cos() * magnitude).to(dtype), (angles.sin() * magnitude).to(dtype)
        if self.interleaved:
            return cos.repeat_interleave(2, -1), torch.stack((-sin, sin), -1).flatten(-2)
        return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)

    def __getstate__(self):
        return self.__dict__ | {"_kept": None}  # neither copied nor pickled

    def _frequencies(self, device: torch.device) -> torch.Tensor:
        return self.scaling.frequencies(self.turned, self.base).to(device)

    def _apply(self, fn, recurse=True):
        # A model that is converted to 16 bits, or made on the meta device, must not lose the digits of its frequencies.
        super()._apply(fn, recurse)
        self.frequencies, self._kept = self._frequencies(self.frequencies.device), None
        return self

    def extra_repr(self) -> str:
        more = "" if type(self.scaling) is Scaling else f", scaling={self.scaling}"
        turned = "" if self.turned == self.depth else f", {self.turned} of them turn"
        return f"depth={self.depth}{turned}, base={self.base:g}, interleaved={self.interleaved}{more}"

    @classmethod
    def from_config(cls, config: Any, *, layer_type: str | None = None, interleaved: bool = False) -> Rotary:
        """The rotary positions of a transformers config.

        layer_type: where a config has one set for each kind of layer ("full_attention", "sliding_attention").
        interleaved: no config says it; it is part of the architecture.

        Refused: kinds that this class does not know.

        >>> from types import SimpleNamespace
        >>> config = SimpleNamespace(hidden_size=64, num_attention_heads=4, rope_parameters={"rope_theta": 500000.0})
        >>> Rotary.from_config(config)
        Rotary(depth=16, base=500000, interleaved=False)
        """
        return cls(interleaved=interleaved, **read_config(config, layer_type))
