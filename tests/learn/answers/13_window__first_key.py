"""The first key of the window, and the last one."""


def window(query, key, width):
    first = query - width + 1
    return (key >= first) & (query >= key)
