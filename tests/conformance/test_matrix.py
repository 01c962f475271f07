"""Every mistake of the catalog is rejected by the probes, and named, alone and in pairs."""

import pytest

from regard.laws import observed
from regard.laws.mistakes import CATALOG
from regard.laws.probes import lines, matrix, pairs, probes, row


def once(function, count):
    """The function, which computes once for the same first arguments, so many of them."""
    known = {}
    return lambda *given, **more: known.get(given[:count]) or known.setdefault(given[:count], function(*given, **more))


@pytest.mark.slow
def test_every_mistake_is_rejected_and_named_first(monkeypatch):
    """All of them, 100 %: there is no class of mistakes that the probes cannot separate. What a mistake makes of a
    probe is the same for all functions.
    """
    for name, count in {"meaning": 2, "apply": 2, "forward": 1, "first_order": 1, "backward": 1}.items():
        monkeypatch.setattr(observed, name, once(getattr(observed, name), count))
    rows = list(matrix())
    assert len(rows) == len(CATALOG)
    assert [each.mistakes[0].name for each in rows if not each.rejected] == []
    assert [each.mistakes[0].name for each in rows if each.named[:1] != (each.mistakes[0].name,)] == []


def test_the_law_itself_is_rejected_by_no_probe():
    """A function without mistakes passes all probes, and nothing is named."""
    right = row(())

    assert right.rejected == () and right.named == ()


@pytest.mark.sweep
def test_pairs_of_mistakes_are_rejected_and_one_is_named():
    """Random pairs: one of the two is named in at least 90 % of those that differ from the law."""
    found = [each for each in pairs(24, seed=1) if each.rejected]
    named = [each for each in found if {mistake.name for mistake in each.mistakes} & set(each.named)]

    assert len(found) >= 22
    assert len(named) >= 0.9 * len(found)


def test_the_matrix_is_printed():
    """The table has a row for every mistake, a column for every probe, and the figures below."""
    some = CATALOG[:3]
    found = list(lines(1, some))

    table = [line for line in found if line.startswith(tuple(f"{mistake.name} " for mistake in some))]
    assert len(table) == 3 and all(line.count("×") + line.count("·") == len(probes()) for line in table)
    assert "mistakes alone: 3, rejected 3 (100.0 %), named 3 (100.0 %)" in found
    assert any(line.startswith("random pairs: 1, of which ") for line in found)
