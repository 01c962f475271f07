"""The whole layout as a list, of which one entry is taken."""


def owner(block, ranks, blocks, layout):
    each = blocks // ranks
    if layout == "contiguous":
        owners = [rank for rank in range(ranks) for _ in range(each)]
    elif layout == "zig-zag":
        there = [rank for rank in range(ranks) for _ in range(each // 2)]
        owners = there + there[::-1]
    else:
        owners = list(range(ranks)) * each
    return owners[block]
