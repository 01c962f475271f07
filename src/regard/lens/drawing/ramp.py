"""The color map: 256 perceptually uniform colors, for light and for dark backgrounds.

The path runs through OKLab (Ottosson 2020), a color space in which distance approximates perceived difference.
Lightness is monotonic along it, so the color map also works in grayscale and for color-blind readers.
"""

from __future__ import annotations

from functools import cache

import numpy as np

# Lightness, chroma, hue in degrees: from the background to the strongest color.
PATHS = {
    "light": [(0.975, 0.008, 100), (0.86, 0.085, 105), (0.70, 0.125, 165), (0.50, 0.105, 225), (0.22, 0.105, 290)],
    "diverging-light": [(0.38, 0.13, 250), (0.68, 0.10, 240), (0.965, 0.008, 100), (0.68, 0.13, 45), (0.38, 0.13, 30)],
    "diverging-dark": [(0.80, 0.11, 230), (0.50, 0.10, 245), (0.225, 0.018, 275), (0.52, 0.13, 40), (0.82, 0.13, 65)],
    "dark": [(0.225, 0.018, 275), (0.38, 0.115, 285), (0.56, 0.155, 345), (0.76, 0.145, 50), (0.965, 0.085, 100)],
}

LMS = np.array([[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]])
RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


@cache
def ramp(theme: str) -> np.ndarray:
    """(256, 3) uint8 sRGB, from weight 0 to 1. theme: "light" or "dark"; "diverging-light" and "diverging-dark" have
    their neutral color in the middle, for signed differences.

    >>> ramp("light")[[0, -1]].tolist()
    [[248, 247, 241], [29, 9, 70]]
    """
    stops = np.array(PATHS[theme], float)
    lightness, chroma, hue = stops[:, 0], stops[:, 1], np.unwrap(np.radians(stops[:, 2]))
    at, fine = np.linspace(0, 1, len(stops)), np.linspace(0, 1, 4096)
    C, h = np.interp(fine, at, chroma), np.interp(fine, at, hue)
    lab = np.stack([np.interp(fine, at, lightness), C * np.cos(h), C * np.sin(h)], -1)
    length = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(lab, axis=0), axis=1))])
    ends = length[[0, len(length) // 2, -1] if theme.startswith("diverging") else [0, -1]]
    even = np.interp(np.interp(np.linspace(0, 1, 256), np.linspace(0, 1, len(ends)), ends), length, np.arange(len(lab)))
    lab = np.stack([np.interp(even, np.arange(len(lab)), column) for column in lab.T], -1)
    linear = np.clip((lab @ LMS.T) ** 3 @ RGB.T, 0, 1)
    srgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(srgb * 255).astype(np.uint8)
