"""A right answer in another style: maximum as value."""


def softmax(row):
    top = sorted(row, key=lambda x: x.data)[-1]
    powers = [(x - top).exp() for x in row]
    inverse = 1 / sum(powers)
    return [power * inverse for power in powers]
