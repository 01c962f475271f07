"""The matrices of a layer as a page requests them: those of one head, and what they give, compared with NumPy."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.common.errors import Refused
from regard.lens.projections.layer import LayerProjections, Projection
from regard.lens.viewer import matrices
from regard.lens.viewer.embed import unframed
from regard.lens.viewer.routes import Responder

N, H, G, D, E, M = 9, 4, 2, 8, 6, 20
RANDOM = np.random.default_rng(3)


def layer(bias=True):
    """A causal layer with shared keys, and the input, outputs and matrices that gave them."""

    def projection(*sizes):
        heads = sizes[:-1]
        b = RANDOM.standard_normal(heads).astype(np.float32) if bias else None
        return Projection(RANDOM.standard_normal(sizes).astype(np.float32), b)

    x = RANDOM.standard_normal((N, M)).astype(np.float32)
    parts = projection(H, D, M), projection(G, D, M), projection(G, E, M)
    q, k, v = (part.of(x).swapaxes(0, 1).astype(np.float32) for part in parts)
    (call,) = rg.look(q, k=k, v=v, mask=rg.causal()).calls
    out = np.asarray(call.weights() @ np.repeat(v, H // G, 0), np.float32)
    o = projection(M, H * E)
    y = o.of(out.swapaxes(0, 1).reshape(N, -1)).astype(np.float32)
    return dataclasses.replace(call, x=x, out=out, projections=LayerProjections(*parts, o, y))


@pytest.mark.parametrize("bias", [True, False])
def test_one_head(bias):
    """Its own rows of W_q, those of its key/value head of W_k and W_v, and its columns of W_o."""
    call = layer(bias)
    whole = call.projections
    for head in range(H):
        found = matrices.matrices(call, head)
        assert set(found) == {"q", "k", "v", "o"} | ({"q_bias", "k_bias", "v_bias", "o_bias"} if bias else set())
        assert np.array_equal(found["q"], whole.q.w[head]) and np.array_equal(found["k"], whole.k.w[head // 2])
        assert np.array_equal(found["v"], whole.v.w[head // 2])
        assert np.array_equal(found["o"], whole.o.w[:, E * head : E * head + E])
        if bias:
            assert np.array_equal(found["v_bias"], whole.v.b[head // 2]) and np.array_equal(found["o_bias"], whole.o.b)
        made = matrices.products(call, head, 5, 2)
        q = found["q"] @ made["x"] + found.get("q_bias", 0)
        k = found["k"] @ made["x_key"] + found.get("k_bias", 0)
        np.testing.assert_allclose(q, call.q[head, 5], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(k, call.k[head // 2, 2], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(made["by_head"][head], found["o"] @ call.out[head, 5], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(made["whole"], made["y"], rtol=1e-4, atol=1e-5)
        assert np.array_equal(made["heads"].reshape(H, E), call.out[:, 5])


def test_about_says_what_is_known():
    known = matrices.about(layer())
    assert known == {"known": list("qkvo"), "biased": list("qkvo"), "missing": {}}
    call = dataclasses.replace(layer(False), projections=LayerProjections(missing={"q": "rotated"}))
    assert matrices.about(call) == {"known": [], "biased": [], "missing": {"q": "rotated"}}
    bare = dataclasses.replace(call, projections=None)
    assert matrices.about(bare) == {"known": [], "biased": [], "missing": {}} and matrices.matrices(bare, 0) == {}
    assert matrices.kept(bare, {"head": 0, "query": 0}) is None


def test_a_page_has_the_strongest_elements(monkeypatch):
    """As many as fit: those that add most to the score of the strongest key, and the largest of the output."""
    call, start = layer(), {"head": 3, "query": 6}
    key = int(call.weights(rows=6, heads=3)[0, 0].argmax())
    header, whole = unframed(matrices.kept(call, start))
    assert (header["head"], header["row"], header["key"]) == (3, 6, key)
    largest = np.argsort(-np.abs(call.projections.y[6]))[:16]
    elements = {"q": list(range(D)), "k": list(range(D)), "v": list(range(E)), "o": sorted(largest.tolist())}
    assert header["elements"] == elements and whole["by_head"].shape == (H, 16)
    fixed = sum(part.nbytes for name, part in matrices.products(call, 3, 6, key).items() if name != "by_head")
    monkeypatch.setattr(matrices, "ROOM", fixed + 3 * 4 * M * 3)
    header, some = unframed(matrices.kept(call, start))
    added = np.abs(call.q[3, 6] * call.k[1, key])
    assert header["elements"]["q"] == header["elements"]["k"] == sorted(np.argsort(-added)[:3].tolist())
    assert np.array_equal(some["q"], whole["q"][header["elements"]["q"]]) and some["q_bias"].shape == (3,)
    monkeypatch.setattr(matrices, "ROOM", fixed)
    assert matrices.kept(call, start) is None


def test_keys_that_are_not_rows_have_no_input():
    """Keys before the first row, and keys of another text."""
    call = layer()
    assert "x_key" in matrices.products(call, 0, 0, 3)
    assert "x_key" not in matrices.products(dataclasses.replace(call, start=4), 0, 0, 3)
    assert "x_key" not in matrices.products(dataclasses.replace(call, keys="pictures"), 0, 0, 3)


def test_routes_are_checked():
    """Only positions of the run are answered."""
    run = rg.lens.Run("toy", "", {"keys": rg.lens.Axis.of(list("abcdefghi"), [False] * N)}, (layer(),))
    desk = Responder([run])
    _, found = unframed(desk.answer("matrices", "0", "0", "3"))
    assert np.array_equal(found["q"], run.calls[0].projections.q.w[3])
    _, found = unframed(desk.answer("products", "0", "0", "3", "8", "1"))
    assert np.array_equal(found["x"], run.calls[0].x[8]) and np.array_equal(found["x_key"], run.calls[0].x[1])
    for wrong in (
        ("matrices", "0", "0", "4"),
        ("matrices", "0", "1", "0"),
        ("products", "0", "0", "0", "9", "0"),
        ("products", "0", "0", "0", "0", "9"),
        ("products", "1", "0", "0", "0", "0"),
    ):
        with pytest.raises(Refused, match=r"no such (head|call|row|column|run)"):
            desk.answer(*wrong)
