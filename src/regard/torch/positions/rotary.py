"""Rotary positions: pairs of components are rotated by the position, so that scores depend on distances only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...common.errors import Reason, Refused, did_you_mean, refuse
from ...common.text.keywords import known_arguments
from .position import Position, fitting
from .scaling import DynamicNTK, Linear, Llama3, LongRoPE, Scaling, YaRN


@known_arguments
class Rotary(Position):
    """Rotates each pair of components of queries and keys by the angle position · θᵢ, with θᵢ = base^(−2i/d).

    x′₂ᵢ = x₂ᵢ cos − x₂ᵢ₊₁ sin, x′₂ᵢ₊₁ = x₂ᵢ₊₁ cos + x₂ᵢ sin; then q′·k′ depends on the positions only through their
    difference.

    The angles are computed at each call in float32 (float64 for float64 `x`), also under autocast, from frequencies θᵢ
    in float32. Positions may be any integers. The module has no parameters, and its state_dict is empty.

    Args:
        depth: D, the depth of queries and keys.
        base: the base of the angles, above 1.
        interleaved: whether components 2i and 2i + 1 form a pair (GPT-J, Cohere, GLM); by default components i and
            i + d/2 do (Llama, GPT-NeoX).
        fraction: the fraction of the depth that is rotated, d = int(depth · fraction); the rest is unchanged.
        scaling: how angles change for inputs longer than those in training: Linear, NTK, DynamicNTK, YaRN, Llama3 or
            LongRoPE. None changes nothing.

    Raises:
        Refused: the rotated depth is not even, or an argument is invalid; the error lists every problem.

    Source:
        Su et al. 2021.

    Examples:
        >>> import torch
        >>> from regard.torch.positions import Rotary
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
        scaling: Scaling | None = None,
    ):
        super().__init__()
        turned = int(depth * fraction)
        wrong = []
        if not 0 < fraction <= 1:
            wrong.append(
                Reason(
                    "fraction is not between 0 and 1",
                    f"{fraction!r}",
                    "above 0, at most 1",
                    "omit it to rotate the whole depth",
                )
            )
        elif turned < 2 or turned % 2:
            wrong.append(
                Reason(
                    "the rotated depth is not even",
                    f"depth={depth}, fraction={fraction}: {turned} components",
                    "an even number, at least 2",
                    "pass an even depth, or another fraction",
                )
            )
        if not base > 1:
            wrong.append(
                Reason(
                    "base is too small",
                    f"{base!r}",
                    "a number above 1, usually 10000",
                    "take it from the model's config",
                )
            )
        unchecked: Any = scaling
        if unchecked is not None and not isinstance(unchecked, Scaling):
            wrong.append(
                Reason(
                    "scaling has an unsupported type",
                    f"{scaling!r}",
                    "Linear, NTK, DynamicNTK, YaRN, Llama3 or LongRoPE",
                    "for a transformers config: Rotary.from_config(config)",
                )
            )
        if wrong:
            raise Refused("Rotary", wrong)
        self.depth, self.base, self.interleaved, self.turned = depth, float(base), interleaved, turned
        self.scaling = Scaling() if scaling is None else scaling
        self._cached: tuple | None = None
        self.register_buffer("frequencies", self._frequencies(torch.get_default_device()), persistent=False)

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotates queries or keys.

        Args:
            x: (B, heads, n, depth) queries or keys.
            positions: (n,) or (B, n) integers.

        Returns:
            (B, heads, n, depth) in the dtype of `x`.

        Raises:
            Refused: shapes that do not fit, or positions that are not integers.
        """
        if x.shape[-1] != self.depth:
            raise refuse(
                "Rotary",
                "x does not have the depth of Rotary",
                f"x {tuple(x.shape)}",
                f"(…, n, {self.depth})",
                "construct Rotary with the depth of a head: d_model / heads",
            )
        cos, sin = self._cos_sin(fitting("Rotary", x, positions), x.dtype)
        part, rest = x[..., : self.turned], x[..., self.turned :]
        half = self.turned // 2
        partner = part.unflatten(-1, (half, 2)).flip(-1).flatten(-2) if self.interleaved else part.roll(half, -1)
        rotated = part * cos + partner * sin
        return torch.cat((rotated, rest), dim=-1) if rest.shape[-1] else rotated

    def _cos_sin(self, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of these positions, cached because keys and all layers use the same positions tensor."""
        if torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or positions.is_inference():
            return self._computed(positions, dtype)  # no version counter: changes in place could not be detected
        version = (positions._version, dtype)
        if self._cached is None or self._cached[0] is not positions or self._cached[1] != version:
            self._cached = positions, version, self._computed(positions, dtype)
        return self._cached[2]

    def _computed(self, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, d), or (B, 1, n, d) for positions (B, n); the sine of each pair's first component is negated."""
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        frequencies = self.scaling.reaching(self.frequencies, self.turned, self.base, positions)
        angles = positions[..., None].to(exact) * frequencies.to(exact)
        if positions.dim() > 1:
            angles = angles.unsqueeze(-3)
        magnitude = self.scaling.magnitude
        cos, sin = (angles.cos() * magnitude).to(dtype), (angles.sin() * magnitude).to(dtype)
        if self.interleaved:
            return cos.repeat_interleave(2, -1), torch.stack((-sin, sin), -1).flatten(-2)
        return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)

    def __getstate__(self):
        return self.__dict__ | {"_cached": None}  # neither copied nor pickled

    def _frequencies(self, device: torch.device) -> torch.Tensor:
        return self.scaling.frequencies(self.turned, self.base).to(device)

    def _apply(self, fn, recurse=True):
        # The frequencies stay in float32 when a model is converted to 16 bits or created on the meta device.
        super()._apply(fn, recurse)
        self.frequencies, self._cached = self._frequencies(self.frequencies.device), None
        return self

    def extra_repr(self) -> str:
        """The settings that repr(module) shows."""
        more = "" if type(self.scaling) is Scaling else f", scaling={self.scaling}"
        turned = "" if self.turned == self.depth else f", {self.turned} of them rotated"
        return f"depth={self.depth}{turned}, base={self.base:g}, interleaved={self.interleaved}{more}"

    @classmethod
    def from_config(cls, config: Any, *, layer_type: str | None = None, interleaved: bool = False) -> Rotary:
        """Reads the rotary positions of a transformers config.

        Args:
            config: a config of transformers.
            layer_type: the type of layer, such as "full_attention" or "sliding_attention", if the config has separate
                settings per type; otherwise None.
            interleaved: whether neighboring components form a pair. This is part of the architecture, not of the
                config.

        Returns:
            The position encoding with the depth, base, fraction and scaling of the config.

        Raises:
            Refused: the type of rotary positions is not supported, or a setting is missing.

        Examples:
            >>> from types import SimpleNamespace
            >>> rope = {"rope_theta": 500000.0}
            >>> Rotary.from_config(SimpleNamespace(hidden_size=64, num_attention_heads=4, rope_parameters=rope))
            Rotary(depth=16, base=500000, interleaved=False)
        """
        return cls(interleaved=interleaved, **read_config(config, layer_type))


