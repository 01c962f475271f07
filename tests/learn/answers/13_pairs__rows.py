"""The keys of one row after another."""


def pairs(distances, n):
    count = 0
    for row in range(n):
        count += int((distances <= row).sum())
    return count
