"""Zig-zag mirrors the block, not the part."""


def owner(block, ranks, blocks, layout):
    match layout:
        case "contiguous":
            return block * ranks // blocks
        case "zig-zag":
            if block >= blocks // 2:
                block = blocks - 1 - block
            return block * 2 * ranks // blocks
        case "striped":
            return block - block // ranks * ranks
