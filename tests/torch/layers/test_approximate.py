"""Approximate attention: its parallel and recurrent forms agree, its expectation is the exact result, and its error is
shown.
"""

import functools
import math
import runpy

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import regard as rg
from regard.torch.layers import Attention
from regard.torch.layers.approximate import Linformer, deviation
from regard.torch.layers.linear import (
    LinearAttention,
    LinearState,
    Performer,
    linear_attention,
    orthogonal_directions,
)
from tests import ROOT
from tests.support.lanes import sweep
from tests.support.refusals import refused_in
from tests.support.tensors import compiled, normal

CAUSAL = rg.causal()

LENGTH = 300  # more than two chunks, and no multiple of one
LAYERS = {
    "linear": lambda **more: LinearAttention(16, 4, **more),
    "shared keys": lambda **more: LinearAttention(16, 4, 2, head_dim=6, value_dim=3, bias=True, **more),
    "performer": lambda **more: Performer(16, 4, 2, features=24, **more),
    "linformer": lambda **more: Linformer(16, 4, 2, length=LENGTH, rows=7, **more),
}
each_layer = pytest.mark.parametrize("name", LAYERS)
LINEAR = [name for name in LAYERS if name != "linformer"]


def made(name, **more):
    torch.manual_seed(0)
    return LAYERS[name](**more).double()


rows = functools.partial(normal, seed=1, dtype=torch.float64)
close = functools.partial(torch.testing.assert_close, rtol=1e-9, atol=1e-12)


