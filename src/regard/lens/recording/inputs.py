"""The inputs of a model and the axes that follow from them: texts, pairs of texts, images, or given inputs."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ...common.errors import first_line, refuse
from ...common.text.characters import clipped
from ...torch.hf.load_model import Opened
from ..runs.axis import IMAGE, Axis, Segment
from .keeper import PatchGrid
from .token_text import fit, spelled, unknown

LARGEST = 200_000  # bytes of a PNG
PLACES = ("boi_token", "image_token")  # of a processor: what is in a text where an image is


def _image(given: Any) -> np.ndarray:
    """(rows, columns, 3) bytes."""
    if isinstance(given, str | Path):
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(given) as opened:
                return np.array(opened.convert("RGB"))
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise refuse(
                "look",
                "the image cannot be read",
                f"{given}: {first_line(error)}",
                "an image file",
                "check the path, or convert it to PNG",
            ) from error
    array = np.asarray(given.convert("RGB") if hasattr(given, "convert") else given)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
        raise refuse(
            "look",
            "not an image",
            f"{array.dtype} {list(array.shape)}",
            "a path, a PIL image, or a uint8 array (rows, columns, 3)",
            "convert it with array.astype(np.uint8), colors last",
        )
    return array


def patches_of(config: Any, values: Any, processor: Any, entry: int) -> PatchGrid | None:
    """The grid of patches, (rows, columns), and the image as a PNG; None if the model's patch size is not known."""
    inner = getattr(config, "vision_config", config)
    size = getattr(inner, "patch_size", None)
    if getattr(values, "ndim", 0) != 4 or not size:
        return None
    down, across = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    rows, columns = values.shape[2] // down, values.shape[3] // across
    shown = np.moveaxis(values[entry].float().cpu().numpy(), 0, -1)[..., :3]
    return PatchGrid((rows, columns), png(_colors(shown[: rows * down, : columns * across], processor)))


def _with_image(axis: Axis, opened: Opened, held: Mapping[str, Any]) -> Axis:
    """The axis of a text with what its image tokens represent: images of any sizes, or the tiles that a processor cut
    them into. Unchanged if the inputs do not tell where each token is.
    """
    token = getattr(opened.model.config, "image_token_id", None)
    places = [i for i, number in enumerate(axis.ids or ()) if number == token]
    tiles = list(_tiles(opened.model.config, held, len(places))) if places else []
    if not places or sum(rows * columns for rows, columns, _ in tiles) != len(places):
        return axis
    laid, picture = _mosaic(tiles)
    grid = max(rows + top for rows, _, top, _ in laid), max(columns + left for _, columns, _, left in laid)
    colors = _colors(picture.permute(1, 2, 0).cpu().numpy(), opened.tokenizer)
    special = [marked and i not in places for i, marked in enumerate(axis.special)]
    parts = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    segments = tuple(Segment(int(part[0]), int(part[-1]) + 1, IMAGE) for part in parts)
    several = tuple(laid) if len(laid) > 1 else ()
    return replace(axis, special=tuple(special), grid=grid, picture=png(colors), segments=segments, tiles=several)


Tile = tuple[int, int, torch.Tensor]  # rows and columns of tokens, and the colors (3, height, width)


