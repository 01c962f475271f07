"""The visual of the streaming softmax: (m, l, o) after each block are NumPy's, and the end is the plain softmax."""

import numpy as np
import pytest

from tests.support.lanes import by_name

RANDOM = np.random.default_rng(0)
CASES = {
    "random": RANDOM.standard_normal(12),
    "rising": np.arange(8.0),
    "large": np.array([1000.0, -1000.0, 999.0]),
    "one": np.array([0.5]),
    "a masked block": np.array([-np.inf, -np.inf, 1.0, 2.0, -np.inf]),
    "all masked": np.array([-np.inf, -np.inf]),
}


def sums(scores, values, m):
    """Of some keys: l and o, as sums of exponentials relative to m; also what is left of 0, where all are masked."""
    exps = np.exp(scores - m) if m > -np.inf else np.zeros(len(scores))
    return {"l": exps.sum(), **{f"o{at}": each for at, each in enumerate(exps @ values)}}, exps


def expected(scores, values, block, step):
    """m, l and o before and after the block of a step, its own parts, and the factor: of all keys until then."""
    first, stop = block * (step - 1), block * step
    last, m = max((-np.inf, *scores[: max(0, first)])), max((-np.inf, *scores[:stop]))
    after, exps = sums(scores[:stop], values[:stop], m)
    found = {"m-after": m, **{f"{name}-after": each for name, each in after.items()}}
    found |= {f"exp-{j}": each for j, each in enumerate(exps)}
    if 0 <= first < len(scores):
        found |= {"m-before": last, "m-added": scores[first:stop].max()}
        before, _ = sums(scores[:first], values[:first], last)
        added, _ = sums(scores[first:stop], values[first:stop], m)
        for name in added:
            found |= {f"{name}-before": before[name], f"{name}-added": added[name]}
            found[f"{name}-factor"] = np.exp(last - m) if m > -np.inf else 0.0
    elif step:
        out = exps @ values / (exps.sum() or 1)
        found |= {f"{name}-{at}": each for name in ("plain", "out") for at, each in enumerate(out)}
    return found


def steps(view, number):
    """Goes to a step by the button, as a reader does."""
    for _ in range(number):
        view.tab.get_by_role("button", name="next step").click()


@pytest.mark.one_in(3)
@pytest.mark.spread
@by_name("scores", CASES)
@pytest.mark.parametrize("block", [1, 2, 5])
def test_every_number_of_every_step_is_that_of_numpy(shown, scores, block):
    values = RANDOM.standard_normal((len(scores), 2))
    block = min(block, len(scores))
    view = shown("streaming", scores=scores, values=values, block=block)
    for step in range(-(-len(scores) // block) + 2):
        numbers = view.numbers()
        assert numbers.pop("held") == 4 + block
        assert [numbers.pop(f"score-{j}") for j in range(len(scores))] == scores.tolist()
        assert numbers.pop("difference", 0.0) <= 1e-12
        assert numbers == pytest.approx(expected(scores, values, block, step), rel=1e-11, abs=1e-300)
        steps(view, 1)


def test_the_size_of_a_block_is_chosen_and_the_steps_begin_again(shown):
    """And the arrow keys go through them, as the button does."""
    view = shown("streaming", scores=CASES["random"], values=RANDOM.standard_normal((12, 2)), block=3)
    steps(view, 2)
    size = view.tab.get_by_label("keys in a block")
    size.select_option("12")
    assert "step 1 of 3" in view.tab.inner_text(".player")
    steps(view, 2)
    assert view.numbers()["difference"] <= 1e-15
    size.select_option("4")
    for _ in range(2):
        view.tab.get_by_role("slider").press("ArrowRight")
    assert "Block 2 of 3" in view.tab.inner_text(".streaming-step")
