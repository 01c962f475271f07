"""The catalog of known mistakes: names, words, changes that leave the arguments of a call as they were, its page; every
mistake is rejected by the probes, and named.
"""

import numpy as np
import pytest

from bench.mistakes_page import SUBJECTS, page
from regard.conformance.conventions.fields import Adapter
from regard.laws import observed
from regard.laws.call import Call
from regard.laws.forward import forward, meaning
from regard.laws.mistakes import CATALOG, of_name
from regard.laws.probes import (
    CLASSES,
    EVERYTHING,
    ORDINARY,
    OUTPUT,
    RIGHT,
    answer_of,
    lines,
    matrix,
    pairs,
    probes,
    row,
)
from tests import ROOT
from tests.support import import_graph

NAMES = [mistake.name for mistake in CATALOG]
UNUSUAL = ("large", "low", "apart", "nan-values", "nan-keys")  # probes whose numbers usual models do not have


def _every(probe):
    return True


def _forward(probe):
    return probe.call.dout is None


def _plain(probe):
    return probe.call.dout is None and probe.call.sinks is None


def _ordinary(probe):
    return _plain(probe) and probe.id not in UNUSUAL


# Which mistakes are compared: those that show on some of these probes. Whether more than the output is compared, and on
# which probes.
VIEWS = {
    EVERYTHING: (_every, True, _every),
    OUTPUT: (_forward, False, _forward),
    ORDINARY: (_plain, False, _ordinary),
}


def classes():
    """The mistakes whose answers are equal to rounding, in groups of two or more, for each kind of comparison.

    Mistakes that only show in results or arguments which a comparison leaves out are not in its classes.
    """
    right = _answers()
    answers = {mistake.name: _answers(mistake) for mistake in CATALOG}
    found = {}
    for view, (among, whole, shown) in VIEWS.items():
        groups = [(right, {RIGHT})]
        for name, answer in answers.items():
            if _equal(answer, right, among, whole):
                continue
            group = next((names for other, names in groups if _equal(answer, other, shown, whole)), None)
            if group is None:
                groups.append((answer, {name}))
            else:
                group.add(name)
        found[view] = tuple(frozenset(names) for _, names in groups if len(names) > 1)
    return found


def _answers(*mistakes):
    return {probe.id: answer_of(mistakes, probe) for probe in probes()}


def _equal(one, other, which, whole):
    return all(_alike(one[probe.id], other[probe.id], whole) for probe in probes() if which(probe))


def _alike(one, other, whole):
    results = [(one.out, other.out)]
    if whole:
        results += [(one.lse, other.lse)]
        results += [(part, other.gradients[role]) for role, part in one.gradients.items() if role in other.gradients]
    return all(a is None or b is None or np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True) for a, b in results)


def test_names_are_unique_and_plain():
    """Names are stable identifiers: unique, lower case, words joined by hyphens."""
    assert len(set(NAMES)) == len(NAMES) > 100
    assert all(name == name.replace(" ", "-") and not name.startswith("-") for name in NAMES)
    assert of_name("scale-missing").law == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_mistake_says_what_why_and_how_to_fix(name):
    """Every entry has a law, a description, a cause and a fix, and its description takes the numbers of any call."""
    mistake = of_name(name)

    assert 1 <= mistake.law <= 13
    for words in (mistake.description, mistake.cause, mistake.fix):
        assert words == words.strip() and words and not words.endswith(".")
    for probe in probes():
        assert mistake.described(meaning(probe.call, probe.conventions)).startswith(mistake.description)


def test_a_description_has_the_numbers_of_the_call():
    """The numbers in a description are those of the call and of what the mistake makes of it."""
    plain = next(probe for probe in probes() if probe.id == "plain")

    words = of_name("scale-missing").described(meaning(plain.call, plain.conventions))

    assert words == "no scale: 1 instead of 0.408248"


def test_changes_do_not_touch_the_arguments_they_are_given():
    """A mistake returns other arguments; those of the call stay as they are, also after the mistaken computation."""
    for probe in probes():
        arguments = meaning(probe.call, probe.conventions)
        before = {
            name: value.copy() if isinstance(value, dict | np.ndarray) else value
            for name, value in vars(arguments).items()
        }
        for mistake in CATALOG:
            mistake.change(arguments)
        for name, value in before.items():
            now = getattr(arguments, name)
            if isinstance(value, dict):
                assert list(now) == list(value) and all(now[key] is value[key] for key in value)
            else:
                assert np.array_equal(now, value) if isinstance(value, np.ndarray) else now == value


@pytest.mark.sweep
def test_the_classes_are_those_that_running_finds():
    """Which mistakes are equal on all probes is written down, and is what the probes say."""
    found = classes()

    assert {view: set(groups) for view, groups in found.items()} == {
        view: set(groups) for view, groups in CLASSES.items()
    }
    assert found[EVERYTHING] == ()
    assert not any(RIGHT in group for group in found[OUTPUT])


def test_the_catalog_needs_no_recording_and_no_framework():
    """Mistakes change arguments: their files import the law, the language and the dtypes, and nothing else."""
    files = import_graph.modules()
    mine = [name for name in files if name.startswith("regard.laws.mistakes.")]
    found = {each.module for name in mine for each in import_graph.imports(name, files)}

    assert mine and all(name.startswith(("regard.laws.", "regard.language.", "regard.common.dtypes")) for name in found)


@pytest.mark.parametrize("mistake", CATALOG, ids=lambda each: each.name)
@pytest.mark.parametrize("empty", "BQK")
def test_a_mistake_is_computed_for_empty_axes(mistake, empty):
    """A call without batch entries, rows or keys has results under every mistake, in the shapes of the right ones."""
    B, Q, K = (0 if axis == empty else 4 for axis in "BQK")
    q, k = np.ones((B, 4, Q, 4)), np.ones((B, 4, K, 4))
    changed = mistake.change(meaning(Call(q=q, k=k, v=k, causal=True), Adapter()))
    assert changed is None or forward(changed, q, k, k).out.shape == q.shape


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_page_is_written_from_the_catalog():
    """docs/reference/mistakes.md is up to date: `python -m bench.mistakes_page` writes it."""
    assert (ROOT / "docs/reference/mistakes.md").read_text(encoding="utf-8") == page()


def test_every_mistake_is_on_the_page_once():
    """The subjects hold the whole catalog."""
    on_page = [mistake.name for mistakes in SUBJECTS.values() for mistake in mistakes]

    assert sorted(on_page) == sorted(mistake.name for mistake in CATALOG) and len(set(on_page)) == len(on_page)


# ---- the probes ------------------------------------------------------------------------------------------------------


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
