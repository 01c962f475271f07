"""The visual of rotary positions: angles and products are those of NumPy and regard, in both pairings."""

import numpy as np
import pytest

Q, K = np.random.default_rng(1).standard_normal((2, 8)).round(1)


def pairs(x, pairing):
    """(…, d/2) complex numbers: one for each pair."""
    half = len(x) // 2
    return x[:half] + 1j * x[half:] if pairing == "halves" else x[0::2] + 1j * x[1::2]


@pytest.fixture
def rotary(shown):
    """Opens the visual with q and k."""
    return lambda q=Q, k=K, **data: shown("rotary", q=list(q), k=list(k), **data)


@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
def test_every_number_is_that_of_numpy(rotary, pairing):
    """At positions near each other and far apart, moved together or not, with another base."""
    view = rotary()
    for p, q, shift, base in ((7, 5, 0, 10_000), (0, 0, 0, 10_000), (3, 40, 1000, 500_000)):
        view.change(p=p, q=q, shift=shift, base=base, pairing=pairing)
        theta = base ** (-np.arange(0, 8, 2) / 8)
        query, key = (pairs(x, pairing) * np.exp(1j * theta * (at + shift)) for x, at in ((Q, p), (K, q)))
        products = (query * key.conj()).real
        view.near({"theta": theta, "wavelength": 2 * np.pi / theta, "product": products}, rel=1e-11, abs=1e-12)
        places = {"query-at": p + shift, "key-at": q + shift, "distance": p - q}
        view.near({"product": products.sum()} | places, abs=1e-12)


@pytest.mark.spread
@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
@pytest.mark.parametrize("scaling", ["none", "linear", "NTK"])
def test_products_are_those_of_regard(rotary, pairing, scaling):
    """And so are the frequencies, stretched or not."""
    import torch

    from regard.torch.positions import NTK, Linear, Rotary

    view = rotary()
    made = {"none": None, "linear": Linear(4.0), "NTK": NTK(4.0)}[scaling]
    layer = Rotary(8, interleaved=pairing == "interleaved", scaling=made)
    view.change(pairing=pairing, scaling=scaling, factor=4)
    rows = torch.tensor(np.stack([Q, K]))[None, None]
    for p, q in ((7, 5), (0, 31), (12, 12)):
        view.change(p=p, q=q)
        query, key = layer.rotate(rows, torch.tensor([p, q]))[0, 0]
        view.near({"product": (query @ key).item()}, abs=1e-5)  # θ is float32 in regard
    view.near({"theta": layer.frequencies.numpy()}, rel=1e-6)


def test_the_arrows_point_where_the_pairs_are(rotary):
    """To the right at position 0, and from there against the clock."""
    view = rotary(q=[1.0, 0.0], k=[1.0, 0.0])  # the chapter's example: one pair, θ = 1
    view.near({"product": np.cos(2)}, rel=1e-12)
    found = view.tab.evaluate("""() => ["query", "key"].map((name) => {
        const { e, f } = document.querySelector(`.rotary-${name} path`).transform.baseVal.consolidate().matrix;
        return [e / 58, f / -58];
    })""")
    assert np.allclose(found, [[np.cos(each), np.sin(each)] for each in (7, 5)], atol=1e-6)


def test_rows_of_zeros(rotary):
    """Are drawn, too."""
    view = rotary(q=np.zeros(8))
    assert view.numbers()["product"] == 0 and "NaN" not in view.tab.inner_html("#root")
