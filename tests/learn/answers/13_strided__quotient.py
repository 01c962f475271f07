"""The remainder by a quotient."""


def strided(query, key, stride):
    back = query - key
    near = back // stride == 0
    far = back - back // stride * stride == 0
    return ~(key > query) & (near | far)
