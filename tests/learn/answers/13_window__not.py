"""What is forbidden, and its opposite."""


def window(query, key, width):
    future = key > query
    too_far = key <= query - width
    return ~(future | too_far)
