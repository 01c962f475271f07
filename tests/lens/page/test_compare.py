"""Two runs compared in a real browser: one view, one scale, differences against the exact ones, an edge to draw along;
and runs with other tokens, lengths, tokenizers, precisions and models.
"""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.lens.runs.codes import FINE_ERROR, LEAK, NAN
from regard.lens.viewer import page
from tests.lens.page.colors import distance, logarithmic, tint
from tests.support.browser import HOSTILE, example, fault, share, spoiled
from tests.support.page_map import BEGIN, DIGITS, Map


def stronger(q, k):
    """Changes a run as a wrong scale does."""
    np.multiply(q, 1.7, out=q)


@pytest.fixture(scope="module")
def shown(kept_open):
    """A page of two runs over 12 tokens, one of which has another name: (first map, second map, exact weights of
    both).
    """
    ours, exact = example(n=12, mask=rg.causal())
    names = [f" word{i}" if i != 4 else " other" for i in range(12)]
    names[0], names[11] = "[CLS]", "[SEP]"
    theirs, other = example(n=12, mask=rg.causal(), tokens=names, poison=stronger)
    view = kept_open(page(ours, dataclasses.replace(theirs, model="another")))
    return Map(view, "comparison.plots[0]"), Map(view, "comparison.plots[1]"), exact, other


@pytest.fixture
def home(shown):
    """The same, as it was when it was opened."""
    shown[0].tab.evaluate("document.activeElement.blur()")
    shown[0].view.choose(**BEGIN | {"run": 0, "compare": "side"})
    return shown


def test_both_maps_share_their_view_and_their_scale(home):
    """A weight has one colour in both maps, and what is pinned in one is pinned in the other."""
    first, second, exact, other = home
    for chart, p in ((first, exact[0][0]), (second, other[0][0])):
        for cell in [(3, 1), (9, 4), (11, 7)]:
            assert distance(chart.pixel(*cell), logarithmic(p[cell])) <= 1
    second.click(9, 2)
    assert second.view.state("query", "key", "run") == (9, 2, 1)  # other screens show the run that was meant
    assert share(second.view.text("#map-pinned")) == pytest.approx(other[0][0, 9, 2], rel=DIGITS)
    first.view.click("#compare-run [value='0']")
    assert first.view.state("run") == 0


def test_words_give_both_weights_and_their_difference(home):
    """Under the pointer stand the weights of both runs and second − first, in points of a hundred."""
    first, _, exact, other = home
    first.hover(9, 4)
    before, after = first.view.text("#compare-said").split(" in the first, ")
    p, q = exact[0][0, 9, 4], other[0][0, 9, 4]
    assert (share(before), share(after)) == pytest.approx((p, q), rel=DIGITS)
    points = float(after.rsplit(": ", 1)[1].removesuffix(" points").replace("−", "-"))
    assert points / 100 == pytest.approx(q - p, rel=DIGITS, abs=2 * FINE_ERROR)


def test_a_difference_has_a_colour_on_a_domain_that_never_moves(home):
    """The colour of a cell is the diverging ramp's at the place of the exact difference; the legend names its ends. The
    kind of comparison is chosen by keyboard, too.
    """
    first, _, exact, other = home
    first.tab.focus("#compare-mode [value=side]")
    first.view.press("ArrowRight")
    assert "compare=" not in first.view.address()  # the page of two runs opens on it
    assert first.tab.is_hidden("#compare-1")
    assert "linear from −100 % to 100 %" in first.view.text("#compare-law")
    first.tab.evaluate("document.activeElement.blur()")
    first.view.press("c", "c")
    assert first.view.state("compare") == "difference"
    first.view.choose(head=2, query=11)
    for cell in [(3, 1), (5, 2), (7, 7), (9, 4), (10, 3)]:
        d = other[0][2][cell] - exact[0][2][cell]
        assert distance(first.pixel(*cell), 0.5 + d / 2, "diverging-light") <= 1, (cell, d)


