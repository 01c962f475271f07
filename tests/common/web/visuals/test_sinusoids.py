"""The visual of sinusoids: its matrix, curve and rotation are those of NumPy and of regard."""

import numpy as np


def sinusoids(positions, d):
    angles = np.asarray(positions)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(-1, d)


def test_the_matrix_is_that_of_the_formula_and_of_regard(shown):
    """At each size; regard's own, where torch is installed."""
    view = shown("sinusoids", positions=48, width=32)
    for n, d in ((48, 32), (8, 4), (96, 64)):
        view.change(n=n, d=d)
        assert np.allclose(view.opacities(), (1 + sinusoids(range(n), d)) / 2, atol=0.51 / 255)
    import torch

    from regard.torch.positions import Sinusoidal

    places = Sinusoidal(64).embed(torch.zeros(1, 96, 64, dtype=torch.float64), torch.arange(96))[0].numpy()
    assert np.allclose(view.opacities(), (1 + places) / 2, atol=0.51 / 255)


def test_the_numbers_of_a_pair(shown):
    """Value, θ and wavelength; the rotation is shown only where it is asked for."""
    view = shown("sinusoids", positions=48, width=32)
    for p, column, d in ((0, 0, 32), (47, 31, 32), (5, 3, 4), (13, 8, 16)):
        view.change(p=p, column=column, d=d)
        theta = 10000.0 ** (-2 * (column // 2) / d)
        value = sinusoids([p], d)[0, column]
        view.near({"value": value, "theta": theta, "wavelength": 2 * np.pi / theta}, rel=1e-12)
        assert "R-00" not in view.numbers()


def test_a_step_is_a_rotation(shown):
    """By the same matrix at every position."""
    view = shown("sinusoids", positions=48, width=32, step=3)
    for p, k, column, d in ((0, 0, 0, 32), (10, 3, 9, 32), (47, 32, 2, 4)):
        view.change(p=p, k=k, column=column, d=d)
        pair = column // 2
        angle = k * 10000.0 ** (-2 * pair / d)
        R = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        now, later = sinusoids([p, p + k], d)[:, 2 * pair : 2 * pair + 2]
        names = "R-00 R-01 R-10 R-11 sine cosine next-sine next-cosine turned-sine turned-cosine"
        view.near(dict(zip(names.split(), np.concatenate([*R, now, later, later]))), abs=1e-13)


def test_the_hands_point_to_the_pair(shown):
    """To the right the sine, upwards the cosine, as on a clock."""
    view = shown("sinusoids", positions=48, width=32, step=5)
    view.change(p=2, column=4)
    first, second = view.tab.evaluate("""() => ["first", "second"].map((name) => {
        const dot = document.querySelector(`.sinusoids-${name} circle`);
        return [Number(dot.getAttribute("cx")) / 62, Number(dot.getAttribute("cy")) / -62];
    })""")
    assert np.allclose([first, second], sinusoids([2, 7], 32)[:, 4:6], atol=1e-12)