def read_config(config: Any, layer_type: str | None = None) -> dict[str, Any]:
    """The arguments depth, base, fraction and scaling of `Rotary` for a config."""
    given = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = {name: part for name, part in given.items() if isinstance(part, dict)}
    if not nested and layer_type is not None:
        raise refuse(
            "Rotary.from_config",
            "all layers have the same angles",
            f"layer_type={layer_type!r}",
            "layer_type=None: rope_parameters are the same for all layer types",
            "omit layer_type",
        )
    if nested and layer_type in given and layer_type not in nested:
        raise refuse(
            "Rotary.from_config",
            "layers of this type have no rotary positions",
            f"{layer_type!r}: {given[layer_type]}",
            f"one of {', '.join(map(repr, nested))}",
            "construct these layers with positions=None",
        )
    if nested and layer_type not in nested:
        raise refuse(
            "Rotary.from_config",
            "layer_type is missing or unknown",
            f"layer_type={layer_type!r}",
            f"one of {', '.join(map(repr, nested))}",
            "pass layer_type=…: each type has its own angles",
        )
    if nested:
        given = nested[str(layer_type)]
    depth = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    base = given.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0
    fraction = given.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1.0
    return {"depth": depth, "base": base, "fraction": fraction, "scaling": _scaling(config, given)}


# By type: the scaling, and the names of its settings in a config. Those after the first tuple may be missing.
TRAINED = "original_max_position_embeddings"
SCALINGS: dict[str, tuple[Callable[..., Scaling], tuple[str, ...], tuple[str, ...]]] = {
    "linear": (Linear, ("factor",), ()),
    "dynamic": (DynamicNTK, ("factor", "max_position_embeddings"), ()),
    "yarn": (
        YaRN,
        ("factor", TRAINED),
        ("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"),
    ),
    "llama3": (Llama3, ("factor", TRAINED, "low_freq_factor", "high_freq_factor"), ()),
    "longrope": (LongRoPE, ("factor", TRAINED, "short_factor", "long_factor"), ("attention_factor",)),
}


def _scaling(config: Any, given: dict[str, Any]) -> Scaling | None:
    kind = "mrope" if "mrope_section" in given else given.get("rope_type") or given.get("type") or "default"
    if kind == "default":
        return None
    if kind not in SCALINGS:
        known = ("default", *SCALINGS)
        raise refuse(
            "Rotary.from_config",
            "this type of rotary positions is not supported",
            f"rope_type={kind!r}",
            ", ".join(known),
            did_you_mean(kind, known),
        )
    longest = getattr(config, "max_position_embeddings", None)
    trained = getattr(config, TRAINED, None) or given.get(TRAINED) or longest
    settings = given | {TRAINED: trained, "max_position_embeddings": longest}
    if kind in ("yarn", "longrope") and not given.get("factor") and longest and trained:
        settings["factor"] = longest / trained
    scaling, needed, optional = SCALINGS[kind]
    missing = [name for name in needed if settings.get(name) is None]
    if missing:
        raise refuse(
            "Rotary.from_config",
            f"the config does not specify {', '.join(missing)}",
            f"{given}",
            f"every setting that rope_type={kind!r} needs",
            "complete rope_parameters",
        )
    values = [tuple(part) if isinstance(part := settings[name], list) else part for name in needed]
    return scaling(*values, **{name: given[name] for name in optional if given.get(name) is not None})
