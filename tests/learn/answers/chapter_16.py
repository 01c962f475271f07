"""Right answers to the exercises of chapter 16."""

from collections import Counter

import numpy as np


def owner__loop(block, ranks, blocks, layout):
    """Counts through the blocks, and turns around at the last rank."""
    if layout == "striped":
        return divmod(block, ranks)[1]
    parts = ranks if layout == "contiguous" else 2 * ranks
    size = blocks // parts
    rank, direction = 0, 1
    for part in range(parts):
        if part * size <= block < (part + 1) * size:
            return rank
        if layout == "zig-zag" and part == ranks - 1:
            direction = -1
        elif part == ranks - 1 and direction == 1:
            break
        else:
            rank += direction
    return rank


def owner__mirror_of_the_block(block, ranks, blocks, layout):
    """Zig-zag mirrors the block, not the part."""
    match layout:
        case "contiguous":
            return block * ranks // blocks
        case "zig-zag":
            if block >= blocks // 2:
                block = blocks - 1 - block
            return block * 2 * ranks // blocks
        case "striped":
            return block - block // ranks * ranks


def owner__numpy(block, ranks, blocks, layout):
    """The layouts of all blocks at once, in NumPy."""
    part = np.arange(blocks) * 2 * ranks // blocks
    layouts = {
        "contiguous": part // 2,
        "zig-zag": np.minimum(part, 2 * ranks - 1 - part),
        "striped": np.arange(blocks) % ranks,
    }
    return layouts[layout][block]


def owner__table(block, ranks, blocks, layout):
    """The whole layout as a list, of which one entry is taken."""
    each = blocks // ranks
    if layout == "contiguous":
        owners = [rank for rank in range(ranks) for _ in range(each)]
    elif layout == "zig-zag":
        there = [rank for rank in range(ranks) for _ in range(each // 2)]
        owners = there + there[::-1]
    else:
        owners = list(range(ranks)) * each
    return owners[block]


def work__add_at(who, how_many, tokens):
    """Adds at repeated indices."""
    result = np.zeros(how_many)
    ends = (np.arange(len(who)) + 1) * tokens
    starts = ends - tokens
    np.add.at(result, who, (ends * (ends + 1) - starts * (starts + 1)) // 2)
    return result


def work__bincount(owners, ranks, size):
    """One call of bincount with weights."""
    pairs = np.arange(len(owners)) * size**2 + size * (size + 1) / 2
    return np.bincount(owners, weights=pairs, minlength=ranks)


def work__one_hot(owners, ranks, size):
    """A product with a table of ones: which rank owns which block."""
    owned = np.arange(ranks)[:, None] == owners
    return owned @ (np.arange(len(owners)) * size * size + size * (size + 1) // 2)


def work__rows(owners, ranks, size):
    """Row by row: the row at position i has i + 1 keys."""
    pairs = [0] * ranks
    for position in range(len(owners) * size):
        pairs[owners[position // size]] += position + 1
    return pairs


def received__intervals(owners, ranks, back):
    """Marks what each rank needs, then takes away what it owns."""
    needed = np.zeros((ranks, len(owners)), bool)
    for i, rank in enumerate(owners):
        needed[rank, max(i - back, 0) : i + 1] = True
    needed[owners, np.arange(len(owners))] = False
    return needed.sum(axis=1)


def received__keys(owners, ranks, back):
    """Each block of keys is sent to the ranks that read it."""
    owners = list(owners)
    count = [0] * ranks
    for key, source in enumerate(owners):
        readers = set(owners[key : key + back + 1])
        for rank in readers - {source}:
            count[rank] += 1
    return count


def received__pairs(owners, ranks, back):
    """Different pairs of rank and block."""
    pairs = {
        (owners[i], j)
        for i in range(len(owners))
        for j in range(len(owners))
        if 0 <= i - j <= back and owners[i] != owners[j]
    }
    count = Counter(int(rank) for rank, _ in pairs)
    return [count[rank] for rank in range(ranks)]


def received__table(owners, ranks, back):
    """A table of which rank needs which block."""
    blocks = np.arange(len(owners))
    apart = blocks[:, None] - blocks
    reads = (apart >= 0) & (apart <= back)
    return np.array([(reads[owners == rank].any(0) & (owners != rank)).sum() for rank in range(ranks)])
