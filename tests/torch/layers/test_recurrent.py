"""Transformer-XL: the relative scores are those of the paper and of XLNet, and memory stands for the rows before."""

import copy
from functools import partial

import pytest
import torch

import regard as rg
from regard.torch import attention
from regard.torch.layers.recurrent import SegmentMemory, TransformerXL

WIDTH, HEADS, DEPTH = 16, 2, 8


def rows(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(engine="reference", **more):
    """A layer on the law unless said otherwise: what compiled engines make of a mask is tested where they are."""
    torch.manual_seed(0)
    layer = TransformerXL(WIDTH, HEADS, **more).double()
    layer.attend = partial(attention, engine=engine)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return layer


def plainly(layer, x, memory, allowed):
    """The paper's formula with the vector r(i − j) of every single pair, and autograd."""
    source = torch.cat((memory, x), dim=1)
    q, k, v = (
        part(given).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for part, given in ((layer.q, x), (layer.k, source), (layer.v, source))
    )
    distance = torch.arange(memory.shape[1], source.shape[1])[:, None] - torch.arange(source.shape[1])
    width = layer.relative_dim
    angles = distance[..., None] / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    r = layer.r(torch.cat((angles.sin(), angles.cos()), dim=-1)).unflatten(-1, (HEADS, -1))  # (n, m + n, H, D)
    content = torch.einsum("bhid,bhjd->bhij", q + layer.content_bias[:, None], k)
    relative = torch.einsum("bhid,ijhd->bhij", q + layer.position_bias[:, None], r)
    logits = ((content + relative) / DEPTH**0.5).masked_fill(~allowed, -torch.inf)
    return layer.o((logits.softmax(-1) @ v).transpose(1, 2).flatten(2))


def remembering(memory):
    kept = SegmentMemory(memory.shape[1])
    kept.append(memory)
    return kept


@pytest.mark.spread
@pytest.mark.parametrize("relative_dim", [None, 6])
@pytest.mark.parametrize(("causal", "engine"), [(True, "reference"), (False, "reference"), (True, "jit")])
def test_the_product_is_the_papers_formula(causal, engine, relative_dim):
    """Out, the gradient of the rows and of every parameter equal those of the formula that looks at each pair."""
    layer, x, memory = made(engine, relative_dim=relative_dim, bias=True), rows(2, 9, WIDTH), rows(2, 5, WIDTH, seed=2)
    allowed = torch.ones(9, 14).tril(5 if causal else 14).bool()
    found = []
    for compute in (
        lambda x: layer(x, mask=rg.causal() if causal else None, cache=remembering(memory)),
        lambda x: plainly(layer, x, memory, allowed),
    ):
        given = x.clone().requires_grad_()
        out = compute(given)
        found.append([out, *torch.autograd.grad(out.square().sum(), [given, *layer.parameters()])])

    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-9)


@torch.no_grad()
def test_the_numbers_are_xlnets():
    """XLNet keeps Transformer-XL's attention, with the shifted matrix: the same weights give the same rows."""
    transformers = pytest.importorskip("transformers")
    xlnet = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    config = transformers.XLNetConfig(
        vocab_size=9, d_model=WIDTH, n_head=HEADS, d_inner=8, n_layer=1, dropout=0.0, attn_type="uni"
    )
    theirs, layer = xlnet.XLNetRelativeAttention(config), made("jit").float()
    theirs.layer_norm = torch.nn.Identity()
    for name in "qkvr":
        getattr(theirs, name).copy_(getattr(layer, name).weight.T.unflatten(1, (HEADS, DEPTH)))
    theirs.o.copy_(layer.o.weight.unflatten(1, (HEADS, DEPTH)))
    theirs.r_w_bias.copy_(layer.content_bias)
    theirs.r_r_bias.copy_(layer.position_bias)
    x, memory = rows(2, 9, WIDTH).float(), rows(2, 5, WIDTH, seed=2).float()
    waves = xlnet.XLNetModel(config).relative_positional_encoding(9, 14, bsz=2)
    hidden = torch.ones(9, 14).triu(6)[:, :, None, None].expand(-1, -1, 2, HEADS)
    expected = (
        theirs(x.mT.permute(2, 0, 1), None, hidden, None, waves, None, mems=memory.mT.permute(2, 0, 1))[0].transpose(
            0, 1
        )
        - x
    )
    exact = plainly(layer.double(), x.double(), memory.double(), torch.ones(9, 14).tril(5).bool())

    ours = layer.float()(x, mask=rg.causal(), cache=remembering(memory))

    # The usual computation in float32 is off too; ours may be off by a few times as much.
    assert (expected - exact).abs().max() < 1e-4
    assert (ours - exact).abs().max() <= 4 * (expected - exact).abs().max()


