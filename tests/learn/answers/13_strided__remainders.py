"""Equal remainders of both positions."""


def strided(q, k, s):
    near = (k > q - s) & (k <= q)
    far = (q % s == k % s) & (k <= q)
    return near | far
