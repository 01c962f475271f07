"""Right answers to the exercises of chapter 9."""

import math

import numpy as np
import torch


def sinusoids__complex(n, d):
    """The real and imaginary parts of complex numbers are next to each other in memory."""
    angles = np.arange(n)[:, None] / np.power(10000.0, np.linspace(0, 1, d // 2, endpoint=False))
    return np.ascontiguousarray(1j * np.exp(-1j * angles)).view(np.float64)


def sinusoids__loops(n, d):
    """Plain loops and the math module."""
    pe = np.zeros((n, d))
    for position in range(n):
        for i in range(d // 2):
            angle = position / 10000 ** (2 * i / d)
            pe[position, 2 * i] = math.sin(angle)
            pe[position, 2 * i + 1] = math.cos(angle)
    return pe


def sinusoids__shifted_sine(n, d):
    """A cosine is a sine that is a quarter of a turn ahead: one formula for all columns."""
    column = np.arange(d)
    angles = np.arange(n).reshape(-1, 1) * 10000.0 ** (-(column // 2 * 2) / d)
    return np.sin(angles + np.pi / 2 * (column % 2))


def sinusoids__torch(n, d):
    """torch in float64."""
    exponents = torch.arange(0, d, 2, dtype=torch.float64) / d
    angles = torch.arange(n, dtype=torch.float64)[:, None] / 10000**exponents
    pe = torch.zeros(n, d, dtype=torch.float64)
    pe[:, 0::2], pe[:, 1::2] = angles.sin(), angles.cos()
    return pe


def rotate__complex(x, positions):
    """A rotation is a product with a complex number."""
    half = x.shape[-1] // 2
    z = x[..., :half] + 1j * x[..., half:]
    z = z * np.exp(1j * np.outer(positions, 10000.0 ** (-np.arange(half) / half)))
    return np.concatenate([z.real, z.imag], axis=-1)


def rotate__loops(x, positions):
    """Plain loops: each head, row and pair."""
    heads, n, d = x.shape
    out = np.zeros_like(x)
    for head in range(heads):
        for row in range(n):
            for i in range(d // 2):
                t = int(positions[row]) / 10000 ** (2 * i / d)
                a, b = x[head, row, i], x[head, row, i + d // 2]
                out[head, row, i] = a * math.cos(t) - b * math.sin(t)
                out[head, row, i + d // 2] = a * math.sin(t) + b * math.cos(t)
    return out


class Rotary:
    def __init__(self, depth, base=10000.0):
        self.half = depth // 2
        self.theta = base ** -(np.arange(self.half) / self.half)

    def __call__(self, x, positions):
        a, b = x[..., : self.half], x[..., self.half :]
        length, angle = np.hypot(a, b), np.arctan2(b, a)
        angle = angle + np.multiply.outer(positions, self.theta)
        return np.concatenate([length * np.cos(angle), length * np.sin(angle)], -1)


def rotate__polar(x, positions):
    """Each pair as a length and an angle: the position is added to the angle."""
    return Rotary(x.shape[-1])(x, positions)


def rotate__torch(x, positions):
    """torch in float64."""
    x, positions = torch.tensor(x), torch.tensor(positions)
    a, b = x.chunk(2, dim=-1)
    theta = 10000 ** (-torch.arange(a.shape[-1], dtype=torch.float64) / a.shape[-1])
    t = positions.unsqueeze(-1) * theta
    return torch.cat([a * t.cos() - b * t.sin(), a * t.sin() + b * t.cos()], dim=-1)


def alibi__float32(h):
    """Slopes in float32."""
    slopes = np.empty(h, np.float32)
    for head in range(h):
        slopes[head] = 2 ** (-8 * (head + 1) / h)
    return slopes


def alibi__list(heads):
    """A list."""
    return [2 ** (-8 * (head + 1) / heads) for head in range(heads)]


def alibi__recursion(h):
    """The slopes of half as many heads are every other one; those between are their geometric means."""
    if h == 1:
        return np.array([2.0**-8])
    coarse = alibi__recursion(h // 2)
    fine = np.zeros(h)
    fine[1::2] = coarse
    fine[0::2] = [math.sqrt(a * b) for a, b in zip([1.0, *coarse[:-1]], coarse)]
    return fine


def alibi__torch(h):
    """torch."""
    return torch.exp2(-(torch.arange(h, dtype=torch.float64) + 1) * 8.0 / h)


def add_alibi__einsum(logits, m):
    """An outer product of slopes and distances."""
    _, rows, keys = logits.shape
    query, key = np.arange(keys - rows, keys), np.arange(keys)
    return logits + np.einsum("h,ij->hij", -m, np.abs(np.subtract.outer(query, key)))


def add_alibi__heads(scores, slopes):
    """Head by head, in a list."""
    rows, keys = scores.shape[1:]
    distance = np.abs(np.fromfunction(lambda i, j: i + keys - rows - j, (rows, keys)))
    return np.array([head - slope * distance for head, slope in zip(scores, slopes)])


def add_alibi__loops(scores, slopes):
    """Plain loops."""
    heads, rows, keys = scores.shape
    out = np.array(scores)
    for h in range(heads):
        for i in range(rows):
            for j in range(keys):
                out[h, i, j] -= slopes[h] * abs(i + keys - rows - j)
    return out


def add_alibi__torch(scores, slopes):
    """torch."""
    scores, slopes = torch.as_tensor(scores), torch.as_tensor(slopes)
    n, m = scores.shape[-2:]
    place = torch.arange(m, device=scores.device)
    return scores - slopes.view(-1, 1, 1) * (place[m - n :].unsqueeze(1) - place).abs()
