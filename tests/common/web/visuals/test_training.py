"""The visual of a head that forms: its numbers are those that were recorded, and NumPy's mean of them."""

import numpy as np
import pytest

from regard.learn.running import installed, run
from regard.learn.source import chapters

RANDOM = np.random.default_rng(0)
N, COUNT = 6, 5
LOGITS = RANDOM.standard_normal((COUNT, N, N)) + np.arange(COUNT)[:, None, None] * np.eye(N)
DATA = {
    "recorded": [0, 3, 10, 20, 40],
    "losses": [2.0, 1.5, 0.7, 0.2, 0.1],
    "weights": np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True),
    "right": [0, 1, 2, 3, 5, 4],
}


def test_every_number_of_every_record(shown):
    """And the opacity of each cell."""
    view = shown("training", **DATA)
    for at, row in ((0, 0), (2, 4), (COUNT - 1, 4)):
        view.change(at=at, row=row)
        head = DATA["weights"][at]
        mass = head[range(N), DATA["right"]].mean()
        wanted = {"step": DATA["recorded"][at], "loss": DATA["losses"][at], "equal": 1 / N, "mass": mass}
        view.near(wanted | {"weight": head[row]}, rel=1e-12)
        assert view.opacities() == pytest.approx(head, abs=0.51 / 255)


def test_a_row_is_chosen_by_keyboard_and_by_a_click_on_the_map(shown):
    """And its weights are shown."""
    view = shown("training", **DATA)
    view.tab.get_by_label("row").select_option("row 3")
    view.near({"weight-3": DATA["weights"][0][3][3]})
    box = view.tab.locator(".training-map svg").bounding_box()
    view.tab.mouse.click(box["x"] + 5, box["y"] + 5.5 / N * box["height"])
    view.near({"weight-0": DATA["weights"][0][5][0]})
    assert view.tab.get_by_label("row").input_value() == "row 5"


def test_it_plays(shown):
    """To the last record, by the clock of the page."""
    view = shown("training", {"reduced_motion": "no-preference"}, **DATA)
    view.tab.clock.install()
    view.tab.reload()
    view.tab.get_by_role("button", name="Play").click()
    view.tab.clock.run_for(10_000)
    assert view.state("at") == 4


@pytest.mark.slow
def test_the_head_of_chapter_15_really_forms():
    """The weights are those of a training: equal at first, on the diagonal at the end; in a JSON below 20 kB."""
    (visual,) = [part for chapter in chapters() for part in chapter.parts if getattr(part, "kind", "") == "training"]
    if missing := installed(visual.needs):
        pytest.skip(missing)
    data = run(visual).data
    weights, losses = np.array(data["weights"]), data["losses"]
    first, *_, last = weights[:, range(8), data["right"]].mean(1)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=5e-4)
    assert first < 0.25 and last > 0.85 and losses[0] > 1.9 and losses[-1] < 0.1
    assert sum(len(str(each)) for each in weights.ravel()) < 20_000