def test_all_heads_are_coloured_by_the_difference_of_the_row(home):
    """Half the sum of |p₁ − p₀|, in the grid and its table; a closed comparison gives the grid back its place."""
    first, _, exact, other = home
    first.view.choose(query=9)
    first.tab.wait_for_selector("#compare #grid:not([aria-busy])")
    apart = np.abs(np.subtract(other, exact)[:, :, 9])
    by = apart.sum(-1) / 2
    titles = first.view.each("#grid button", "node.title")
    assert [share(title.split("row ")[1]) for title in titles] == pytest.approx(by.ravel(), rel=DIGITS)
    first.tab.evaluate("headTable.turn(); headTable.sort('differs')")
    lines = first.view.each("#atlas-table tbody th")
    order = [np.unravel_index(at, by.shape) for at in np.argsort(-by, axis=None)]
    assert lines == [f"layer {call}, head {head}" for call, head in order]
    said = first.view.text("#compare-row")
    assert share(said.split("differs by ")[1]) == pytest.approx(by[0, 0], rel=DIGITS)
    assert f"(token {apart[0, 0].argmax()})" in said.split("most at")[1]
    first.view.click("#atlas-table tbody tr:nth-child(2) button")
    assert first.view.state("call", "head") == order[1]
    first.tab.evaluate("headTable.turn()")
    first.view.choose(open=[])
    assert first.tab.is_visible("main #grid")


def test_masks_that_differ_and_faults_are_not_differences(opened):
    """What is masked in one run alone, not a number, or forbidden has a colour of its own, which is no place of the
    ramp.
    """
    run, exact = example(n=10, layers=1, heads=1, mask=rg.causal())
    free = fault(run, given=exact[0], q=None, k=None, mask=None)
    view = opened(page(spoiled(run, exact[0], {(0, 6, 2): np.nan, (0, 3, 8): 0.25}), free), "#compare=difference")
    chart = Map(view, "comparison.plots[0]")
    for cell, name in {(6, 2): "--nan", (3, 8): "--leak", (2, 6): "--out"}.items():
        assert chart.pixel(*cell)[:3] == tint(view, name)
    assert distance(chart.pixel(5, 4), 0.5, "diverging-light", 0) == 0  # equal weights are in the middle


def test_nothing_is_cut_off_and_hostile_tokens_are_only_words(opened):
    """The comparison fits, in each of its kinds; tokens that differ are shown as text."""
    view = opened(page(*[example(len(HOSTILE), layers=1, heads=1, tokens=HOSTILE[::step])[0] for step in (1, -1)]))
    for kind in ("side", "difference"):
        view.choose(compare=kind)
        view.fits(390)
    assert view.tab.evaluate("window.harmed") is None


SAME = ["[CLS]", " the", " cat", " sat", " down", " .", "[SEP]"]


def run_of(tokens, **rules):
    """A run of random heads over these tokens, and its exact weights."""
    return example(len(tokens), tokens=tokens, **rules)


def groups(view):
    """What the page takes to correspond: ranges of both texts."""
    return view.tab.evaluate("comparison.now.axes({ call: state.call, head: state.head }).queries[2]")


def merged(p, view, side):
    """Weights over the groups of one of the compared texts: the mean over the rows of the sum over the keys; NaN where
    the text lacks the group.
    """
    ranges = [group[2 * side : 2 * side + 2] for group in groups(view)]

    def cell(i, stop, j, end):
        return p[i:stop, j:end].sum(1).mean() if i < stop and j < end else np.nan

    return np.array([[cell(*rows, *keys) for keys in ranges] for rows in ranges])


