"""The matrices of a layer as a page requests them: those of one head, and what they give, compared with NumPy."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.lens import Axis, Run
from regard.lens.runs.projections import LayerProjections, Projection
from regard.lens.viewer import queries
from regard.lens.viewer.routes import Responder
from tests.lens.client import unframed

N, H, G, D, E, M = 9, 4, 2, 8, 6, 20
RANDOM = np.random.default_rng(3)


def layer(bias=True):
    """A causal layer with shared keys, and the input, outputs and matrices that gave them."""

    def draw(*sizes):
        return RANDOM.standard_normal(sizes).astype(np.float32)

    def projection(*sizes):
        return Projection(draw(*sizes), draw(*sizes[:-1]) if bias else None)

    x, parts = draw(N, M), (projection(H, D, M), projection(G, D, M), projection(G, E, M))
    q, k, v = (part.of(x).swapaxes(0, 1).astype(np.float32) for part in parts)
    (call,) = rg.look(q, k=k, v=v, mask=rg.causal()).calls
    out = np.asarray(call.weights() @ np.repeat(v, H // G, 0), np.float32)
    o = projection(M, H * E)
    y = o.of(out.swapaxes(0, 1).reshape(N, -1)).astype(np.float32)
    return dataclasses.replace(call, x=x, out=out, projections=LayerProjections(*parts, o, y))


@pytest.mark.parametrize("bias", [True, False])
def test_one_head(bias):
    """Its own rows of W_q, those of its key/value head of W_k and W_v, and its columns of W_o; with the input of a row
    and key they give q, k, and the part of the head in the output. Keys before the first row, and keys of another text,
    have no input. (What is not there: test_server.)
    """
    call = layer(bias)
    whole, run = call.projections, Run("toy", "", {"keys": Axis.of(N, name="keys")}, (call,))
    for other in (dataclasses.replace(call, start=4), dataclasses.replace(call, keys="pictures")):
        assert "x_key" not in queries.products(other, 0, 0, 3)
    for head in range(H):
        _, found = unframed(Responder([run]).answer("matrices", "0", "0", str(head)))
        _, made = unframed(Responder([run]).answer("products", "0", "0", str(head), "5", "2"))
        own = {"q": head, "k": head // 2, "v": head // 2}
        exact = {name: getattr(whole, name).w[at] for name, at in own.items()}
        exact["o"] = whole.o.w[:, E * head : E * head + E]
        if bias:
            exact |= {f"{name}_bias": getattr(whole, name).b[at] for name, at in (own | {"o": slice(None)}).items()}
        assert found.keys() == exact.keys() and all(np.array_equal(found[name], exact[name]) for name in exact)
        for product, right in (
            (found["q"] @ made["x"] + found.get("q_bias", 0), call.q[head, 5]),
            (found["k"] @ made["x_key"] + found.get("k_bias", 0), call.k[head // 2, 2]),
            (made["by_head"][head], found["o"] @ call.out[head, 5]),
            (made["whole"], made["y"]),
            (made["heads"].reshape(H, E), call.out[:, 5]),
        ):
            np.testing.assert_allclose(product, right, rtol=1e-4, atol=1e-5)


def test_about_says_what_is_known():
    """The known matrices, those with a bias, and why the others are missing. (Without biases: test_walk_numbers.)"""
    call, bare = layer(), {"known": [], "biased": []}
    assert queries.known_matrices(call) == {"known": [*"qkvo"], "biased": [*"qkvo"], "missing": {}}
    rotated = dataclasses.replace(call, projections=LayerProjections(missing={"q": "rotated"}))
    assert queries.known_matrices(rotated) == bare | {"missing": {"q": "rotated"}}
    call = dataclasses.replace(call, projections=None)
    assert queries.known_matrices(call) == bare | {"missing": {}} and queries.matrices(call, 0) == {}
    assert queries.kept(call, {"head": 0, "query": 0}) is None


def test_a_page_has_the_strongest_elements(monkeypatch):
    """As many as fit: those that add most to the score of the strongest key, and the largest of the output."""
    call, start = layer(), {"head": 3, "query": 6}
    key = int(call.weights(rows=6, heads=3)[0, 0].argmax())
    header, whole = unframed(queries.kept(call, start))
    assert (header["head"], header["row"], header["key"]) == (3, 6, key)
    largest = sorted(np.argsort(-np.abs(call.projections.y[6]))[:16].tolist())
    assert header["elements"] == {"q": [*range(D)], "k": [*range(D)], "v": [*range(E)], "o": largest}
    assert whole["by_head"].shape == (H, 16)
    fixed = sum(part.nbytes for name, part in queries.products(call, 3, 6, key).items() if name != "by_head")
    monkeypatch.setattr(queries, "ROOM", fixed + 3 * 4 * M * 3)
    header, some = unframed(queries.kept(call, start))
    strongest = np.sort(np.argsort(-np.abs(call.q[3, 6] * call.k[1, key]))[:3])
    assert header["elements"]["q"] == header["elements"]["k"] == strongest.tolist()
    assert np.array_equal(some["q"], whole["q"][strongest]) and some["q_bias"].shape == (3,)
    monkeypatch.setattr(queries, "ROOM", fixed)
    assert queries.kept(call, start) is None
