"""Two masks, joined."""


def causal(query, key):
    return key <= query


def recent(width):
    return lambda query, key: query < key + width


def window(query, key, width):
    return causal(query, key) & recent(width)(query, key)
