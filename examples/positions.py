"""Compares position encodings: the attention score of two equal rows as a function of their distance.

python examples/positions.py
"""

from __future__ import annotations

import torch

from regard.language.analysis import evaluate
from regard.language.expr import score
from regard.torch.layers import Attention
from regard.torch.positions import NTK, ALiBi, Buckets, Linear, Llama3, Position, Relative, Rotary, YaRN

DEPTH, TRAINED = 64, 1024  # components per head, and the training length that scaled rotary positions extend fourfold
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
    """The score of a row at position first + 4096 and equal rows before it, at each distance; without positions, 1."""
    row = torch.ones(1, 1, len(DISTANCES), DEPTH, dtype=torch.float64) / DEPTH**0.5
    keys = first + DISTANCES[-1] - torch.tensor(DISTANCES)
    q, k = kind.rotate(row, keys[:1].expand(len(keys))), kind.rotate(row, keys)
    logits = (q * k).sum(-1).flatten().numpy()
    scores = evaluate(kind.score(score), {"score": logits, "head": 6, "query": keys[0].numpy(), "key": keys.numpy()})
    return scores.tolist()


def main() -> None:
    torch.manual_seed(0)
    for name in ("T5 buckets", "relative, ± 16"):  # learned positions: random values, because nothing is trained here
        torch.nn.init.normal_(KINDS[name].weight)
    print(f"{'distance':20}" + "".join(f"{distance:9,}" for distance in DISTANCES))
    for name, kind in KINDS.items():
        scores, shifted = profile(kind), profile(kind, first=1_000_000)
        change = max(abs(a - b) for a, b in zip(scores, shifted, strict=True))
        print(f"{name:20}" + "".join(f"{value:9.3f}" for value in scores) + f"   shifted by a million: ± {change:.0e}")

    layer, x, order = (
        Attention(DEPTH, heads=8).double(),
        torch.randn(1, 10, DEPTH, dtype=torch.float64),
        torch.randperm(10),
    )
    difference = (layer(x[:, order]) - layer(x)[:, order]).abs().max()
    print(f"\nwithout positions, permuted rows give the same output, permuted: ± {difference:.0e}")


if __name__ == "__main__":
    main()