def _tiles(config: Any, held: Mapping[str, Any], count: int) -> Iterator[Tile]:
    """The images that so many tokens of a text represent, in the order of the tokens."""
    values, grids, sizes = (held.get(name) for name in ("pixel_values", "image_grid_thw", "image_sizes"))
    vision: Any = getattr(config, "vision_config", None)
    if values is None or vision is None:
        return
    size, corners = vision.patch_size, getattr(config, "image_grid_pinpoints", None)
    values = values.float()
    if grids is not None:  # Qwen-VL: flat patches, in blocks that the model merges
        merged = vision.spatial_merge_size
        for (frames, high, wide), own in zip(grids.tolist(), values.split(grids.prod(-1).tolist()), strict=True):
            shape = frames, high // merged, wide // merged, merged, merged, 3, -1, size, size
            blocks = own.reshape(shape)[:, :, :, :, :, :, 0].permute(0, 5, 1, 3, 6, 2, 4, 7)
            for image in blocks.reshape(-1, 3, high * size, wide * size):
                yield high // merged, wide // merged, image
    elif values.ndim == 5 and corners and sizes is not None:  # LLaVA-NeXT: a picture, then its parts, larger
        from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape, unpad_image

        for own, shape in zip(values, sizes.tolist(), strict=True):
            high, wide = own.shape[-2] // size, own.shape[-1] // size
            yield high, wide, own[0, :, : high * size, : wide * size]
            down, across = get_anyres_image_grid_shape(shape, corners, own.shape[-1])
            parts = own[1 : 1 + down * across, :, : high * size, : wide * size].unflatten(0, (down, across))
            whole = parts.permute(2, 0, 3, 1, 4).reshape(3, down * high * size, across * wide * size)
            patches = torch.arange(down * high * across * wide).reshape(1, down * high, across * wide)
            seen = unpad_image(patches, shape)[0]  # without what fills the parts, and with the end of each row
            top, left = divmod(int(seen[0, 0]), across * wide)
            (rows, columns), left, top = seen.shape, left * size, top * size
            whole = whole[:, top : top + rows * size, left : left + columns * size]
            yield rows, columns + 1, F.pad(whole, (0, size), value=torch.nan)
    else:
        tiles = values.reshape(-1, *values.shape[-3:])
        tiles = tiles[tiles.flatten(1).any(1)] if values.ndim == 5 else tiles  # those that only fill a batch are 0
        each, (height, width) = count // max(1, len(tiles)), tiles.shape[-2:]
        rows = max(1, round(math.sqrt(each * height / width)))
        for image in tiles:
            yield rows, each // rows, image


def _mosaic(tiles: Sequence[Tile]) -> tuple[list[tuple[int, int, int, int]], torch.Tensor]:
    """(rows, columns, top, left) of each image, in as many rows as columns of images, and all of them as one (3,
    height, width), with NaN where nothing is.
    """
    (rows, columns, first), across = tiles[0], math.ceil(math.sqrt(len(tiles)))
    high, wide = first.shape[-2] // rows, first.shape[-1] // columns  # pixels of a patch
    laid: list[tuple[int, int, int, int]] = []
    left = top = bottom = 0
    for number, (rows, columns, _) in enumerate(tiles):
        if number % across == 0:
            left, top = 0, bottom
        laid.append((rows, columns, top, left))
        left, bottom = left + columns, max(bottom, top + rows)
    picture = first.new_full((3, bottom * high, wide * max(columns + left for _, columns, _, left in laid)), torch.nan)
    for (rows, columns, top, left), (*_, image) in zip(laid, tiles, strict=True):
        fitted = F.interpolate(image[None], (rows * high, columns * wide))[0]
        picture[:, top * high : (top + rows) * high, left * wide : (left + columns) * wide] = fitted
    return laid, picture


def _colors(values: np.ndarray, processor: Any) -> np.ndarray:
    """Bytes (rows, columns, 3): the processor's normalization undone, or the range of values scaled to 0 … 255."""
    inner = getattr(processor, "image_processor", processor)
    mean, spread = getattr(inner, "image_mean", None), getattr(inner, "image_std", None)
    if mean is not None and spread is not None:
        values = values * np.asarray(spread) + np.asarray(mean)
    else:
        low, high = np.nanmin(values), np.nanmax(values)
        values = (values - low) / (high - low if high > low else 1)
    if values.shape[-1] != 3:
        values = np.repeat(values[..., :1], 3, -1)
    return np.rint(np.clip(np.nan_to_num(values, nan=0.5), 0, 1) * 255).astype(np.uint8)


def png(colors: np.ndarray) -> bytes:
    """Bytes (rows, columns, 3) as a PNG file, with every second row and column removed until it is small enough."""
    from PIL import Image

    while True:
        file = io.BytesIO()
        Image.fromarray(colors).save(file, "PNG")
        if file.tell() <= LARGEST:
            return file.getvalue()
        colors = colors[::2, ::2]


@dataclass(eq=False)
class Given:
    """The arguments of the model, the text, and the axes that are known beforehand. batch: the batch size."""

    inputs: dict[str, Any]
    text: str
    axes: dict[str, Axis] = field(default_factory=dict)
    batch: int = 1
    patches: PatchGrid | None = None


