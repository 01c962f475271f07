"""Transformer-XL: the relative scores are those of the paper and of XLNet, and memory stands for the rows before."""

from functools import partial

import pytest
import torch

import regard as rg
from regard.torch import attention
from regard.torch.layers.recurrent import SegmentMemory, TransformerXL
from tests.support.refusals import refused_in
from tests.support.tensors import normal, unusual

CAUSAL = rg.causal()

WIDTH, HEADS, DEPTH = 16, 2, 8
rows = partial(normal, seed=1, dtype=torch.float64)


def made(engine="reference", **more):
    """A layer on the law unless said otherwise: what compiled engines make of a mask is tested where they are."""
    torch.manual_seed(0)
    layer = unusual(TransformerXL(WIDTH, HEADS, **more).double())
    layer.attend = partial(attention, engine=engine)
    return layer


def remembering(memory):
    kept = SegmentMemory(memory.shape[1])
    kept.append(memory)
    return kept


@pytest.mark.parametrize(("causal", "engine"), [(True, "reference"), (False, "reference"), (True, "jit")])
def test_the_numbers_are_xlnets(causal, engine):
    """XLNet keeps Transformer-XL's attention, with the shifted matrix: the same weights give the same rows, and
    the same gradients of rows and learned biases.
    """
    from transformers.models.xlnet import modeling_xlnet as xlnet

    sizes = {"vocab_size": 9, "d_model": WIDTH, "n_head": HEADS, "d_inner": 8, "n_layer": 1, "dropout": 0.0}
    config = xlnet.XLNetConfig(**sizes, attn_type="uni" if causal else "bi")
    theirs, layer = xlnet.XLNetRelativeAttention(config).double(), made(engine)
    theirs.layer_norm = torch.nn.Identity()
    with torch.no_grad():
        for name in "qkvr":
            getattr(theirs, name).copy_(getattr(layer, name).weight.T.unflatten(1, (HEADS, DEPTH)))
        theirs.o.copy_(layer.o.weight.unflatten(1, (HEADS, DEPTH)))
        theirs.r_w_bias.copy_(layer.content_bias)
        theirs.r_r_bias.copy_(layer.position_bias)
    x, memory = rows(2, 9, WIDTH).requires_grad_(), rows(2, 5, WIDTH, seed=2)
    waves = xlnet.XLNetModel(config).relative_positional_encoding(9, 14, bsz=2).double()
    hidden = torch.ones(9, 14, dtype=torch.float64).triu(6 if causal else 14)[:, :, None, None].expand(-1, -1, 2, HEADS)
    found = x + layer(x, mask=CAUSAL if causal else None, cache=remembering(memory))
    expected, _ = theirs(x.transpose(0, 1), None, hidden, None, waves, None, mems=memory.transpose(0, 1))

    torch.testing.assert_close(found.transpose(0, 1), expected, rtol=1e-5, atol=1e-5)
    ours, wanted = (x, layer.content_bias, layer.position_bias), (x, theirs.r_w_bias, theirs.r_r_bias)
    slopes = (torch.autograd.grad(out.square().sum(), given) for out, given in ((found, ours), (expected, wanted)))
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_short_memory_is_a_mask():
    """Memory of 4: the rows of each segment see the 4 rows before it, and in the long text a mask says the same."""
    layer, x, memory = made(), rows(1, 30, WIDTH), SegmentMemory(4)
    pieces = [layer(segment, mask=CAUSAL, cache=memory) for segment in x.split(10, dim=1)]
    start = rg.query // 10 * 10

    assert torch.allclose(
        torch.cat(pieces, dim=1), layer(x, mask=CAUSAL & (rg.key >= start - 4)), rtol=1e-9, atol=1e-11
    )
    assert torch.equal(memory.rows, x[:, 26:])


def test_no_gradient_leaves_the_segment():
    """What is remembered is a copy without a past: the first segment gets no gradient from the second, its own rows
    do.
    """
    layer, memory = made(), SegmentMemory(10)
    first, second = (rows(1, 5, WIDTH, seed=seed).requires_grad_() for seed in (1, 2))
    layer(first, mask=CAUSAL, cache=memory)
    seen = first.detach().clone()
    first.data.zero_()
    assert torch.equal(memory.rows, seen)
    layer(second, mask=CAUSAL, cache=memory).sum().backward()

    assert first.grad is None
    assert second.grad.abs().sum() > 0
    assert not memory.rows.requires_grad


@torch.no_grad()
def test_nothing_of_size_n_by_n_is_handed_on():
    """Queries and keys get relative_dim more components; neither mask nor score holds an array."""
    layer, seen = made(relative_dim=6, bias=True), []
    layer.attend = lambda q, k, v, **rules: seen.extend((q.shape, k.shape, rules)) or attention(q, k, v, **rules)
    layer(rows(1, 30, WIDTH), mask=CAUSAL, cache=remembering(rows(1, 12, WIDTH, seed=2)))

    rules = {"mask": CAUSAL, "score": None, "scale": DEPTH**-0.5}
    assert seen == [(1, HEADS, 30, DEPTH + 6), (1, HEADS, 42, DEPTH + 6), rules]


def test_a_score_is_applied():
    """A softcap changes the rows."""
    x, plain = rows(1, 12, WIDTH), made()
    assert not torch.allclose(plain(x), made(score=rg.softcap(0.5))(x), atol=1e-3)


REFUSED = {
    "heads do not divide d_model.*relative_dim is not even.*score is not an expression": lambda: TransformerXL(
        15, 2, relative_dim=5, score=1.0
    ),
    "x does not fit the layer": lambda: made()(rows(1, 5, 3)),
    "the layer takes no positions": lambda: made()(rows(1, 5, WIDTH), positions=torch.arange(5)),
    "cache is not a SegmentMemory": lambda: made()(rows(1, 5, WIDTH), cache=[1]),
    "batch size or width differs": lambda: made()(rows(2, 5, WIDTH), cache=remembering(rows(1, 5, WIDTH))),
    "length is negative": lambda: SegmentMemory(-1),
}


test_what_cannot_be_is_refused_in_three_beats = refused_in(REFUSED)
