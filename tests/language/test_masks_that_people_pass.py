"""Masks that people pass: each is right, or refused with a hint that is right when it is followed literally."""

import re

import numpy as np
import pytest

import regard as rg

B, H, Q, K, D = 2, 4, 5, 7, 8
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((B, H, n, D)) for n in (Q, K, K))
ALLOWED = {
    name: np.broadcast_to(rng.random(shape) < 0.7, (B, H, Q, K))
    for name, shape in {
        "all": (B, H, Q, K),
        "batch": (B, 1, Q, K),
        "heads": (1, H, Q, K),
        "rows": (1, 1, Q, K),
        "keys": (B, 1, 1, K),
        "keys of all": (1, 1, 1, K),
        "keys of heads": (1, H, 1, K),
        "real rows": (B, 1, Q, 1),
        "rows alone": (1, 1, Q, 1),
    }.items()
}
FORMS = {
    "as it is": ("all", lambda m: m),
    "one axis of heads": ("batch", lambda m: m[:, :1]),
    "no axis of heads": ("batch", lambda m: m[:, 0]),
    "batch and heads in one": ("all", lambda m: m.reshape(B * H, Q, K)),
    "no batch": ("heads", lambda m: m[0]),
    "rows and keys": ("rows", lambda m: m[0, 0]),
    "keys and rows": ("rows", lambda m: m[0, 0].T),
    "keys and rows of entries": ("batch", lambda m: m[:, 0].swapaxes(-1, -2)),
    "keys and rows of all": ("all", lambda m: m.swapaxes(-1, -2)),
    "padding": ("keys", lambda m: m[:, 0, 0]),
    "padding with rows": ("keys", lambda m: m[:, 0, :1]),
    "padding with heads and rows": ("keys", lambda m: m[:, :1, :1]),
    "keys alone": ("keys of all", lambda m: m[0, 0, 0]),
    "keys of heads": ("keys of heads", lambda m: m[0, :, 0]),
    "padding of rows": ("real rows", lambda m: m[:, 0, :, 0]),
    "rows alone": ("rows alone", lambda m: m[0, 0, :, 0]),
}
KINDS = {
    "booleans": lambda m: m,
    "0 and 1": lambda m: m.astype(np.int64),
    "−1e9": lambda m: np.where(m, 0.0, -1e9),
    "−infinity": lambda m: np.where(m, 0.0, -np.inf).astype(np.float32),
}


def followed(hint: str, mask) -> dict:
    """The arguments of the first code in a hint: mask=… or score=…"""
    name, code = re.match(r"pass (mask|score)=(.*?)(?:, or | if |, if |, which |: |$)", hint).groups()
    return {name: eval(code, {"rg": rg, "mask": mask})}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_is_right_or_its_hint_is(form, kind):
    """Shapes, orders of axes and dtypes, as NumPy arrays and tensors: at most two hints lead to the law."""
    torch = pytest.importorskip("torch")
    name, cut = FORMS[form]
    allowed = ALLOWED[name]
    rules = {"score": KINDS[kind](allowed)} if kind == "−1e9" else {"mask": allowed}  # which hides no whole row
    expected = rg.attention(q, k, v, engine="reference", **rules)
    passed = KINDS[kind](cut(allowed).copy())
    for mask, convert in ((passed, np.asarray), (torch.as_tensor(passed), torch.as_tensor)):
        arguments, tensors = {"mask": mask}, [convert(each) for each in (q, k, v)]
        for _ in range(2):
            try:
                found = rg.attention(*tensors, **arguments)
                break
            except rg.Refused as refused:
                arguments = followed(refused.reasons[0].fix, mask)
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8, np.float32])
def test_padding(side, dtype):
    """What tokenizers return, on either side: the padded keys are as if they were not there."""
    counts = np.array([3, K])
    real = np.arange(K) < counts[:, None] if side == "right" else np.arange(K) >= K - counts[:, None]
    found = rg.attention(q, k, v, mask=rg.padding(real.astype(dtype)))
    for entry, own in enumerate(real):
        alone = rg.attention(q[entry], k[entry][:, own], v[entry][:, own])
        np.testing.assert_allclose(found[entry], alone, atol=1e-12)
    np.testing.assert_array_equal(rg.attention(q, k, v, mask=rg.padding(real[0])), rg.attention(q, k, v, mask=real[0]))


@pytest.mark.parametrize(
    ("mask", "hint"),
    [
        (np.array([3, 7]), "rg.lengths(m)"),
        (np.where(rng.random((B, K)) < 0.5, 0, -1e9), "rg.padding(m == 0)"),
        (np.ones((B, Q, K)), "mask=…"),
    ],
)
def test_what_is_no_padding(mask, hint):
    """Lengths, added numbers and whole masks are not read as padding."""
    with pytest.raises(rg.Refused) as refused:
        rg.padding(mask)
    assert hint in refused.value.reasons[0].fix


def test_lengths_are_recognized():
    """(B,) integers as a mask."""
    with pytest.raises(rg.Refused) as refused:
        rg.attention(q, k, v, mask=np.array([3, 7]))
    assert "rg.lengths(mask)" in refused.value.reasons[0].fix
