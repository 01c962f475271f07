"""The distance is between two numbers."""


def window(row_position, key_position, size):
    back = row_position - key_position
    return (back > -1) & (back < size)
