"""Inputs without data for a model: tokens, images and sound in the sizes that its configuration names.

A model is given what its `forward` requires. There are several forms of images and of sound, and only the model's code
says which one it reads, so candidates are made in a fixed order, and the first that it accepts is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from ..common.errors import refuse

if TYPE_CHECKING:
    from .build import Subject

TOKENS = ("input_ids", "decoder_input_ids", "tokens")
MEDIA = ("pixel_values", "pixel_values_videos", "input_features", "input_values")
SECOND = 16_000  # samples of sound


def reads_tokens(model: Any) -> bool:
    """Whether a model is given tokens, whose number one can choose."""
    takes = inspect.signature(model.forward).parameters
    return bool(set(TOKENS) & takes.keys()) or _config(model) is None


def _config(model: Any) -> Any:
    """The configuration of transformers that a model has, or None: other models call their own sizes so too."""
    found = getattr(model, "config", None)
    return found if hasattr(found, "model_type") else None


def unread(model: Any, given: dict[str, Any]) -> list[str]:
    """Images and sound that the model can be given, and was not."""
    takes = inspect.signature(model.forward).parameters
    return [name for name in MEDIA if name in takes and name not in given and not set(MEDIA) & given.keys()]


def candidates(model: Any, tokens: int, batch: int) -> Iterator[dict[str, Any]]:
    """What the model can be called with, the likeliest first. tokens: in each sequence; an encoder and its decoder read
    as many each.
    """
    takes = inspect.signature(model.forward).parameters
    sizes = _Sizes(_config(model), tokens, batch)
    required = {
        name
        for name, each in takes.items()
        if each.default is inspect.Parameter.empty and each.kind is not inspect.Parameter.VAR_KEYWORD
    }
    main = getattr(model, "main_input_name", "input_ids")
    first = main if isinstance(main, str) else main[0]
    forms = sorted(_forms(sizes), key=lambda form: first not in form)  # stable: the model's main input first
    seen: list[dict[str, Any]] = []
    masks = {each: sizes.ids() for each in required if "mask" in each}
    if len(required) - len(masks) == 1 and sizes.configs == [None]:
        (name,) = required - masks.keys()
        forms = [{name: sizes.ids(), **masks}, {name: _features(model, sizes), **masks}]
        yield from forms if name in TOKENS or _embeds(model) else reversed(forms)
        return
    for more in (required, set(EXTRAS)):
        for form in forms:
            given = {name: made for name, made in form.items() if name in takes}
            if not given:
                continue
            given |= {
                name: EXTRAS[name](sizes) for name in takes if name in more and name in EXTRAS and name not in given
            }
            if "decoder_input_ids" in takes:
                given["decoder_input_ids"] = sizes.ids()
            shapes = {name: getattr(each, "shape", None) for name, each in given.items()}
            if required <= given.keys() and shapes not in seen:
                seen.append(shapes)
                yield given
    if not seen:
        raise refuse(
            "cost",
            "no inputs are known for the model",
            f"{type(model).__name__}.forward({', '.join(list(takes)[:6])}, …)",
            "a model that reads input_ids, pixel_values, input_features or input_values, or inputs",
            "pass the language model or the image model inside it"
            if sizes.configs != [None]
            else "pass inputs: a tensor, tuple or dict of what its forward takes (the command: --inputs NAME)",
        )


def by_name(model: nn.Module, inputs: Any) -> dict[str, Any]:
    """A tensor, tuple or dict of inputs as arguments of forward by their names."""
    signature = inspect.signature(model.forward)
    try:
        if isinstance(inputs, Mapping):
            bound = signature.bind(**inputs)
        else:
            bound = signature.bind(*(inputs if isinstance(inputs, tuple | list) else (inputs,)))
    except TypeError as error:
        raise refuse(
            "cost",
            "the inputs do not fit the model",
            f"{type(model).__name__}.forward: {error}",
            "a tensor, a tuple of its arguments, or a dict by their names",
            f"pass {', '.join(signature.parameters)}",
        ) from error
    extra = next((name for name, each in signature.parameters.items() if each.kind is each.VAR_KEYWORD), None)
    named = dict(bound.arguments)
    if extra in named:  # what **kwargs takes
        named |= named.pop(extra)
    return named


def without_data(made: Subject) -> dict[str, Any]:
    """The inputs that the caller gave on the meta device; numbers have the dtype of the model."""
    return tree_map_only(
        torch.Tensor, lambda each: each.to("meta", made.dtype if each.is_floating_point() else each.dtype), made.inputs
    )


def with_values(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Random inputs of the same shapes."""
    dtype = next(model.parameters()).dtype
    words = getattr(getattr(model, "config", None), "vocab_size", None) or 2
    return {
        name: torch.randn(each.shape).to(dtype) if each.is_floating_point() else torch.randint(1, words, each.shape)
        for name, each in given.items()
    }