def check_merged(view, side, p):
    """Fails unless a map has the sums and means of the exact weights, in the groups that the page found."""
    values = view.tab.evaluate(
        """async (side) => {
            const name = comparison.now.names[side], { call, head } = state;
            const { coarse, fine } = await sourceOf(name).tile(name, call, head, "share", 0, 0, 0);
            return Array.from(coarse, (code, at) => (code === MASKED ? null : weight(code, fine[at])));
        }""",
        side,
    )
    np.testing.assert_allclose(np.array(values, float), merged(p, view, side).ravel(), rtol=3e-4, atol=1e-6)


def aligned(view, ours, theirs):
    return view.tab.evaluate("([ours, theirs]) => aligned(ours, theirs)", [ours, theirs])


@pytest.fixture(scope="module")
def texts(kept_open):
    """A page of two texts of which one says more, and the exact weights of both."""
    ours, exact = run_of(SAME)
    longer = ["[CLS]", " the", " old", " dog", " sat", " on", " the", " very", " warm", " mat", " .", "[SEP]"]
    theirs, other = run_of(longer, seed=1)
    return kept_open(page(ours, theirs)), exact, other


def test_tokens_are_aligned_by_their_difference(texts):
    """Equal tokens first; then replacements, pieces of two tokenizers by their letters, and what one text lacks."""
    view, *_ = texts
    for ours, theirs, expected in (
        (["a", " b"], ["A", "b"], [[0, 1, 0, 1], [1, 2, 1, 2]]),
        (["a", "x", "c"], ["a", "y", "c"], [[0, 1, 0, 1], [1, 2, 1, 2], [2, 3, 2, 3]]),
        (["a", "c"], ["a", "b", "c"], [[0, 1, 0, 1], [1, 1, 1, 2], [1, 2, 2, 3]]),
        ([" didn", "'t", " go"], ["▁did", "n't", "▁go"], [[0, 2, 0, 2], [2, 3, 2, 3]]),
        (["un", "##believ", "##able"], ["unbe", "lievable"], [[0, 3, 0, 2]]),
        (["ab", "cd"], ["ab", "c", "d"], [[0, 1, 0, 1], [1, 2, 1, 3]]),
        (list("abcd"), ["x"], [*([i, i + 1, 0, 0] for i in range(4)), [4, 4, 0, 1]]),
    ):
        assert aligned(view, ours, theirs) == expected


def test_every_token_is_in_one_group_in_order(texts):
    """Of random texts with repeated and empty tokens, both short and too long for one table of the difference."""
    view, *_ = texts
    random = np.random.default_rng(0)
    letters = ["a", "b", "ab", "c", "", " ", "abc"]
    pairs = [[random.choice(letters, size=n).tolist() for n in random.integers(0, 9, 2)] for _ in range(100)]
    long = [f"w{i}" for i in random.integers(4000, size=6000)]
    for texts_of_both in (*pairs, [long, [*long[:1000], "other", *long[1500:]]]):
        found = np.array(aligned(view, *texts_of_both), int).reshape(-1, 2, 2)
        for side, tokens in enumerate(texts_of_both):
            assert [i for a, b in found[:, side] for i in range(a, b)] == list(range(len(tokens)))
        assert (np.diff(found).sum((1, 2)) > 0).all()
    assert (np.diff(found) == 1).all((1, 2)).sum() > 5000


def test_texts_of_other_lengths_are_compared_where_they_agree(texts):
    """Cells are those of corresponding tokens, whose labels say what was replaced or added; what one text lacks is
    no difference, and a row that one lacks has none in any head.
    """
    view, *weights = texts
    view.choose(call=1, head=1)
    for side, exact in enumerate(weights):
        check_merged(view, side, exact[1][1])
    said = view.text("#compare-tokens")
    assert ("“cat” → “dog”" in said or "“cat” → “old dog”" in said) and "only in the second" in said
    view.choose(compare="difference")
    labels = view.tab.evaluate(
        "runs[comparison.now.names[2]].axes[runs[comparison.now.names[2]].calls[0].queries].tokens"
    )
    assert any(label.startswith("+ ") for label in labels) and any(" → " in label for label in labels)
    lone = next(g for g, (a, b, *_) in enumerate(groups(view)) if a == b)
    kinds = view.tab.evaluate(
        """() => {
            const { painters } = comparison.now, { call, head, pool } = state;
            return [...painters.difference.codes({ call, head, pool, level: 0, row: 0, column: 0 }, [0, 0]).kind];
        }"""
    )
    kinds = np.array(kinds).reshape(len(labels), -1)
    assert (kinds[lone] == 6).all() and (kinds[:, lone] == 6).all()
    view.choose(query=groups(view)[lone][2], run=1)
    assert view.text("#compare-keys-title") == "No head has this row in both runs"
    assert not view.each("#compare-keys .entry")


