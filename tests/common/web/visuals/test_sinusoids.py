"""The visual of sinusoids: its matrix, curve and rotation are those of NumPy and of regard."""

import numpy as np
import pytest

pytestmark = pytest.mark.browser


def sinusoids(positions, d):
    angles = np.asarray(positions)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(-1, d)


def test_the_matrix_is_that_of_the_formula_and_of_regard(shown):
    """At each size; regard's own, where torch is installed."""
    view = shown("sinusoids", positions=48, width=32)
    for n, d in ((48, 32), (8, 4), (96, 64)):
        view.change(n=n, d=d)
        assert np.allclose(view.opacities(), (1 + sinusoids(range(n), d)) / 2, atol=0.51 / 255)
    torch = pytest.importorskip("torch")
    from regard.torch.positions import Sinusoidal

    places = Sinusoidal(64).embed(torch.zeros(1, 96, 64, dtype=torch.float64), torch.arange(96))[0].numpy()
    assert np.allclose(view.opacities(), (1 + places) / 2, atol=0.51 / 255)


def test_the_numbers_of_a_pair(shown):
    """Value, θ and wavelength; the rotation is shown only where it is asked for."""
    view = shown("sinusoids", positions=48, width=32)
    for p, column, d in ((0, 0, 32), (47, 31, 32), (5, 3, 4), (13, 8, 16)):
        view.change(p=p, column=column, d=d)
        row, theta = sinusoids([p], d)[0], 10000.0 ** (-2 * (column // 2) / d)
        numbers = view.numbers()
        assert numbers["value"] == pytest.approx(row[column], rel=1e-12, abs=1e-15)
        assert numbers["theta"] == pytest.approx(theta, rel=1e-12)
        assert numbers["wavelength"] == pytest.approx(2 * np.pi / theta, rel=1e-12)
        assert "R-00" not in numbers


def test_a_step_is_a_rotation(shown):
    """By the same matrix at every position."""
    view = shown("sinusoids", positions=48, width=32, step=3)
    for p, k, column, d in ((0, 0, 0, 32), (10, 3, 9, 32), (47, 32, 2, 4), (1, 7, 1, 8)):
        view.change(p=p, k=k, column=column, d=d)
        pair = column // 2
        angle = k * 10000.0 ** (-2 * pair / d)
        R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        now, later = sinusoids([p, p + k], d)[:, 2 * pair : 2 * pair + 2]
        numbers = view.numbers()
        found = np.array([[numbers[f"R-{i}{j}"] for j in (0, 1)] for i in (0, 1)])
        assert np.allclose(found, R, atol=1e-15)
        assert np.allclose([numbers["sine"], numbers["cosine"]], now, atol=1e-14)
        assert np.allclose([numbers["next-sine"], numbers["next-cosine"]], later, atol=1e-14)
        assert np.allclose([numbers["turned-sine"], numbers["turned-cosine"]], now @ R, atol=1e-14)
        assert np.allclose(now @ R, later, atol=1e-13)


def test_the_hands_point_to_the_pair(shown):
    """To the right the sine, upwards the cosine, as on a clock."""
    view = shown("sinusoids", positions=48, width=32, step=5)
    view.change(p=2, column=4)
    first, second = view.tab.evaluate("""() => ["first", "second"].map((name) => {
        const dot = document.querySelector(`.sinusoids-${name} circle`);
        return [Number(dot.getAttribute("cx")) / 62, Number(dot.getAttribute("cy")) / -62];
    })""")
    assert np.allclose([first, second], sinusoids([2, 7], 32)[:, 4:6], atol=1e-12)


def test_smaller_sizes_keep_what_is_chosen_inside(shown):
    """The last position and column."""
    view = shown("sinusoids", positions=48, width=32)
    view.change(p=47, column=31)
    view.change(n=8, d=4)
    assert view.state("p", "column") == [7, 3]


def test_its_matrix_follows_light_and_dark(shown):
    """Its color is that of the page."""
    view = shown("sinusoids", positions=16, width=8)
    color = """() => { const copy = new OffscreenCanvas(2, 1).getContext("2d");
        copy.drawImage(document.querySelector("canvas"), 0, 0);
        return [...copy.getImageData(1, 0, 1, 1).data].join(); }"""
    assert view.tab.evaluate(color) == "185,50,8,255"  # cos(0) = 1: the full color of --accent
    view.tab.add_style_tag(
        content="@media (prefers-color-scheme: dark) { :root { --accent: rgb(1, 2, 3) !important } }"
    )
    view.tab.emulate_media(color_scheme="dark")
    view.tab.wait_for_function(f"({color})() === '1,2,3,255'")
