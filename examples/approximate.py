"""Prints the error of approximate attention layers against softmax attention: the table of docs/how-to/approximate.md.

All layers have the same random projections. Their heads are compared with exact attention over the same queries, keys
and values. The error depends mainly on how sharp the attention is (the spread of its logits), so there is a column for
each spread. The projections of Linformer average neighboring keys, because untrained ones have no meaning.

    python examples/approximate.py
"""

from __future__ import annotations

import time

import torch

import regard as rg
from regard.torch.layers import LinearAttention, LinearState, Linformer, Performer, deviation

WIDTH, HEADS, LENGTH = 128, 2, 512
DEPTH = WIDTH // HEADS
KINDS = {  # the standard deviation of the logits of a row, and the number of neighbors that are averaged per row
    "logits ± 0.1": (0.1, 1),
    "± 0.3": (0.3, 1),
    "± 1": (1.0, 1),
    "± 1, smooth text": (1.0, 32),
}
METHODS = {
    "linear attention": (lambda: LinearAttention(WIDTH, HEADS), 2 * DEPTH),
    **{
        f"Performer, {count} features": (lambda count=count: Performer(WIDTH, HEADS, features=count), 4 * count)
        for count in (64, 256, 1024, 4096)
    },
    **{
        f"Linformer, {rows} rows": (lambda rows=rows: Linformer(WIDTH, HEADS, length=LENGTH, rows=rows), 4 * rows)
        for rows in (32, 128)
    },
}


def texts(count: int, smooth: int) -> torch.Tensor:
    """Random rows, each the mean of `smooth` neighbors, scaled to unit variance."""
    noise = torch.randn(count, WIDTH, LENGTH + smooth - 1)
    return torch.nn.functional.avg_pool1d(noise, smooth, stride=1).mT * smooth**0.5


def prepared(make, spread: float, smooth: int):
    """A layer whose logits have this standard deviation."""
    layer = make()
    for part, size in ((layer.q, spread**0.5), (layer.k, spread**0.5), (layer.v, 1.0)):
        torch.nn.init.normal_(part.weight, std=size * WIDTH**-0.5)
    if isinstance(layer, Linformer):
        means = torch.nn.functional.adaptive_avg_pool1d(torch.eye(LENGTH), layer.rows).T
        for projection in (layer.project_k, layer.project_v):
            torch.nn.init.zeros_(projection).data += means
    return layer


def table() -> list[list[str]]:
    """Method, multiplications, and the error for each kind of text; the last row is the error of equal weights."""
    torch.manual_seed(0)
    results, equal = [], [""] * len(KINDS)
    for name, (make, cost) in METHODS.items():
        cells = []
        for number, (spread, smooth) in enumerate(KINDS.values()):
            error = deviation(prepared(make, spread, smooth), texts(2, smooth))
            cells.append(f"{error.overall:.0%}")
            equal[number] = f"{error.uniform:.0%}"
        results.append([name, f"{cost} · D", *cells])
    return [["exact", "2n · D", *["0%"] * len(KINDS)], *results, ["equal weights", "–", *equal]]


def markdown(rows: list[list[str]]) -> str:
    """The table as Markdown."""
    head = ["method", "multiplications per row and head", *KINDS]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def main() -> None:
    print(markdown(table()))
    layer, x, state = LinearAttention(WIDTH, HEADS), torch.randn(1, 20_000, WIDTH), LinearState()
    with torch.no_grad():
        begin = time.perf_counter()
        whole = layer(x, mask=rg.causal())
        print(f"\n20,000 causal rows in one call: {time.perf_counter() - begin:.2f} s")
        for row in x[:, :100].split(1, dim=1):
            last = layer(row, mask=rg.causal(), cache=state)
        print(f"row 100, decoded row by row, differs by {(last - whole[:, 99:100]).abs().max():.0e}; state: {state}")


if __name__ == "__main__":
    main()
