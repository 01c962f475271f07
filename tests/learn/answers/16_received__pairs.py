"""Different pairs of rank and block."""

from collections import Counter


def received(owners, ranks, back):
    pairs = {
        (owners[i], j)
        for i in range(len(owners))
        for j in range(len(owners))
        if 0 <= i - j <= back and owners[i] != owners[j]
    }
    count = Counter(int(rank) for rank, _ in pairs)
    return [count[rank] for rank in range(ranks)]
