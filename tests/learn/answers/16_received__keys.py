"""Each block of keys is sent to the ranks that read it."""


def received(owners, ranks, back):
    owners = list(owners)
    count = [0] * ranks
    for key, source in enumerate(owners):
        readers = set(owners[key : key + back + 1])
        for rank in readers - {source}:
            count[rank] += 1
    return count
