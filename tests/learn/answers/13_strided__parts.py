"""A function for each part."""


def behind(query, key):
    return query - key


def local(query, key, stride):
    return behind(query, key) < stride


def column(query, key, stride):
    return behind(query, key) % stride < 1


def strided(query, key, stride):
    either = local(query, key, stride) | column(query, key, stride)
    return either & (behind(query, key) >= 0)