def _embeds(model: nn.Module) -> bool:
    """Whether the first module with parameters, besides those that hold others, looks up tokens."""
    first = next((module for module in model.modules() if module._parameters and not module._modules), None)
    return isinstance(first, nn.Embedding)


def _features(model: nn.Module, sizes: _Sizes) -> torch.Tensor:
    """Rows of numbers, as wide as the first linear layer or attention reads."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.MultiheadAttention):
            width = module.in_features if isinstance(module, nn.Linear) else module.embed_dim
            return sizes.zeros(sizes.tokens, width).to(next(module.parameters()).dtype)
    return sizes.zeros(sizes.tokens)


class _Sizes:
    """Sizes of a configuration and its parts, and tensors of them."""

    def __init__(self, config: Any, tokens: int, batch: int):
        self.tokens, self.batch = tokens, batch
        self.configs = [config]
        for each in self.configs:
            parts = [getattr(each, name, None) for name in getattr(each, "sub_configs", None) or ()]
            self.configs += [part for part in parts if hasattr(part, "sub_configs")]

    def __call__(self, *names: str, default: int) -> int:
        """The first of these fields that the configuration or one of its parts has."""
        for name in names:
            for config in self.configs:
                found = getattr(config, name, None)
                found = found[0] if isinstance(found, list | tuple) and found else found
                if isinstance(found, int) and not isinstance(found, bool) and found > 0:
                    return found
        return default

    def ids(self) -> torch.Tensor:
        return torch.zeros(self.batch, self.tokens, dtype=torch.long, device="meta")

    def zeros(self, *shape: int) -> torch.Tensor:
        """Zeros of (batch, …)."""
        return torch.zeros(self.batch, *shape, device="meta")

    def image(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        channels = self("num_channels", "in_channels", "in_chans", default=3)
        for config in self.configs:
            found = getattr(config, "image_size", None)
            if isinstance(found, list | tuple) and len(found) >= 2:
                return channels, int(found[-2]), int(found[-1])
            if isinstance(found, dict) and "height" in found:
                return channels, found["height"], found["width"]
        size = self("image_size", "img_size", "crop_size", default=224)
        return channels, size, size

    def frames(self) -> int:
        """Frames of sound."""
        return 2 * self("max_source_positions", default=1500)

    def patch(self) -> tuple[int, int]:
        """(numbers of a patch, side of a grid of patches)."""
        side = self("patch_size", default=16)
        merge = self("spatial_merge_size", "merge_size", default=2)
        numbers = self.image()[0] * self("temporal_patch_size", default=1) * side * side
        return numbers, 2 * merge * max(self("window_size", default=0) // (side * merge), 1)

    def grid(self) -> torch.Tensor:
        """(images, 3): frames, height and width in patches, with values."""
        side = self.patch()[1]
        return torch.tensor([[1, side, side]] * self.batch, device="cpu")

    def patches(self) -> torch.Tensor:
        numbers, side = self.patch()
        return torch.zeros(self.batch * side * side, numbers, device="meta")


def _forms(sizes: _Sizes) -> Iterator[dict[str, Any]]:
    """Main inputs, alone and together."""
    image = sizes.image()
    frames = sizes("num_frames", "frames_per_clip", default=2)
    text = {name: sizes.ids() for name in TOKENS}
    video = sizes.zeros(frames, *image)
    mels = sizes(
        "num_mel_bins", "feature_size", "n_mels", "input_feat_per_channel", "mel_bins", "input_dim", default=80
    )
    hidden = sizes("feature_projection_input_dim", "input_size", "hidden_size", default=mels)
    length = sizes.frames()
    sounds = [{"input_features": sizes.zeros(*shape)} for shape in ((mels, length), (length, mels), (length, hidden))]
    sounds.append({"input_features": sizes.zeros(1, length, mels)})
    width = sizes("max_length", "spec_size", default=1024)
    waves = [{"input_values": sizes.zeros(*shape)} for shape in ((SECOND,), (1, SECOND), (width, mels))]
    images = [
        *({"pixel_values": each} for each in (sizes.zeros(*image), video, sizes.zeros(2, *image))),
        {"pixel_values_videos": video},
    ]
    if sizes("num_frames", default=0):
        images = [images[1], images[0], *images[2:]]
    grid = {"grid_thw": sizes.grid(), "image_grid_thw": sizes.grid()}
    patches = [{"hidden_states": sizes.patches(), **grid}, {"pixel_values": sizes.patches(), **grid}]
    side = sizes.patch()[1]
    rows = sizes.zeros(side * side, sizes.patch()[0])
    patches.append(
        {"pixel_values": rows, **{name: EXTRAS[name](sizes) for name in ("spatial_shapes", "pixel_attention_mask")}}
    )
    corners = [[x, y] for y in range(side) for x in range(side)]  # of each patch
    positions = torch.tensor([corners] * sizes.batch, device="cpu")
    patches.append({"pixel_values": rows, "pixel_position_ids": positions})
    yield text
    yield from images
    yield from sounds
    yield from waves
    yield from patches
    for other in (*images, *sounds, *waves, *patches):
        yield text | other
    for name, make in SERIES.items():
        yield {name: make(sizes)}


def _states(sizes: _Sizes) -> torch.Tensor:
    return sizes.zeros(sizes.tokens, sizes("hidden_size", default=32))


def _shown(sizes: _Sizes) -> torch.Tensor:
    """Which frames of sound are real: all."""
    return torch.ones(sizes.batch, sizes.frames(), dtype=torch.bool, device="meta")


# Main inputs of a few models.
SERIES: dict[str, Callable[[_Sizes], torch.Tensor]] = {
    "past_values": lambda sizes: sizes.zeros(
        sizes("context_length", default=64), sizes("num_input_channels", default=1)
    ),
    "flattened_patches": lambda sizes: sizes.zeros(sizes("max_patches", "seq_len", default=64), 2 + sizes.patch()[0]),
    "audio_mel": lambda sizes: sizes.zeros(sizes.frames(), sizes("input_feat_size", "num_mel_bins", default=128)),
    "states": lambda sizes: sizes.zeros(sizes.tokens, sizes("state_dim", default=17)),
    "inputs": lambda sizes: sizes.zeros(SECOND),
    "input": _Sizes.ids,
    "hidden_states": _states,
    "inputs_embeds": _states,
    "query_embeds": _states,
    "noise_embeds": _states,
}


def _squares(sizes: _Sizes) -> torch.Tensor:
    side = sizes.patch()[1]
    return torch.tensor([[side, side]] * sizes.batch, device="cpu")


# What some models need beside their main input.
EXTRAS: dict[str, Callable[[_Sizes], Any]] = {
    "input_ids": _Sizes.ids,
    "bbox": lambda sizes: torch.zeros(sizes.batch, sizes.tokens, 4, dtype=torch.long, device="meta"),
    "qformer_input_ids": _Sizes.ids,
    "grid_thw": _Sizes.grid,
    "image_grid_thw": _Sizes.grid,
    "spatial_shapes": _squares,
    "pixel_attention_mask": lambda sizes: torch.ones(
        sizes.batch, sizes.patch()[1] ** 2, dtype=torch.bool, device="meta"
    ),
    "target_sizes": _squares,
    "merge_sizes": lambda sizes: torch.ones(sizes.batch, dtype=torch.long, device="cpu"),
    "input_features_mask": _shown,
    "audio_mel_mask": lambda sizes: ~_shown(sizes),  # true where there is none
    "visual_feats": lambda sizes: sizes.zeros(4, sizes("visual_feat_dim", default=2048)),
    "visual_pos": lambda sizes: sizes.zeros(4, 4),
    "actions": lambda sizes: sizes.zeros(sizes.tokens, sizes("act_dim", default=4)),
    "rewards": lambda sizes: sizes.zeros(sizes.tokens, 1),
    "returns_to_go": lambda sizes: sizes.zeros(sizes.tokens, 1),
    "timesteps": _Sizes.ids,
    "pixel_values": lambda sizes: sizes.zeros(*sizes.image()),
    "input_values": lambda sizes: sizes.zeros(SECOND),
}