def given_text(
    opened: Opened, text: str | Sequence[str], target: str | Sequence[str] | None, entry: int, writes: int
) -> Given:
    """The inputs of one text, or of several texts of which `entry` is recorded.

    Refused: a text without tokens, a text longer than the model allows, an encoder–decoder without a target.
    """
    if opened.tokenizer is None:
        raise refuse(
            "look",
            "a text without a tokenizer",
            f"{type(opened.model).__name__} and a text",
            "the tokenizer of the model",
            "pass tokenizer=, or inputs= instead of the text",
        )
    texts, many = ([text], False) if isinstance(text, str) else (list(text), True)
    if not texts or not all(isinstance(each, str) for each in texts):
        raise refuse(
            "look",
            "not a text",
            f"{type(text).__name__} {clipped(str(text), 40)!r}",
            "a string, or a list of strings",
            "pass the text itself",
        )
    encoder_decoder = bool(getattr(opened.model.config, "is_encoder_decoder", False))
    if encoder_decoder and target is None and not writes:
        raise refuse(
            "look",
            "an encoder–decoder model without a target text",
            f"{opened.name} and one text",
            "the target text for its decoder as well",
            "pass target=, or generate the target with generate=20",
        )
    if target is not None and (not encoder_decoder or writes):
        raise refuse(
            "look",
            "target= is not used",
            f"target= for {opened.name}" + (f" with generate={writes}" if writes else ""),
            "an encoder–decoder model, without generate=",
            "leave target= out",
        )
    encoded, axis = _encoded(opened, texts, many, entry, writes > 0 and not encoder_decoder)
    device = opened.model.device
    inputs = {name: torch.tensor(values, device=device) for name, values in encoded.items()}
    axes = {"source" if encoder_decoder else "text": axis}
    if target is not None:
        targets = [target] if isinstance(target, str) else list(target)
        if len(targets) != len(texts):
            raise refuse(
                "look",
                "the number of targets is not the number of texts",
                f"{len(texts)} texts, {len(targets)} targets",
                "one target per text",
                "pass a target for every text",
            )
        ids, axes["target"] = _decoded(opened, targets, many, entry)
        inputs["decoder_input_ids"] = torch.tensor(ids, device=device)
    return Given(inputs, texts[entry], axes, len(texts))


def _encoded(opened: Opened, texts: list[str], many: bool, entry: int, left: bool) -> tuple[dict[str, Any], Axis]:
    """The output of the tokenizer, and the axis of the recorded text."""
    tokenizer = opened.tokenizer
    if not 0 <= entry < len(texts):
        raise refuse("look", "no such batch entry", f"entry={entry}", f"0 … {len(texts) - 1}", "count from 0")
    if many and tokenizer.pad_token_id is None:
        raise refuse(
            "look",
            "the texts cannot be padded",
            f"{len(texts)} texts, and a tokenizer without a padding token",
            "a padding token",
            "set tokenizer.pad_token = tokenizer.eos_token",
        )
    fast = bool(tokenizer.is_fast)
    side = {"padding": True, "padding_side": "left" if left else tokenizer.padding_side} if many else {}
    encoded = tokenizer(texts, return_special_tokens_mask=True, return_offsets_mapping=fast, verbose=False, **side)
    flags = encoded.pop("special_tokens_mask")[entry]
    offsets = encoded.pop("offset_mapping")[entry] if fast else None
    ids = encoded["input_ids"][entry]
    fit(texts[entry], flags, opened.longest, opened.name)
    lacking = unknown(tokenizer, texts[entry], ids, offsets)
    return dict(encoded), Axis.of(spelled(tokenizer, ids, offsets), flags, ids=ids, unknown=lacking)


def _decoded(opened: Opened, targets: list[str], many: bool, entry: int) -> tuple[list[list[int]], Axis]:
    """The decoder's input ids: its start token, then the target without its end token."""
    config, tokenizer = opened.model.config, opened.tokenizer
    starts = (
        getattr(owner, "decoder_start_token_id", None)
        for owner in (getattr(opened.model, "generation_config", None), config)
    )
    start = next((token for token in starts if token is not None), tokenizer.bos_token_id)
    if start is None:
        raise refuse(
            "look",
            "decoder_start_token_id is not set",
            f"{opened.name}, and a tokenizer without a bos token",
            "the id of the token that the decoder starts with",
            "set model.config.decoder_start_token_id",
        )
    encoded = tokenizer(text_target=targets, return_special_tokens_mask=True, padding=many, verbose=False)
    rows = [[start, *(ids[:-1] if ids and ids[-1] == tokenizer.eos_token_id else ids)] for ids in encoded["input_ids"]]
    width, own = max(map(len, rows)), rows[entry]
    flags = [True, *encoded["special_tokens_mask"][entry]][: len(own)]
    more = width - len(own)
    words = (*spelled(tokenizer, own, None), *[""] * more)
    axis = Axis.of(words, [*flags, *[True] * more], "target", [*own, *[0] * more])
    return [[*row, *[tokenizer.pad_token_id or 0] * (width - len(row))] for row in rows], axis


