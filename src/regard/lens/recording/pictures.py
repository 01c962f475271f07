"""Pictures: what a model sees, from a file, an image or an array, as pixel values; and back, as a small PNG."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ...common.errors import first_line, refuse

__all__ = ["patches_of", "pixels", "png"]

LARGEST = 200_000  # bytes of a PNG


def pixels(processor: Any, picture: Any, text: Any) -> dict[str, Any]:
    """The inputs that the model's own processor makes of a picture, and of a text beside it."""
    image = _image(picture)
    named: dict[str, Any] = {"images": [image], "return_tensors": "pt"}
    if text is not None:
        if not hasattr(processor, "tokenizer"):
            raise refuse(
                "look",
                "a text that is not read",
                given=f"text= beside a picture, and {type(processor).__name__}",
                expected="a processor of both",
                fix="leave the text out, or pass tokenizer=AutoProcessor.from_pretrained(…)",
            )
        named["text"] = [text] if isinstance(text, str) else list(text)
    return dict(processor(**named))


def _image(picture: Any) -> np.ndarray:
    """(rows, columns, 3) bytes."""
    if isinstance(picture, str | Path):
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(picture) as opened:
                return np.array(opened.convert("RGB"))
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise refuse(
                "look",
                "the picture cannot be read",
                given=f"{picture}: {first_line(error)}",
                expected="an image file",
                fix="check the path, or convert it to PNG",
            ) from error
    array = np.asarray(picture.convert("RGB") if hasattr(picture, "convert") else picture)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
        raise refuse(
            "look",
            "not a picture",
            given=f"{array.dtype} {list(array.shape)}",
            expected="a path, an image, or bytes (rows, columns, 3)",
            fix="convert it: array.astype(np.uint8), colours last",
        )
    return array


def patches_of(config: Any, values: Any, processor: Any, entry: int) -> tuple[tuple[int, int], bytes] | None:
    """The grid of patches, (rows, columns), and the picture as a PNG; None where the model's patches are not known."""
    inner = getattr(config, "vision_config", config)
    size = getattr(inner, "patch_size", None)
    if getattr(values, "ndim", 0) != 4 or not size:
        return None
    down, across = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    rows, columns = values.shape[2] // down, values.shape[3] // across
    shown = np.moveaxis(values[entry].float().cpu().numpy(), 0, -1)[..., :3]
    return (rows, columns), png(_colours(shown[: rows * down, : columns * across], processor))


def _colours(values: np.ndarray, processor: Any) -> np.ndarray:
    """Bytes (rows, columns, 3): the processor's own scaling undone, or the values stretched from the smallest to the
    largest.
    """
    inner = getattr(processor, "image_processor", processor)
    mean, spread = getattr(inner, "image_mean", None), getattr(inner, "image_std", None)
    if mean is not None and spread is not None:
        values = values * np.asarray(spread) + np.asarray(mean)
    else:
        low, high = np.nanmin(values), np.nanmax(values)
        values = (values - low) / (high - low if high > low else 1)
    if values.shape[-1] != 3:
        values = np.repeat(values[..., :1], 3, -1)
    return np.rint(np.clip(np.nan_to_num(values), 0, 1) * 255).astype(np.uint8)


def png(colours: np.ndarray) -> bytes:
    """Bytes (rows, columns, 3) as a PNG file; every second row and column only, until it is small enough."""
    while True:
        rows, columns = colours.shape[:2]
        lines = np.concatenate([np.zeros((rows, 1), np.uint8), colours.reshape(rows, -1)], 1)
        head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
        made = b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in parts
        )
        if len(made) <= LARGEST:
            return made
        colours = colours[::2, ::2]
