"""What each kind of position makes of a distance: the score of two equal rows, near and far apart.

python examples/positions.py
"""

from __future__ import annotations

import torch

from regard.language.analysis import evaluate
from regard.language.expr import score
from regard.torch.layers import Attention
from regard.torch.positions import NTK, ALiBi, Buckets, Linear, Llama3, Position, Relative, Rotary, YaRN

DEPTH, TRAINED = (
    64,
    1024,
)  # the components of a head, and the length that the rotary kinds are meant to outgrow four times
DISTANCES = [0, 1, 8, 64, 512, 4096]
KINDS: dict[str, Position] = {
    "rotary": Rotary(DEPTH),
    "… Linear(4)": Rotary(DEPTH, scaling=Linear(4)),
    "… NTK(4)": Rotary(DEPTH, scaling=NTK(4)),
    "… YaRN(4)": Rotary(DEPTH, scaling=YaRN(4, TRAINED)),
    "… Llama3(4)": Rotary(DEPTH, scaling=Llama3(4, TRAINED)),
    "ALiBi, head 7 of 8": ALiBi(8),
    "T5 buckets": Buckets(8, bidirectional=False),
    "relative, ± 16": Relative(8, 16),
}


@torch.no_grad()
def profile(kind: Position, first: int = 0) -> list[float]:
    """The score of a row at first + 4096 with equal rows before it, at each distance; 1 where positions are not asked
    for.
    """
    row = torch.ones(1, 1, len(DISTANCES), DEPTH, dtype=torch.float64) / DEPTH**0.5
    places = first + DISTANCES[-1] - torch.tensor(DISTANCES)
    q, k = kind.rotate(row, places[:1].expand(len(places))), kind.rotate(row, places)
    logits = (q * k).sum(-1).flatten().numpy()
    found = evaluate(kind.score(score), {"score": logits, "head": 6, "query": places[0].numpy(), "key": places.numpy()})
    return found.tolist()


def main() -> None:
    torch.manual_seed(0)
    for name in ("T5 buckets", "relative, ± 16"):  # learned from nothing here: any numbers show where they are read
        torch.nn.init.normal_(KINDS[name].weight)
    print(f"{'distance':20}" + "".join(f"{distance:9,}" for distance in DISTANCES))
    for name, kind in KINDS.items():
        here, there = profile(kind), profile(kind, first=1_000_000)
        moved = max(abs(a - b) for a, b in zip(here, there, strict=True))
        print(f"{name:20}" + "".join(f"{value:9.3f}" for value in here) + f"   a million places on: ± {moved:.0e}")

    layer, x, order = (
        Attention(DEPTH, heads=8).double(),
        torch.randn(1, 10, DEPTH, dtype=torch.float64),
        torch.randperm(10),
    )
    apart = (layer(x[:, order]) - layer(x)[:, order]).abs().max()
    print(f"\nwithout positions, rows in another order give the same rows in that order: ± {apart:.0e}")


if __name__ == "__main__":
    main()