def given_inputs(opened: Opened, inputs: Any, entry: int) -> Given:
    """The given arguments of the model by name, or its main input alone. Ids become tokens if there is a tokenizer,
    otherwise numbers.
    """
    held = dict(inputs) if isinstance(inputs, Mapping) else {opened.model.main_input_name: inputs}
    given = Given(held, "")
    for name, axis in (("input_ids", "text"), ("decoder_input_ids", "target")):
        ids = held.get(name)
        if ids is None:
            continue
        rows = np.asarray(ids.tolist() if hasattr(ids, "tolist") else ids)
        if rows.ndim == 3:  # a position has a token per channel of a sound: it is named by that of the first
            rows = rows[:, :, 0]
        if rows.ndim != 2 or not 0 <= entry < len(rows):
            raise refuse(
                "look",
                "no such batch entry",
                f"entry={entry} of {name} {list(rows.shape)}",
                f"0 … {len(rows) - 1} of (batch, tokens)",
                "count from 0",
            )
        given.batch = len(rows)
        given.axes[axis] = _axis_of_ids(opened, rows[entry].tolist(), axis)
    if getattr(opened.model.config, "is_encoder_decoder", False):
        given.axes = {{"text": "source"}.get(name, name): axis for name, axis in given.axes.items()}
    if "input_ids" in held and opened.words is not None:
        given.text = opened.words.decode(held["input_ids"][entry], skip_special_tokens=True)
    given.patches = patches_of(opened.model.config, held.get("pixel_values"), opened.tokenizer, entry)
    if "text" in given.axes and given.batch == 1:
        given.axes["text"] = _with_image(given.axes["text"], opened, held)
    if not given.axes:
        first = next((value for value in held.values() if getattr(value, "ndim", 0) > 1), None)
        given.batch = 1 if first is None else first.shape[0]
    return given


def given_image(opened: Opened, image: Any, text: str | Sequence[str] | None, entry: int) -> Given:
    """The inputs of an image, and of a text if the model also reads one; the image comes before a text that does not
    say where it is.
    """
    if opened.tokenizer is None:
        raise refuse(
            "look",
            "an image without a processor",
            f"{type(opened.model).__name__} and an image",
            "the processor of the model",
            "pass tokenizer=AutoImageProcessor.from_pretrained(…), or inputs={'pixel_values': …}",
        )
    named: dict[str, Any] = {"images": [_image(image)], "return_tensors": "pt"}
    if text is not None:
        if not hasattr(opened.tokenizer, "tokenizer"):
            raise refuse(
                "look",
                "text= is not used",
                f"text= with an image, and {type(opened.tokenizer).__name__}",
                "a processor of images and text",
                "leave the text out, or pass tokenizer=AutoProcessor.from_pretrained(…)",
            )
        # A text in which the token of the image is missing begins with it; Gemma's processor calls it boi_token.
        place = next((str(getattr(opened.tokenizer, name)) for name in PLACES if hasattr(opened.tokenizer, name)), "")
        texts = [text] if isinstance(text, str) else list(text)
        named["text"] = [each if place in each else f"{place}{each}" for each in texts]
    made = opened.tokenizer(**named)
    return given_inputs(opened, {name: part.to(opened.model.device) for name, part in made.items()}, entry)


def _axis_of_ids(opened: Opened, ids: list[int], name: str) -> Axis:
    if opened.words is None:
        return Axis.of([str(number) for number in ids], name=name, ids=ids)
    special = set(opened.words.all_special_ids)
    return Axis.of(spelled(opened.words, ids, None), [number in special for number in ids], name, ids)