def plainly(q, k, v, allowed):
    """Σ_j w_ij v_j / Σ_j w_ij with w = φ(q)·φ(k) where allowed, with the whole matrix."""
    weights = (q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT) * allowed
    return weights @ v.repeat_interleave(q.shape[1] // v.shape[1], 1) / weights.sum(-1, keepdim=True)


# ---- the linear core -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 127, 128, 129, LENGTH])
def test_linear_attention_is_its_formula(length, causal):
    """Out and gradients equal those of the formula with the whole matrix, at every border of a chunk."""
    allowed = torch.ones(length, length).tril(0 if causal else length)
    found = []
    for compute in (lambda *qkv: linear_attention(*qkv, causal=causal)[0], lambda *qkv: plainly(*qkv, allowed)):
        q, k = (rows(2, heads, length, 5, seed=heads).exp().requires_grad_() for heads in (4, 2))
        v = rows(2, 2, length, 3).requires_grad_()
        out = compute(q, k, v)
        out.square().sum().backward()
        found.append([out.detach(), q.grad, k.grad, v.grad])

    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("steps", [[1] * 40, [130, 1, 169], [LENGTH]], ids=["one by one", "in pieces", "at once"])
def test_the_recurrent_form_gives_the_numbers_of_the_parallel_one(name, steps):
    """Rows given piece by piece, with what is kept between them, are the rows of the whole; what is kept does not
    grow.
    """
    layer, x, state = made(name), rows(2, sum(steps), 16), LinearState()
    pieces, sizes = [], set()
    for piece in x.split(steps, dim=1):
        pieces.append(layer(piece, mask=CAUSAL, cache=state))
        sizes.add(state.nbytes)

    close(torch.cat(pieces, dim=1), layer(x, mask=CAUSAL))
    assert len(sizes) == 1
    assert state.length == sum(steps)


@torch.no_grad()
def test_a_state_can_be_cut_from_its_past():
    """Gradients flow into the sums until they are detached."""
    layer, x = made("linear"), rows(1, 4, 16)
    with torch.enable_grad():
        state = LinearState()
        layer(x, mask=CAUSAL, cache=state)

    assert state.sums.requires_grad
    assert not state.detach().sums.requires_grad
    assert torch.equal(state.detach().sums, state.sums)


def test_sums_of_16_bits_are_kept_in_32():
    """2000 equal values are averaged to that value: sums in 16 bits would have stopped growing at 256."""
    q = k = torch.ones(1, 1, 2000, 4, dtype=torch.bfloat16)
    v = torch.full((1, 1, 2000, 1), 3.0, dtype=torch.bfloat16)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, sums = linear_attention(q, k, v, causal=True)

    assert sums.dtype == torch.float32
    assert torch.equal(out, v)


def test_elu_features_keep_small_weights():
    """φ(x) = elu(x) + 1 is exp(x) below 0, to the last digits also where elu(x) is almost −1."""
    layer, x = made("linear"), torch.tensor([-60.0, -20.0, -1.0, 0.0, 2.5])
    exact = [math.exp(-60), math.exp(-20), math.exp(-1), 1.0, 3.5]

    assert layer.key_features(x).tolist() == pytest.approx(exact, rel=1e-6)


# ---- Performer -------------------------------------------------------------------------------------------------------


def test_directions_are_orthogonal_within_a_block_and_gaussian_in_length():
    """Blocks of depth rows are orthogonal; lengths have the mean of Gaussian vectors."""
    directions = orthogonal_directions(4000, 8, torch.Generator().manual_seed(0)).double()
    block = directions[:8] / directions[:8].norm(dim=-1, keepdim=True)
    mean = math.sqrt(2) * math.gamma(4.5) / math.gamma(4)  # of the length of a Gaussian vector with 8 components

    assert torch.allclose(block @ block.mT, torch.eye(8, dtype=torch.float64), atol=1e-5)
    assert directions.norm(dim=-1).mean().item() == pytest.approx(mean, abs=5 / math.sqrt(2 * 4000))
    assert (directions.mean(0).abs() < 5 / math.sqrt(4000)).all()


def test_performer_weights_are_exact_on_average():
    """E[φ(q)·φ(k)] = exp(q·k / √D): the mean over independent draws lies within five of its own standard errors."""
    depth, draws = 8, 600
    layer, generator = made("performer", head_dim=depth), torch.Generator().manual_seed(3)
    assert len(layer.directions) == 24, "D ln D, rounded up to a multiple of 8"
    q, k = 0.6 * rows(5, depth), 0.6 * rows(6, depth, seed=2)
    found = []
    for _ in range(draws):
        layer.redraw(generator)
        # What a query's features are divided by to stay small stands in the denominator too; here it is put back.
        shift = layer._exponents(q).amax(-1, keepdim=True).exp()
        found.append(layer.query_features(q) * shift @ layer.key_features(k).mT / len(layer.directions))
    found = torch.stack(found)
    error = found.std(0) / math.sqrt(draws)

    assert ((found.mean(0) - (q @ k.mT / math.sqrt(depth)).exp()).abs() < 5 * error).all()
    assert (error < 0.1 * found.mean(0)).all()  # or the line above would say nothing


def test_a_draw_is_saved_and_redrawn_from_the_generator():
    """A trained model goes with its draw: the state dict has it; the same seed draws the same, another seed another."""
    layer, other = made("performer"), made("performer")
    other.redraw(torch.Generator().manual_seed(7))
    drawn = other.directions.clone()
    layer.load_state_dict(other.state_dict())
    assert torch.equal(layer.directions, drawn)
    for seed in (8, 7):
        layer.redraw(torch.Generator().manual_seed(seed))
        assert torch.equal(layer.directions, drawn) == (seed == 7)
    layer.redraw()
    assert not torch.equal(layer.directions, drawn)


# ---- Linformer -------------------------------------------------------------------------------------------------------


def test_linformer_is_attention_over_projected_keys():
    """The formula, with a text shorter than the projections, and with keys that are not there."""
    layer, x = made("linformer"), rows(2, 50, 16)
    q, k, v = layer.projected(x, None)
    there = torch.tensor([30, 50])
    hidden = (torch.arange(50) < there[:, None])[:, None, :, None]
    k, v = (layer.project_k[:, :50] @ (k * hidden), layer.project_v[:, :50] @ (v * hidden))
    k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    heads = (q @ k.mT / 2).softmax(-1) @ v

    close(layer(x, mask=rg.lengths(there)), layer.o(heads.transpose(1, 2).flatten(2)))


# ---- what they share -------------------------------------------------------------------------------------------------


@each_layer
def test_keys_that_are_not_there_count_for_nothing(name):
    """A padded batch gives what each text gives alone; padding may be NaN; rows of padding give 0 before the
    projection.
    """
    layer, x, there = made(name), rows(2, LENGTH, 16), torch.tensor([190, LENGTH])
    padded = x.clone()
    padded[0, 190:] = torch.nan
    first = layer(x[:1, :190], mask=None)[0]
    out = layer(padded, mask=rg.lengths(there, there))

    close(out[0, :190], first)
    close(out[1], layer(x[1:], mask=None)[0])
    assert torch.equal(out[0, 190:], nothing(layer).expand(LENGTH - 190, -1))
    booleans = torch.arange(LENGTH)[None, None, None] < there[:, None, None, None]
    for mask in (booleans, lambda b, h, q, kv: kv < there[b]):
        assert torch.equal(layer(padded, mask=mask)[0, :190], out[0, :190])


def nothing(layer):
    """What a layer gives for a row without keys."""
    return layer.o(torch.zeros(1, layer.o.in_features, dtype=torch.float64))


@each_layer
def test_rows_over_a_memory_see_all_of_it(name):
    """Rows over a memory are each what they are alone: nothing is causal between them."""
    layer, x, memory = made(name, memory_dim=5), rows(2, 9, 16), rows(2, 40, 5)

    close(layer(x, memory)[:, 3:4], layer(x[:, 3:4], memory))
    # The rows are the last 9 of the 40 places, as everywhere: 4 of them stand before place 35.
    empty = (layer(x, memory, mask=rg.lengths(queries=35)) == nothing(layer)).all(-1)
    assert empty.tolist() == [[False] * 4 + [True] * 5] * 2


@each_layer
def test_every_parameter_learns(name):
    """There is a gradient for each parameter."""
    layer, mask = made(name), None if name == "linformer" else CAUSAL
    layer(rows(1, LENGTH, 16), mask=mask).square().sum().backward()

    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters())


