"""What is forbidden."""


def strided(query, key, stride):
    back = query - key
    between = (back > stride) & (back % stride != 0)
    return ~((back < 0) | between)
