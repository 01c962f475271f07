"""Counts through the blocks, and turns around at the last rank."""


def owner(block, ranks, blocks, layout):
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