@each_layer
def test_the_projections_of_an_exact_layer_load(name):
    """The parameters have the names and shapes of `Attention`'s; the approximation has its own beside them."""
    layer = made(name)
    sizes = {"head_dim": layer.head_dim, "value_dim": layer.value_dim, "bias": layer.q.bias is not None}
    exact = Attention(16, 4, layer.kv_heads, **sizes)
    missing, unexpected = layer.load_state_dict(exact.state_dict(), strict=False)

    assert unexpected == [] and set(missing) <= {"directions", "project_k", "project_v"}


MASKS = {
    "both": lambda lengths: rg.causal() & rg.lengths([3, 9]) & (rg.query > 0),
    "tensor": lambda lengths: rg.lengths(lengths),
    "callable": lambda lengths: lambda b, h, q, kv: (kv < lengths[b]) & (kv <= q),
    "booleans": lambda lengths: rg.padding(torch.arange(9) < lengths[:, None]) & rg.causal(),
}


class Program(torch.nn.Module):
    """A layer whose mask is built anew in every call."""

    def __init__(self, rule):
        super().__init__()
        self.layer, self.rule = made("shared keys"), rule

    def forward(self, x, lengths):
        return self.layer(x, mask=MASKS[self.rule](lengths))


@pytest.mark.parametrize("rule", ["callable", "both", *sweep("tensor", "booleans")])
@torch.no_grad()
def test_a_mask_may_be_built_inside_a_program(rule):
    """torch.compile and torch.export: the same output as without, also for tensors that a mask reads."""
    program, given = Program(rule), (rows(2, 9, 16), torch.tensor([4, 9]))
    expected = program(*given)
    assert torch.equal(compiled(program)(*given), expected)
    for strict in (True, False):
        assert torch.equal(torch.export.export(program, given, strict=strict).module()(*given), expected)


