"""Masks that people pass: each is right, or refused with a hint that is right when it is followed literally."""

import re

import numpy as np
import pytest

import regard as rg
from tests.support.refusals import reasons_of

B, H, Q, K, D = 2, 4, 5, 7, 8
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((B, H, n, D)) for n in (Q, K, K))
# The axes along which a mask differs, and how it is cut out of (B, H, Q, K).
FORMS = {
    "as it is": ("BHQK", lambda m: m),
    "one axis of heads": ("BQK", lambda m: m[:, :1]),
    "no axis of heads": ("BQK", lambda m: m[:, 0]),
    "batch and heads in one": ("BHQK", lambda m: m.reshape(B * H, Q, K)),
    "no batch": ("HQK", lambda m: m[0]),
    "rows and keys": ("QK", lambda m: m[0, 0]),
    "keys and rows": ("QK", lambda m: m[0, 0].T),
    "keys and rows of entries": ("BQK", lambda m: m[:, 0].swapaxes(-1, -2)),
    "keys and rows of all": ("BHQK", lambda m: m.swapaxes(-1, -2)),
    "padding": ("BK", lambda m: m[:, 0, 0]),
    "padding with rows": ("BK", lambda m: m[:, 0, :1]),
    "padding with heads and rows": ("BK", lambda m: m[:, :1, :1]),
    "keys alone": ("K", lambda m: m[0, 0, 0]),
    "keys of heads": ("HK", lambda m: m[0, :, 0]),
    "padding of rows": ("BQ", lambda m: m[:, 0, :, 0]),
    "rows alone": ("Q", lambda m: m[0, 0, :, 0]),
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
    import torch

    axes, cut = FORMS[form]
    shape = [size if axis in axes else 1 for axis, size in zip("BHQK", (B, H, Q, K))]
    allowed = np.broadcast_to(np.random.default_rng(1).random(shape) < 0.7, (B, H, Q, K))
    rules = {"score": KINDS[kind](allowed)} if kind == "−1e9" else {"mask": allowed}  # which hides no whole row
    expected = rg.attention(q, k, v, engine="reference", **rules)
    for convert in (np.asarray, torch.as_tensor):
        mask = convert(KINDS[kind](cut(allowed).copy()))
        arguments = {"mask": mask}
        for _ in range(2):
            try:
                found = rg.attention(*map(convert, (q, k, v)), engine="reference", **arguments)
                break
            except rg.Refused as refused:
                arguments = followed(refused.reasons[0].fix, mask)
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: rg.padding(np.array([3, 7])), "rg.lengths(m)"),
        (lambda: rg.padding(np.where(rng.random((B, K)) < 0.5, 0, -1e9)), "rg.padding(m == 0)"),
        (lambda: rg.padding(np.ones((B, Q, K))), "mask=…"),
        (lambda: rg.attention(q, k, v, mask=np.array([3, 7])), "rg.lengths(mask)"),
    ],
)
def test_what_is_no_padding(call, hint):
    """Lengths, added numbers and whole masks are not read as padding; lengths are recognized as a mask too."""
    assert hint in reasons_of(call)[0].fix
