"""The visual of the streaming softmax: (m, l, o) after each block are NumPy's, and the end is the plain softmax."""

import numpy as np
import pytest

pytestmark = pytest.mark.browser

RANDOM = np.random.default_rng(0)
CASES = {
    "random": RANDOM.standard_normal(12),
    "rising": np.arange(8.0),
    "large": np.array([1000.0, -1000.0, 999.0]),
    "one": np.array([0.5]),
    "a masked block": np.array([-np.inf, -np.inf, 1.0, 2.0, -np.inf]),
    "all masked": np.array([-np.inf, -np.inf]),
}


def expected(scores, values, block, step):
    """m, l and o before and after the block of a step, its own parts, and the factor; None where there is none."""
    m, l, o = -np.inf, 0.0, np.zeros(values.shape[1])  # noqa: E741
    found = {"m-after": m, "l-after": l, **{f"o{at}-after": each for at, each in enumerate(o)}}
    for number, first in enumerate(range(0, len(scores), block), 1):
        if number > step:
            break
        own = scores[first : first + block]
        new = max(m, own.max())
        factor = 0.0 if new == -np.inf else np.exp(m - new)
        exps = np.zeros(len(own)) if new == -np.inf else np.exp(own - new)
        added = {"l": exps.sum(), **{f"o{at}": each for at, each in enumerate(exps @ values[first : first + block])}}
        before = {"l": l, **{f"o{at}": each for at, each in enumerate(o)}}
        m_before, m = m, new
        l, o = l * factor + exps.sum(), o * factor + exps @ values[first : first + block]  # noqa: E741
        found = {"m-after": m, "l-after": l, **{f"o{at}-after": each for at, each in enumerate(o)}}
        if number == step:
            found |= {"m-before": m_before, "m-added": own.max()}
            for name in before:
                found |= {f"{name}-before": before[name], f"{name}-factor": factor, f"{name}-added": added[name]}
    read = scores[: step * block]
    found |= {f"exp-{j}": 0.0 if s == -np.inf else np.exp(s - m) for j, s in enumerate(read)}
    if step > -(-len(scores) // block):
        exps = np.zeros(len(scores)) if scores.max() == -np.inf else np.exp(scores - scores.max())
        plain = exps @ values / (exps.sum() or 1)
        found |= {f"plain-{at}": each for at, each in enumerate(plain)}
        found |= {f"out-{at}": each for at, each in enumerate(o / (l or 1))}
    return found


def steps(view, number):
    """Goes to a step by the button, as a reader does."""
    for _ in range(number):
        view.tab.get_by_role("button", name="next step").click()


@pytest.fixture
def streaming(shown):
    """Opens the visual with scores, random values and a size of the blocks."""
    return lambda block, scores=CASES["random"], **more: shown(
        "streaming", scores=scores, values=RANDOM.standard_normal((len(scores), 2)), block=block, **more
    )


@pytest.mark.one_in(3)
@pytest.mark.spread
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("block", [1, 2, 5])
def test_every_number_of_every_step_is_that_of_numpy(shown, name, block):
    scores = CASES[name]
    values = RANDOM.standard_normal((len(scores), 2))
    view = shown("streaming", scores=scores, values=values, block=min(block, len(scores)))
    block = min(block, len(scores))
    for step in range(-(-len(scores) // block) + 2):
        numbers = view.numbers()
        assert numbers.pop("held") == 4 + block
        for j, score in enumerate(scores):
            assert numbers.pop(f"score-{j}") == score
        difference = numbers.pop("difference", 0.0)
        wanted = expected(scores, values, block, step)
        assert numbers.keys() == wanted.keys()
        for each, value in wanted.items():
            assert numbers[each] == pytest.approx(value, rel=1e-11, abs=1e-300), (step, each)
        assert difference <= 1e-12
        steps(view, 1)


def test_the_size_of_a_block_is_chosen_and_the_steps_begin_again(streaming):
    """And the arrow keys go through them, as the button does."""
    view = streaming(3)
    steps(view, 2)
    view.tab.get_by_label("keys in a block").select_option("12")
    assert "step 1 of 3" in view.tab.inner_text(".player")
    steps(view, 2)
    assert view.numbers()["difference"] <= 1e-15
    view.tab.get_by_label("keys in a block").select_option("4")
    for _ in range(2):
        view.tab.get_by_role("slider").press("ArrowRight")
    assert "Block 2 of 3" in view.tab.inner_text(".streaming-step")


@pytest.mark.sweep
def test_it_plays_by_itself_unless_motion_is_reduced_or_the_size_changes(streaming):
    """With the clock of the page, so that nothing depends on how fast this machine is."""
    for motion, size, moved in (("no-preference", None, True), ("reduce", None, False), ("no-preference", "4", False)):
        view = streaming(1, _context={"reduced_motion": motion})
        view.tab.clock.install()
        view.tab.reload()
        view.tab.get_by_role("button", name="Play").click()
        if size:
            view.tab.get_by_label("keys in a block").select_option(size)
        at = view.state("step")
        view.tab.clock.run_for(5000)
        assert (view.state("step") > at) == moved, (motion, size)