def test_the_chosen_row_is_compared_key_by_key(texts):
    """The keys are in falling order of their difference, with the weights of both; a key of one text alone counts."""
    view, *weights = texts
    row = SAME.index(" sat")
    view.choose(run=0, call=0, head=2, query=row, compare="side")
    at = next(g for g, (a, b, *_) in enumerate(groups(view)) if a <= row < b)
    p, q = (np.nan_to_num(merged(exact[0][2], view, side)[at]) for side, exact in enumerate(weights))
    points = view.each("#compare-keys .entry", "parseFloat(node.lastChild.textContent.replace('−', '-'))")
    view.tab.focus("#compare-keys")
    view.press("ArrowDown")
    chosen = view.each("#compare-keys [aria-selected=true]", "Number(node.dataset.place)")
    assert chosen == [0] and view.state("key") is not None
    order = np.argsort(-np.abs(q - p))[: len(points)]
    np.testing.assert_allclose(points, 100 * (q - p)[order], rtol=0.01, atol=0.01)
    assert share(view.text("#compare-row").split("differs by ")[1]) == pytest.approx(np.abs(q - p).sum() / 2, rel=0.006)


def test_two_tokenizers_and_two_models(opened):
    """Pieces of one word are one cell; a head of a model with other layers is compared with one at the same depth, or
    with the one that is chosen, which the address keeps; one of the same model, with itself.
    """
    ours, exact = run_of(["[CLS]", " unbeliev", "able", " cats", "[SEP]"], layers=4, heads=3)
    theirs, other = run_of(["<s>", "▁un", "believable", "▁cats", "</s>"], layers=2, heads=2, seed=3)
    view = opened(page(ours, dataclasses.replace(theirs, model="another")), "#call=3&head=2")
    assert groups(view) == [[0, 1, 0, 1], [1, 3, 1, 3], [3, 4, 3, 4], [4, 5, 4, 5]]
    check_merged(view, 0, exact[3][2])
    check_merged(view, 1, other[1][1])
    assert "1 cut into other pieces" in view.text("#compare-tokens")
    view.tab.select_option("#compare-second", "0.1")
    view.settled()
    check_merged(view, 1, other[0][1])
    assert "second=0.1" in view.address()
    view = opened(page(ours, dataclasses.replace(ours, calls=ours.calls[1:3])))
    assert view.tab.evaluate("[1, 2].map((call) => comparison.now.heads({ call, head: 0 })[1].call)") == [0, 1]


def test_faults_stay_faults_in_merged_cells(opened):
    """A weight that is not a number, or that the mask forbids, is one in the cell of its tokens too."""
    ours, exact = run_of([" a", "b", " c", " d"], layers=1, heads=1, mask=rg.causal())
    theirs, _ = run_of([" ab", " c", " d"], layers=1, heads=1, mask=rg.causal())
    view = opened(page(spoiled(ours, exact[0], {(0, 3, 1): np.nan, (0, 0, 2): 0.25}), theirs))
    codes = view.tab.evaluate("async () => [...(await mergedSource.head(comparison.now.names[0], 0, 0)).coarse]")
    assert (codes[6], codes[1]) == (NAN, LEAK)
