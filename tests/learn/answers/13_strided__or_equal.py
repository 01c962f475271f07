"""The window may include the first multiple."""


def strided(query, key, stride):
    return (key <= query) & ((query - key <= stride) | ((query - key) % stride == 0))
