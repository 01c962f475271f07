"""Images: pixel values for a model from a file, a PIL image or an array; and pixel values as a small PNG."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ...common.errors import first_line, refuse

LARGEST = 200_000  # bytes of a PNG


def pixels(processor: Any, given: Any, text: Any) -> dict[str, Any]:
    """The inputs that the model's own processor computes from an image, and from a text if there is one."""
    image = _image(given)
    named: dict[str, Any] = {"images": [image], "return_tensors": "pt"}
    if text is not None:
        if not hasattr(processor, "tokenizer"):
            raise refuse(
                "look",
                "text= is not used",
                f"text= with an image, and {type(processor).__name__}",
                "a processor of images and text",
                "leave the text out, or pass tokenizer=AutoProcessor.from_pretrained(…)",
            )
        named["text"] = [text] if isinstance(text, str) else list(text)
    return dict(processor(**named))


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


def patches_of(config: Any, values: Any, processor: Any, entry: int) -> tuple[tuple[int, int], bytes] | None:
    """The grid of patches, (rows, columns), and the image as a PNG; None if the model's patch size is not known."""
    inner = getattr(config, "vision_config", config)
    size = getattr(inner, "patch_size", None)
    if getattr(values, "ndim", 0) != 4 or not size:
        return None
    down, across = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    rows, columns = values.shape[2] // down, values.shape[3] // across
    shown = np.moveaxis(values[entry].float().cpu().numpy(), 0, -1)[..., :3]
    return (rows, columns), png(_colors(shown[: rows * down, : columns * across], processor))


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
    return np.rint(np.clip(np.nan_to_num(values), 0, 1) * 255).astype(np.uint8)


def png(colors: np.ndarray) -> bytes:
    """Bytes (rows, columns, 3) as a PNG file, with every second row and column removed until it is small enough."""
    while True:
        rows, columns = colors.shape[:2]
        lines = np.concatenate([np.zeros((rows, 1), np.uint8), colors.reshape(rows, -1)], 1)
        head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
        made = b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in parts
        )
        if len(made) <= LARGEST:
            return made
        colors = colors[::2, ::2]