@torch.no_grad()
def test_a_short_memory_is_a_mask():
    """Memory of 4: the rows of each segment see the 4 rows before it, and in the long text a mask says the same."""
    layer, x, memory = made(), rows(1, 30, WIDTH), SegmentMemory(4)
    pieces = [layer(segment, mask=rg.causal(), cache=memory) for segment in x.split(10, dim=1)]
    start = rg.query // 10 * 10

    assert torch.allclose(
        torch.cat(pieces, dim=1), layer(x, mask=rg.causal() & (rg.key >= start - 4)), rtol=1e-9, atol=1e-11
    )
    assert torch.equal(memory.rows, x[:, 26:])


@torch.no_grad()
def test_a_window_reaches_into_the_memory():
    """A window of 6 over segments of 5 is the window of 6 over the whole: positions count on through the memory."""
    layer, x, memory = made(), rows(1, 20, WIDTH), SegmentMemory(5)
    pieces = [layer(segment, mask=rg.window(6), cache=memory) for segment in x.split(5, dim=1)]

    assert torch.allclose(torch.cat(pieces, dim=1), layer(x, mask=rg.window(6)), rtol=1e-9, atol=1e-11)


def test_no_gradient_leaves_the_segment():
    """What is remembered is a copy without a past: the first segment gets no gradient from the second, its own rows
    do.
    """
    layer, memory = made(), SegmentMemory(10)
    first, second = (rows(1, 5, WIDTH, seed=seed).requires_grad_() for seed in (1, 2))
    layer(first, mask=rg.causal(), cache=memory)
    seen = first.detach().clone()
    first.data.zero_()
    assert torch.equal(memory.rows, seen)
    layer(second, mask=rg.causal(), cache=memory).sum().backward()

    assert first.grad is None
    assert second.grad.abs().sum() > 0
    assert not memory.rows.requires_grad


@torch.no_grad()
def test_nothing_of_size_n_by_n_is_handed_on():
    """Queries and keys get relative_dim more components; neither mask nor score holds an array."""
    layer, seen = made(relative_dim=6), []
    layer.attend = lambda q, k, v, **rules: seen.extend((q.shape, k.shape, rules)) or attention(q, k, v, **rules)
    layer(rows(1, 30, WIDTH), mask=rg.causal(), cache=remembering(rows(1, 12, WIDTH, seed=2)))

    rules = {"mask": rg.causal(), "score": None, "scale": DEPTH**-0.5}
    assert seen == [(1, HEADS, 30, DEPTH + 6), (1, HEADS, 42, DEPTH + 6), rules]


def test_a_score_and_dropout_are_applied():
    """A softcap changes the rows; dropout only those of training, the same for the same seed of torch."""
    x = rows(1, 12, WIDTH)
    plain, capped, dropping = made(), made(score=rg.softcap(0.5)), made(dropout=0.5)
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        drawn.append(dropping(x))

    assert not torch.allclose(plain(x), capped(x), atol=1e-3)
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    for same in (dropping.eval(), copy.deepcopy(plain)):
        assert torch.equal(same(x), plain(x))


REFUSED = {
    "sizes": (
        lambda: TransformerXL(15, 2, relative_dim=5, score=1.0),
        "(?s)heads do not divide d_model.*relative_dim is not even.*score is not an expression",
    ),
    "width": (lambda: made()(rows(1, 5, 3)), "x does not fit the layer"),
    "positions": (lambda: made()(rows(1, 5, WIDTH), positions=torch.arange(5)), "the layer takes no positions"),
    "another cache": (lambda: made()(rows(1, 5, WIDTH), cache=[1]), "cache is not a SegmentMemory"),
    "another batch": (
        lambda: made()(rows(2, 5, WIDTH), cache=remembering(rows(1, 5, WIDTH))),
        "batch size or width differs",
    ),
    "length": (lambda: SegmentMemory(-1), "length is negative"),
}


@pytest.mark.parametrize(("call", "told"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_in_three_beats(call, told):
    """Given, expected, fix; and the memory stays as it was."""
    with pytest.raises(rg.Refused, match=told) as caught:
        call()
    assert all(reason.given and reason.expected and reason.fix for reason in caught.value.reasons)
