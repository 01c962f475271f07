"""The causal mask without the causal mask of an earlier row."""


def window(query, key, width):
    return (key <= query) ^ (key <= query - width)
