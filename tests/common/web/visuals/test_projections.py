"""The visual of projections: q, k and v are NumPy's for every x."""

import numpy as np

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal(12).round(2)
MATRICES = {name: RANDOM.standard_normal((12, 32)) for name in ("W_q", "W_k", "W_v")}
RESTS = {name: RANDOM.standard_normal(32) for name in ("rest_q", "rest_k", "rest_v")}
DATA = {"x": X, **MATRICES, **RESTS, "width": 384}


def check(view, x, rests=RESTS):
    """Fails unless every number that is shown follows from x."""
    count = len(x)
    view.near({"x": x})
    (chosen, at), edited = view.state("chosen", "edited")
    for role in "qkv":
        W, rest = MATRICES[f"W_{role}"][:count], rests.get(f"rest_{role}", 0)
        now = x @ W + rest
        view.near({role: now, f"moved-{role}": np.abs((x - X[:count]) @ W).mean()}, abs=1e-12)
        if role == chosen:
            term = x[edited] * W[edited, at]
            view.near({"chosen": now[at], "term": term, "others": now[at] - term}, abs=1e-12)


def test_every_number_is_that_of_numpy(shown):
    """For x as it is given, zeros, a multiple and another; also without numbers of x that are not shown."""
    view = shown("projections", **DATA)
    for x in (X, np.zeros(12), 3 * X, RANDOM.standard_normal(12)):
        view.change(x=x.tolist(), edited=7, chosen=["v", 31])
        check(view, x)
    view = shown("projections", x=X[:3], **{name: matrix[:3] for name, matrix in MATRICES.items()})
    check(view, X[:3], rests={})
    assert "bias" not in view.tab.inner_text(".proj-explained")


def test_x_follows_the_pointer_keys_and_typed_numbers(shown):
    """And one button brings the first numbers back."""
    view = shown("projections", **DATA)
    x, label = X.copy(), view.tab.get_by_label
    label("x[3]", exact=True).press("ArrowRight")
    label("x[5], typed").fill("-1.75")
    x[3], x[5] = x[3] + 0.1, -1.75
    check(view, x)
    track = view.tab.locator(".proj-row").nth(7).locator(".proj-track").bounding_box()
    for part, button in ((0.5, view.tab.mouse.down), (0.75, view.tab.mouse.up)):
        view.tab.mouse.move(track["x"] + track["width"] * part, track["y"] + 8)
        button()
    x[7] = view.numbers()["x-7"]
    assert 0.4 < x[7] / (1.5 * np.abs(X).max()) < 0.6  # half of the way to the right
    check(view, x)
    view.tab.get_by_role("button", name="Numbers as at first").click()
    check(view, X)
