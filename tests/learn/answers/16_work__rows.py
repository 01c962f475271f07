"""Row by row: the row at position i has i + 1 keys."""


def work(owners, ranks, size):
    pairs = [0] * ranks
    for position in range(len(owners) * size):
        pairs[owners[position // size]] += position + 1
    return pairs