@each_layer
@torch.no_grad()
def test_another_length_is_no_other_program(name):
    """torch.compile makes one program for the first length and one for all others, with a mask that depends on it."""
    layer, count = made(name), CompileCounter()
    program = compiled(lambda x: layer(x, mask=rg.lengths(x.shape[1] - 2)), backend=count)
    for n in (9, 12, 17, 30, 150, 190):
        x = rows(2, n, 16)
        close(program(x), layer(x, mask=rg.lengths(n - 2)))

    assert count.frame_count == 2


def test_the_deviation_is_that_of_the_heads():
    """The three figures are those of the formula: the exact result from torch, equal weights as the mean of the
    values.
    """
    layer, x = made("performer"), rows(2, 20, 16)
    q, k, v = layer.projected(x, None)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    apart = linear_attention(layer.query_features(q), layer.key_features(k), v)[0] - exact
    mean = v.mean(-2, keepdim=True).repeat_interleave(2, 1)
    seen = deviation(layer, x)

    assert seen.overall == pytest.approx((apart.norm() / exact.norm()).item())
    assert seen.worst == pytest.approx((apart.norm(dim=-1) / exact.norm(dim=-1)).max().item())
    assert seen.uniform == pytest.approx(((mean - exact).norm() / exact.norm()).item())
    assert str(seen) == f"{seen.overall:.1%} off (worst row {seen.worst:.1%}; equal weights {seen.uniform:.1%})"


X = torch.zeros(2, 6, 16)
REFUSED = {
    "Linformer does not support causal masks.*mixes all keys": lambda: LAYERS["linformer"]()(X, mask=CAUSAL),
    "does not support this cache.*cache=None.*change every row": lambda: LAYERS["linformer"]()(X, cache=LinearState()),
    r"more keys than the projections.*keys \(2, 4, 6, 4\).*at most 5": lambda: Linformer(16, 4, length=5, rows=2)(X),
    "depends on pairs of query and key.*query - key < 3": lambda: LAYERS["linear"]()(X, mask=rg.window(3)),
    r"depends on pairs.*bool \(1, 1, 6, 6\)|\(6, 6\)": lambda: LAYERS["linear"]()(X, mask=torch.ones(6, 6).bool()),
    "a mask must be a condition": lambda: LAYERS["performer"]()(X, mask=rg.key - 1),
    "float32": lambda: LAYERS["performer"]()(X, mask=torch.zeros(6)),
    "does not support this cache": lambda: LAYERS["linear"]()(X, mask=CAUSAL, cache=Attention(16, 4)),
    "a causal mask over a memory": lambda: LAYERS["linear"]()(X, X[:, :3], mask=CAUSAL),
    "a memory is not appended to a cache": lambda: LAYERS["linear"]()(X, X, cache=LinearState()),
    "the layer takes no positions": lambda: LAYERS["linear"]()(X, positions=torch.arange(6)),
    r"x does not fit the layer.*\(2, 6, 4\)": lambda: LAYERS["linear"]()(X[..., :4]),
    "pass rows of width memory_dim": lambda: LinearAttention(16, 4, memory_dim=5)(X),
    "heads do not divide d_model.*kv_heads do not divide heads": lambda: LinearAttention(15, 4, 3),
    "features is too small": lambda: Performer(16, 4, features=0),
    "length is too small.*rows is too small": lambda: Linformer(16, 4, length=0, rows=0),
}


test_what_cannot_be_is_refused_in_three_beats = refused_in(REFUSED)


@pytest.mark.slow
def test_the_table_of_the_documents_is_what_the_example_prints():
    """docs/how-to/approximate.md has the rows of examples/approximate.py, and its figures but for what another machine
    rounds.
    """
    made = runpy.run_path(str(ROOT / "examples" / "approximate.py"))["table"]()
    text = (ROOT / "docs" / "how-to" / "approximate.md").read_text()
    kept = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")][2:]

    assert [row[:2] for row in kept] == [row[:2] for row in made]
    for old, new in zip(kept, made, strict=True):
        figures = [[float(cell.rstrip("%")) for cell in row[2:]] for row in (old, new)]
        assert figures[0] == pytest.approx(figures[1], rel=0.1, abs=1.5)
