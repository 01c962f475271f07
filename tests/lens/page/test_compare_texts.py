"""Comparisons of runs with other tokens, lengths, tokenizers, precisions and models, in a real browser."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.lens.viewer import page
from tests.support.browser import example
from tests.support.page_map import Map

SAME = ["[CLS]", " the", " cat", " sat", " down", " .", "[SEP]"]


def run_of(tokens, **rules):
    """A run of random heads over these tokens, and its exact weights."""
    return example(len(tokens), tokens=tokens, **rules)


def groups(view):
    """What the page takes to correspond: ranges of both texts."""
    return view.tab.evaluate("comparison.now.axes({ call: state.call, head: state.head }).queries[2]")


def merged(p, ranges):
    """Weights over groups: the mean over the rows of the sum over the keys; None where the text lacks the group."""
    found = np.zeros((len(ranges), len(ranges)))
    for g, (i, stop) in enumerate(ranges):
        for h, (j, end) in enumerate(ranges):
            found[g, h] = p[i:stop, j:end].sum(1).mean() if i < stop and j < end else np.nan
    return found


def shown_weights(view, side, n):
    """The weights that the page has of one of the compared runs, over the groups; NaN where a run lacks the tokens."""
    values = view.tab.evaluate(
        """async (side) => {
            const name = comparison.now.names[side], { call, head } = state;
            const { coarse, fine } = await sourceOf(name).tile(name, call, head, "share", 0, 0, 0);
            return Array.from(coarse, (code, at) => (code === MASKED ? null : weight(code, fine[at])));
        }""",
        side,
    )
    return np.array([np.nan if value is None else value for value in values]).reshape(-1, n)


def check_merged(view, exact, head=0, call=0):
    """Fails unless both maps have the sums and means of the exact weights, in the groups that the page found."""
    view.choose(call=call, head=head)
    found = groups(view)
    for side, p in enumerate(exact):
        expected = merged(p[call][head], [group[2 * side : 2 * side + 2] for group in found])
        shown = shown_weights(view, side, len(found))
        np.testing.assert_array_equal(np.isnan(shown), np.isnan(expected))
        there = ~np.isnan(expected)
        np.testing.assert_allclose(shown[there], expected[there], rtol=3e-4, atol=1e-6)


def aligned(view, ours, theirs):
    return view.tab.evaluate("([ours, theirs]) => aligned(ours, theirs)", [ours, theirs])


@pytest.fixture(scope="module")
def texts(kept_open):
    """A page of two texts of which one says more, and the exact weights of both."""
    ours, exact = run_of([*SAME[:3], " sat", " down", " .", "[SEP]"])
    longer = ["[CLS]", " the", " old", " dog", " sat", " on", " the", " very", " warm", " mat", " .", "[SEP]"]
    theirs, other = run_of(longer, seed=1)
    return kept_open(page(ours, theirs)), exact, other


def test_tokens_are_aligned_by_their_difference(texts):
    """Equal tokens first; then replacements, pieces of two tokenizers by their letters, and what one text lacks."""
    view, *_ = texts
    assert aligned(view, ["a", " b", " c"], ["A", "b", " c"]) == [[0, 1, 0, 1], [1, 2, 1, 2], [2, 3, 2, 3]]
    assert aligned(view, ["a", "x", "c"], ["a", "y", "c"]) == [[0, 1, 0, 1], [1, 2, 1, 2], [2, 3, 2, 3]]
    assert aligned(view, ["a", "c"], ["a", "b", "c"]) == [[0, 1, 0, 1], [1, 1, 1, 2], [1, 2, 2, 3]]
    assert aligned(view, [" didn", "'t", " go"], ["▁did", "n't", "▁go"]) == [[0, 2, 0, 2], [2, 3, 2, 3]]
    assert aligned(view, ["un", "##believ", "##able"], ["unbe", "lievable"]) == [[0, 3, 0, 2]]
    assert aligned(view, ["ab", "cd", "ef"], ["ab", "c", "d", "ef"]) == [[0, 1, 0, 1], [1, 2, 1, 3], [2, 3, 3, 4]]
    assert aligned(view, list("abcd"), ["x"]) == [*([i, i + 1, 0, 0] for i in range(4)), [4, 4, 0, 1]]


def test_every_token_is_in_one_group_in_order(texts):
    """Of random texts with repeated and empty tokens, both short and too long for one table of the difference."""
    view, *_ = texts
    random = np.random.default_rng(0)
    letters = ["a", "b", "ab", "c", "", " ", "abc"]
    pairs = [[[letters[i] for i in random.integers(7, size=n)] for n in random.integers(0, 9, 2)] for _ in range(200)]
    long = [f"w{i}" for i in random.integers(4000, size=6000)]
    pairs.append([long, [*long[:1000], "other", *long[1500:]]])
    for ours, theirs in pairs:
        found = np.array(aligned(view, ours, theirs), int).reshape(-1, 4)
        for side, tokens in enumerate((ours, theirs)):
            assert [i for a, b in found[:, 2 * side : 2 * side + 2] for i in range(a, b)] == list(range(len(tokens)))
        assert (found[:, 1] - found[:, 0] + found[:, 3] - found[:, 2] > 0).all()
    equal = [group for group in found if group[1] - group[0] == group[3] - group[2] == 1]
    assert len(equal) > 5000


def test_texts_of_other_lengths_are_compared_where_they_agree(texts):
    """Cells are those of corresponding tokens, whose labels say what was replaced or added; what one text lacks is
    no difference.
    """
    view, exact, other = texts
    check_merged(view, (exact, other), head=1, call=1)
    said = view.text("#compare-tokens")
    assert "“cat” → “dog”" in said or "“cat” → “old dog”" in said
    assert "only in the second" in said
    view.click("#compare-mode [value=difference]")
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


def test_the_chosen_row_is_compared_key_by_key(texts):
    """The keys are in falling order of their difference, with the weights of both; a key of one text alone counts."""
    view, exact, other = texts
    row = SAME.index(" sat")
    view.choose(run=0, call=0, head=2, query=row, compare="side")
    found = groups(view)
    at = next(g for g, (a, b, *_) in enumerate(found) if a <= row < b)
    p, q = (
        np.nan_to_num(merged(weights[0][2], [group[2 * side : 2 * side + 2] for group in found])[at])
        for side, weights in enumerate((exact, other))
    )
    lines = view.tab.eval_on_selector_all(
        "#compare-keys tbody tr", "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    shown = [float(line[3].split()[0].replace("−", "-")) / 100 for line in lines]
    order = np.argsort(-np.abs(q - p))[: len(lines)]
    np.testing.assert_allclose(shown, (q - p)[order], rtol=0.01, atol=1e-4)
    assert float(view.text("#compare-row").split("differs by ")[1].split(" %")[0]) / 100 == pytest.approx(
        np.abs(q - p).sum() / 2, rel=0.006
    )


def test_a_click_on_a_token_of_one_text_shows_the_run_that_has_it(texts):
    """The plots keep the rows of both; the row of a token that only the second has makes the page show the second."""
    view, *_ = texts
    view.choose(run=0, call=0, head=0, query=1, compare="side")
    found = groups(view)
    lone = next(g for g, (a, b, *_) in enumerate(found) if a == b)
    first = Map(view, "comparison.plots[0]")
    first.click(lone, 0)
    assert view.state("run", "query", "key") == (1, found[lone][2], 0)
    assert "only in the second run" in view.text("#compare-row")
    Map(view, "comparison.plots[0]").click(0, 1)
    assert view.state("run", "query", "key") == (0, 0, 1)


def test_two_tokenizers_and_two_models(opened):
    """Pieces of one word are one cell; a head of a model with other layers is compared with one at the same depth, or
    with the one that is chosen, which the address keeps.
    """
    ours, exact = run_of(["[CLS]", " unbeliev", "able", " cats", "[SEP]"], layers=4, heads=3)
    theirs, other = run_of(["<s>", "▁un", "believable", "▁cats", "</s>"], layers=2, heads=2, seed=3)
    view = opened(page(ours, dataclasses.replace(theirs, model="another")), "#call=3&head=2")
    assert groups(view) == [[0, 1, 0, 1], [1, 3, 1, 3], [3, 4, 3, 4], [4, 5, 4, 5]]
    ranges = [group[:2] for group in groups(view)]
    np.testing.assert_allclose(shown_weights(view, 0, 4), merged(exact[3][2], ranges), rtol=3e-4, atol=1e-6)
    np.testing.assert_allclose(shown_weights(view, 1, 4), merged(other[1][1], ranges), rtol=3e-4, atol=1e-6)
    assert "1 cut into other pieces" in view.text("#compare-tokens")
    view.tab.select_option("#compare-call", "0")
    view.settled()
    np.testing.assert_allclose(shown_weights(view, 1, 4), merged(other[0][1], ranges), rtol=3e-4, atol=1e-6)
    assert "partner=3.2.0.1" in view.tab.evaluate("address()")
    view.click("#compare-run [value='1']")
    assert view.state("run", "call") == (1, 0)


@pytest.mark.sweep
def test_a_short_text_and_a_long_one(opened):
    """5 and 400 tokens: the page is ready, the maps agree with NumPy, and the row of each is found."""
    ours, exact = run_of(["[CLS]", " the", " cat", " .", "[SEP]"], layers=1, heads=2)
    words = [
        "[CLS]",
        *(f" word{i}" for i in range(200)),
        " the",
        " cat",
        *(f" more{i}" for i in range(195)),
        " .",
        "[SEP]",
    ]
    theirs, other = run_of(words, layers=1, heads=2, seed=2)
    assert len(words) == 400
    view = opened(page(ours, theirs))
    found = groups(view)
    assert [group[2:] for group in found if group[0] < group[1]] == [[i, i + 1] for i in (0, 201, 202, 398, 399)]
    row = view.tab.evaluate(
        """async () => {
            const { now } = comparison;
            const rows = await now.row({ call: 0, head: 1 }, now.groupOf("queries", { call: 0, head: 1 }, 2));
            return rows.map(({ p }) => [...p]);
        }"""
    )
    for side, (p, i) in enumerate(((exact, 2), (other, 202))):
        expected = [p[0][1, i, a:b].sum() for a, b in (group[2 * side : 2 * side + 2] for group in found)]
        np.testing.assert_allclose(row[side], expected, rtol=3e-4, atol=2e-6)


def test_two_precisions_are_compared_cell_by_cell(opened):
    """The same text in another precision: the rounding of q and k is the difference, and cells keep their numbers."""

    def rounded(q, k):
        for x in (q, k):
            x[:] = (x.view(np.uint32) + 0x8000 & np.uint32(0xFFFF0000)).view(np.float32)

    ours, exact = run_of(SAME)
    theirs, other = run_of(SAME, poison=rounded)
    view = opened(page(ours, theirs), "#call=0&head=0&query=3&compare=difference")
    assert view.text("#compare-tokens").strip() == "Both runs have the same tokens."
    shown = float(view.text("#compare-row").split("differs by ")[1].split(" %")[0]) / 100
    assert shown == pytest.approx(np.abs(exact[0][0, 3] - other[0][0, 3]).sum() / 2, rel=0.1, abs=3e-4)


def test_faults_stay_faults_in_merged_cells(opened):
    """A weight that is not a number, or that the mask forbids, is one in the cell of its tokens too."""
    ours, exact = run_of([" a", "b", " c", " d"], layers=1, heads=1, mask=rg.causal())
    theirs, _ = run_of([" ab", " c", " d"], layers=1, heads=1, mask=rg.causal(), seed=1)
    p = exact[0].copy()
    p[0, 3, 1], p[0, 0, 2] = np.nan, 0.25
    bare = {"q": None, "k": None, "v": None, "x": None, "out": None}
    call = dataclasses.replace(ours.calls[0], given=p, **bare)
    view = opened(page(dataclasses.replace(ours, calls=(call,)), theirs))
    codes = view.tab.evaluate("async () => [...(await mergedSource.head(comparison.now.names[0], 0, 0)).coarse]")
    codes = np.array(codes).reshape(3, 3)
    assert (codes[2, 0], codes[0, 1]) == (2, 5)


def test_a_row_of_one_text_alone_has_no_difference_in_any_head(texts):
    """The list of heads says "—" instead of waiting for a number, and is not busy."""
    view, *_ = texts
    only = next(a0 for a0, a1, b0, b1 in groups(view) if b0 == b1 and a1 > a0)
    view.choose(query=only, run=0)
    rows = view.tab.eval_on_selector_all(
        "#compare-heads tbody td:nth-child(2)", "nodes => nodes.map((n) => n.textContent)"
    )
    assert rows and set(rows) == {"—"}
    assert view.tab.get_attribute("#compare-heads", "aria-busy") is None


def test_a_run_compared_with_itself(opened):
    """No list of ten heads that differ by 0 %, and no table without rows."""
    run, _ = run_of(SAME)
    view = opened(page(run, run))
    view.tab.wait_for_selector("#compare-heads:not([aria-busy])", state="attached")
    assert view.text("#compare-heads-title") == "This row has the same weights in every head"
    assert view.text("#compare-keys-title") == "All keys of this row have the same weights"
    assert not view.tab.is_visible("#compare-heads") and not view.tab.is_visible("#compare-keys")


def test_a_row_that_is_equal_in_runs_that_differ(opened):
    """The first row of a causal model has one key: the heads are in the order of the other rows."""
    view = opened(page(run_of(SAME, mask=rg.causal())[0], run_of(SAME, mask=rg.causal(), seed=5)[0]), "#query=0")
    view.tab.wait_for_selector("#compare-heads:not([aria-busy])", state="attached")
    assert view.text("#compare-heads-title").endswith("in every head; heads that differ most in other rows")
    by = view.tab.eval_on_selector_all(
        "#compare-heads tbody td:last-child", "nodes => nodes.map((node) => node.textContent.split(' → '))"
    )
    apart = [abs(float(from_.rstrip(" %")) - float(to.rstrip(" %"))) for from_, to in by]
    assert apart[0] > 1 and all(apart[i] >= apart[i + 1] - 1 for i in range(len(apart) - 1))


def test_two_characters_that_the_model_does_not_know(opened):
    """They are other letters in the text, and the same token for the model: the page says why nothing differs."""
    run, _ = run_of(["[CLS]", " [UNK]", " cat", "[SEP]"])
    both = [
        dataclasses.replace(
            run, axes={"text": dataclasses.replace(run.axes["text"], unknown=((1, characters),))}, text=characters
        )
        for characters in ("🦊", "🐶")
    ]
    view = opened(page(*both))
    assert "“🦊” → “🐶” (both are [UNK] for the model)" in view.text("#compare-tokens")


@pytest.mark.sweep
def test_layers_of_one_model_are_compared_with_themselves(opened):
    """A run of some layers of the same model is compared layer by layer, not by depth."""
    run, _ = run_of(SAME, layers=4)
    some = dataclasses.replace(run, calls=run.calls[1:3])
    view = opened(page(run, some))
    assert [view.tab.evaluate(f"comparison.now.heads({{ call: {call}, head: 0 }})[1].call") for call in (1, 2)] == [
        0,
        1,
    ]
