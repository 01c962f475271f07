"""Computes the coefficients in src/regard/engines/jit/code/special.py: minimax fits of the relative error (Remez).

    python bench/fit_polynomials.py

Coefficients are rounded to float32 one by one, from the lowest power, and the others are fitted again each time.
"""

from __future__ import annotations

import numpy as np

X = np.longdouble


def fit(function, weight, lo: float, hi: float, powers: list[int], fixed: dict[int, float]) -> tuple[np.ndarray, float]:
    """The free coefficients that minimize max |weight · (polynomial - function)|, and that maximum."""
    free = [power for power in powers if power not in fixed]
    count = len(free) + 1
    nodes = (lo + hi) / 2 - (hi - lo) / 2 * np.cos(np.pi * np.arange(count) / (count - 1)).astype(X)
    grid = np.linspace(lo, hi, 20001).astype(X)
    for _ in range(40):
        rows = np.stack([weight(nodes) * nodes**power for power in free] + [X(-1) ** np.arange(count)], 1)
        target = weight(nodes) * (function(nodes) - sum(X(value) * nodes**power for power, value in fixed.items()))
        solution = np.linalg.solve(rows.astype(np.float64), target.astype(np.float64))
        residual = target - rows @ solution.astype(X)
        solution = solution + np.linalg.solve(rows.astype(np.float64), residual.astype(np.float64))
        known = {**fixed, **dict(zip(free, solution[:-1], strict=True))}
        error = weight(grid) * (sum(X(value) * grid**power for power, value in known.items()) - function(grid))
        # The largest error of every interval of constant sign.
        borders = np.flatnonzero(np.diff(np.sign(error.astype(np.float64)))) + 1
        parts = np.split(np.arange(len(grid)), borders)
        peaks = [part[np.argmax(np.abs(error[part]))] for part in parts if len(part)]
        if len(peaks) != count:
            break
        nodes = grid[peaks]
    return solution[:-1], float(np.max(np.abs(error)))


def rounded(name: str, function, weight, lo: float, hi: float, powers: list[int], fixed: dict[int, float]) -> None:
    known = {power: float(value) for power, value in fixed.items()}
    for power in powers:
        if power not in known:
            solution, _ = fit(function, weight, lo, hi, powers, known)
            free = [other for other in powers if other not in known]
            known[power] = float(np.float32(solution[free.index(power)]))
    grid = np.linspace(lo, hi, 20001).astype(X)
    error = weight(grid) * (sum(X(value) * grid**power for power, value in known.items()) - function(grid))
    print(f"{name}: {[known[power] for power in powers]}  # relative error {float(np.max(np.abs(error))):.1e}")


def one_over(function):
    return lambda x: 1 / function(x)


def expm1_over_x(x):
    return sum(x**n / X(np.prod(np.arange(1, n + 2, dtype=np.float64))) for n in range(18))


def atanh_tail(y):
    """2·(atanh(s)/s - 1)/s² with y = s²."""
    return sum(X(2) * y**n / X(2 * n + 3) for n in range(40))


if __name__ == "__main__":
    half_ln2 = float(np.log(2) / 2)
    rounded("EXP2", np.exp2, one_over(np.exp2), -0.5, 0.5, list(range(7)), {0: 1.0})
    rounded("EXPM1", expm1_over_x, one_over(expm1_over_x), -half_ln2, half_ln2, list(range(7)), {0: 1.0})
    # The tail s² (2/3 + 2/5 s² …) is added to d - s·d, which is about 2s, so its absolute error is weighted by s².
    rounded("ATANH", atanh_tail, lambda y: np.ones_like(y) * X(0.03), 0.0, 0.02944, list(range(4)), {})
