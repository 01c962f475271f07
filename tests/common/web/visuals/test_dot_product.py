"""The visual of a dot product: its numbers are NumPy's, wherever the arrows are."""

import numpy as np
import pytest

PAIRS = [([2, 1], [1, 3]), ([2, 0], [0, 3]), ([1, 2], [-2, -4]), ([0, 0], [1, 1]), ([0.1, -0.3], [4, 0.5])]


def check(view, a, b):
    """Fails unless every number that is shown follows from a and b."""
    a, b = np.array(a, float), np.array(b, float)
    lengths = np.linalg.norm(a), np.linalg.norm(b)
    with np.errstate(invalid="ignore"):  # a row of zeros has no angle
        cosine, shadow = a @ b / np.prod(lengths), a @ b / lengths[0] if min(lengths) else np.nan
    wanted = {"product": a @ b, "length-a": lengths[0], "length-b": lengths[1], "cosine": cosine, "shadow": shadow}
    view.near(wanted | {"by-cosine": a @ b}, abs=1e-12, nan_ok=True)
    view.near({"angle": np.degrees(np.arccos(np.clip(cosine, -1, 1)))}, abs=1e-5, nan_ok=True)
    if len(a) == 2:
        view.near({"a": a, "b": b, "product": a * b})


def test_every_number_is_that_of_numpy(shown):
    """Also at right angles, in opposite directions, and of a row of zeros; words say the sign."""
    view = shown("dot-product", a=[1.0, 1.0], b=[1.0, 0.0])
    for a, b in PAIRS:
        view.change(a=a, b=b)
        check(view, a, b)
        sign = {1: "Positive:", 0: "Zero:", -1: "Negative:"}[int(np.sign(np.dot(a, b)))]
        assert view.tab.inner_text(".dot-words").startswith(sign)


def test_longer_rows_are_drawn_in_the_plane_that_they_span(shown):
    """The angle between the arrows is that of the rows."""
    a, b = np.random.default_rng(0).standard_normal((2, 32))
    view = shown("dot-product", a=a, b=b, names=["q", "k"])
    check(view, a, b)
    (x0, y0, x1, y1), (_, _, x2, y2), *_ = view.tab.eval_on_selector_all(
        ".plane-arrow line",
        "(lines) => lines.map((line) => ['x1', 'y1', 'x2', 'y2'].map((name) => Number(line.getAttribute(name))))",
    )
    drawn = np.degrees(np.arctan2(y1 - y0, x1 - x0) - np.arctan2(y2 - y0, x2 - x0))
    assert drawn == pytest.approx(view.numbers()["angle"], abs=0.1)
    assert view.tab.query_selector(".plane-handle") is None  # 32 numbers cannot be moved in a plane


def handle(view):
    """Where the handle of a is, and how long 1 is."""
    box = view.tab.locator(".plane-handle.q circle:last-child").bounding_box()
    unit = view.tab.locator(".plane").bounding_box()["width"] / 8  # from −4 to 4
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, unit


def test_arrows_follow_keys_the_pointer_and_typed_numbers(shown):
    """And what is no number is marked, and changes nothing."""
    view = shown("dot-product", a=[2.0, 1.0], b=[1.0, 3.0])
    view.tab.focus(".plane-handle.k")
    view.tab.keyboard.press("ArrowDown")
    view.tab.keyboard.press("Shift+ArrowLeft")
    check(view, [2, 1], [0.9, 2.5])
    x, y, unit = handle(view)
    view.tab.mouse.move(x, y)
    view.tab.mouse.down()
    view.tab.mouse.move(x - 3 * unit, y)
    view.tab.mouse.up()
    check(view, [-1, 1], [0.9, 2.5])
    field = view.tab.get_by_label("b[0]")
    for text in ("−2,5", "much"):
        field.fill(text)
        check(view, [-1, 1], [-2.5, 2.5])
    assert field.get_attribute("aria-invalid") == "true"
    field.press("ArrowUp")
    check(view, [-1, 1], [-2, 2.5])


def test_buttons_turn_one_arrow_to_the_other(shown):
    """Along it, at a right angle, against it."""
    view = shown("dot-product", a=[2.0, 1.0], b=[1.0, 3.0])
    for button, b in (("along a", [2, 1]), ("at a right angle", [-1, 2]), ("against it", [-2, -1])):
        view.controls("button", button).click()
        check(view, [2, 1], b)


def test_a_finger_moves_an_arrow_and_not_the_page(shown):
    """Down, the way in which a page scrolls."""
    window = {"viewport": {"width": 390, "height": 400}, "has_touch": True}
    view = shown("dot-product", window, a=[2.0, 1.0], b=[1.0, 3.0])
    view.tab.evaluate("document.body.style.padding = '300px 0 900px'; scrollTo(0, 300)")
    x, y, unit = handle(view)
    finger = view.tab.context.new_cdp_session(view.tab)
    for kind, down in (("touchStart", 0), *(("touchMove", step / 5) for step in range(1, 11)), ("touchEnd", None)):
        points = [] if down is None else [{"x": x, "y": y + down * unit}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    check(view, [2, -1], [1, 3])
    assert view.tab.evaluate("scrollY") == 300
