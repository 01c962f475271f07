"""A right answer in another style: log sum exp."""


def softmax(row):
    top = max(row, key=lambda x: x.data).data
    lse = sum((x - top).exp() for x in row).log() + top
    return [(x - lse).exp() for x in row]
