"""One comparison: the distance from the middle of the window."""


def window(query, key, width):
    return abs(2 * (query - key) - (width - 1)) <= width - 1
