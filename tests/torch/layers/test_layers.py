"""The attention layers: the numbers of others, and what every torch module must be able to do."""

import copy
import functools
import math
import operator
import pickle

import pytest
import torch
from torch.testing import assert_close

import regard as rg
import regard.torch.layers as layers
from regard.torch.layers import Attention, DifferentialAttention, LatentAttention, MultiHeadAttention, SelfAttention
from regard.torch.layers.recurrent import TransformerXL
from regard.torch.positions import ALiBi, Buckets, Relative, Rotary
from tests.support.lanes import by_name
from tests.support.refusals import whats
from tests.support.tensors import compiled, unusual

CAUSAL = rg.causal()

N, W = 6, 8  # rows, width


def causally(layer, x):
    return layer(x, mask=CAUSAL)


# Each makes a layer, and says how it is called with rows (2, N, W).
LAYERS = {
    "grouped, rotary": (lambda: Attention(W, 4, 2, positions=Rotary(2)), causally),
    "multi-query, normed": (lambda: Attention(W, 4, 1, query_key_norm=True, bias=True), causally),
    "single head": (lambda: SelfAttention(W, 4, 3), causally),
    "as torch's": (
        lambda: MultiHeadAttention(W, 2, batch_first=True),
        lambda f, x: f(x, x, x, need_weights=False, is_causal=True)[0],
    ),
    "latent": (lambda: LatentAttention(W, 2, kv_rank=4, head_dim=3, rope_dim=2, q_rank=3), causally),
    "differential": (lambda: DifferentialAttention(W, 2, 1, depth=1, positions=Rotary(2)), causally),
    "sinks, learned distances": (
        lambda: Attention(W, 2, sinks=2, positions=Relative(2, 3)),
        lambda f, x: f(x, mask=rg.window(3, None)),
    ),
    "ALiBi and softcap": (lambda: Attention(W, 2, positions=ALiBi(2), score=rg.softcap(2.0)), causally),
    "to a memory": (lambda: Attention(W, 2, memory_dim=3, value_dim=5), lambda f, x: f(x, x[:, ::2, :3])),
}


def made(make, dtype=torch.float32):
    """A layer with no parameter at a special value, and rows."""
    torch.manual_seed(0)
    return unusual(make().to(dtype)), torch.randn(2, N, W, dtype=dtype)


def gradients(layer, call, x, dout):
    """The output, and the gradients of rows and parameters."""
    x = x.detach().requires_grad_()
    out = call(layer, x)
    return [out, *torch.autograd.grad(out, [x, *layer.parameters()], dout)]


@pytest.mark.one_in(2)
@by_name("make, call", LAYERS)
def test_copies_and_files(make, call):
    """A deepcopy, a pickle and a state dict in a fresh layer give the same output; a copy has its own
    parameters.
    """
    layer, x = made(make)
    out = call(layer, x)
    fresh = make()
    fresh.load_state_dict(layer.state_dict())
    copied = copy.deepcopy(layer)
    for other in (fresh, copied, pickle.loads(pickle.dumps(layer))):
        assert torch.equal(call(other, x), out)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.add_(torch.randn_like(parameter))
    assert torch.equal(call(layer, x), out) and not torch.equal(call(copied, x), out)


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["sinks, learned distances", "latent", "differential"])
def test_torch_compiles_it_whole(name):
    """torch.compile(fullgraph=True) gives the same output and gradients, also for a copy that was never called
    before. ("as torch's" is compiled in tests/torch/layers/test_multi_head.py.)
    """
    make, call = LAYERS[name]
    layer, x = made(make)
    dout = torch.randn(2, N, W)
    found = gradients(copy.deepcopy(layer), compiled(call), x, dout)
    assert_close(found, gradients(layer, call, x, dout))


def test_learned_positions_stay_with_the_layer():
    """A layer made without numbers (device "meta"), filled, given other parameters or another dtype, reads those it has
    now.
    """
    make, call = LAYERS["sinks, learned distances"]
    layer, x = made(make)
    with torch.device("meta"):
        empty = make()
    empty.load_state_dict(layer.state_dict(), assign=True)
    for other in (compiled(call), call):  # no rule was built over these before it was compiled
        assert torch.equal(other(empty, x), call(layer, x))
    layer.positions.weight = torch.nn.Parameter(-layer.positions.weight.detach())
    assert not torch.equal(call(empty, x), call(layer, x))
    assert_close(call(layer.double(), x.double()).float(), call(copy.deepcopy(layer).float(), x))


DROPPING = {
    "Attention": lambda: Attention(W, 2, dropout=0.4),
    "SelfAttention": lambda: SelfAttention(W, dropout=0.4),
    "TransformerXL": lambda: TransformerXL(W, 2, dropout=0.4),
    "LatentAttention": lambda: LatentAttention(W, 2, kv_rank=4, head_dim=3, rope_dim=2, dropout=0.4),
    "DifferentialAttention": lambda: DifferentialAttention(W, 2, depth=0, dropout=0.4),
}


@by_name("make", DROPPING)
def test_dropout_follows_torchs_seed(make):
    """In training, manual_seed repeats what falls out and another call does not; checkpointing repeats it; eval has
    none.
    """
    layer, x = made(make)
    layer.attend = functools.partial(layer.attend, engine="reference")  # so that nothing has to be compiled

    def checkpointed(layer, x):
        return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)

    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    runs = []
    for each in (operator.call, checkpointed):
        torch.manual_seed(3)
        runs.append(gradients(layer, each, x, torch.ones_like(first)))
    assert torch.equal(runs[0][0], first) and not torch.equal(first, second)
    assert all(map(torch.equal, *runs))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_norms_rotation_and_sinks_by_hand():
    """Queries and keys are normalized, then rotated; learned sinks are in the denominator: the plain softmax over keys
    and sinks, without the sinks' columns.
    """
    layer, x = made(lambda: Attention(W, 2, sinks=3, query_key_norm=True, positions=Rotary(4)), torch.float64)
    q, k, v = (part(x).view(2, N, 2, -1).transpose(1, 2) for part in (layer.q, layer.k, layer.v))
    q, k = (
        layer.positions.rotate(torch.nn.functional.rms_norm(part, (4,), norm.weight, 1e-6), torch.arange(N))
        for part, norm in ((q, layer.q_norm), (k, layer.k_norm))
    )
    logits = torch.cat((q @ k.mT / 2, layer.sinks[:, None].expand(2, 2, N, 3)), -1)
    expected = layer.o((logits.softmax(-1)[..., :N] @ v).transpose(1, 2).reshape(2, N, W))

    assert_close(layer(x), expected)


CACHED = {
    "grouped, rotary": (LAYERS["grouped, rotary"][0], lambda: rg.KVCache(2, 2, batch=2)),
    "narrow values, sinks": (lambda: Attention(W, 2, value_dim=3, sinks=1), lambda: rg.KVCache(2, 4, 3, batch=2)),
    "ALiBi": (lambda: Attention(W, 2, positions=ALiBi(2)), lambda: rg.KVCache(2, 4, batch=2)),
    "latent": (LAYERS["latent"][0], lambda: layers.LatentCache(4, 2, batch=2)),
    "differential": (LAYERS["differential"][0], lambda: rg.KVCache(1, 4, batch=2)),
}


@by_name("make, cache", CACHED)
def test_decoding_is_the_whole_prefill(make, cache):
    """A prompt, then row by row over a cache: what the layer gives for all rows at once."""
    layer, x = made(make)
    held = cache()
    with torch.no_grad():
        steps = [layer(part, mask=CAUSAL, cache=held) for part in (x[:, :3], *x[:, 3:].split(1, 1))]
        assert_close(torch.cat(steps, 1), layer(x, mask=CAUSAL))


FAR = torch.stack((torch.arange(6) ** 2, torch.arange(6) + 3))

ENCODINGS = {
    "ALiBi": lambda depth: ALiBi(2),
    "Relative": lambda depth: Relative(2, reach=100),
    "Buckets": lambda depth: Buckets(2),
    "Rotary": Rotary,
}


@pytest.mark.spread
@by_name("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", [Attention, DifferentialAttention])
def test_distances_are_those_of_the_positions(kind, encoding):
    """With positions=…, rows attend as they do at these places of a long sequence in which nothing else may be seen."""
    depth, more = (4, {"score": rg.softcap(5.0)}) if kind is Attention else (2, {"depth": 1})
    layer, x = made(lambda: kind(W, 2, positions=encoding(depth), **more))
    long, seen = torch.zeros(2, 26, W), torch.zeros(2, 26, dtype=torch.bool)
    entries = torch.arange(2)[:, None]
    long[entries, FAR], seen[entries, FAR] = x, True
    far = layer(long, mask=CAUSAL & rg.table(seen)[rg.batch, rg.key])
    found = layer(x, mask=CAUSAL, positions=FAR)
    assert_close(found, far[entries, FAR])
    assert not torch.equal(found[0], layer(x, mask=CAUSAL)[0])


def test_a_memory_is_remembered():
    """What `remember` made of a memory stands for it, bit for bit, and padding of the memory is a rule over keys."""
    layer, x = made(LAYERS["to a memory"][0])
    memory = torch.randn(2, 4, 3)
    assert torch.equal(layer(x, layer.remember(memory)), layer(x, memory))
    cut = torch.cat([layer(x[:1], memory[:1, :2]), layer(x[1:], memory[1:])])
    assert_close(layer(x, memory, mask=rg.lengths([2, 4])), cut)


def test_one_head_with_masks_of_its_shapes():
    """(batch, 1, n) and (batch, n, n) masks and rules: output and weights of the plain formula; an empty row gives
    0.
    """
    layer, x = made(lambda: SelfAttention(W, 4, 3), torch.float64)
    padding = (torch.arange(N) < torch.tensor([[4], [N]]))[:, None]
    square = torch.rand(2, N, N) < 0.5
    square[0, 2] = False
    causal = torch.ones(N, N).tril().bool()
    logits = layer.q(x) @ layer.k(x).mT / 2
    for mask, allowed in ((padding, padding), (square, square), (CAUSAL, causal)):
        weights = logits.masked_fill(~allowed, -math.inf).softmax(-1).nan_to_num(0)
        out, found = layer(x, mask, return_weights=True)
        assert_close(found, weights)
        assert_close(out, layer.o(weights @ layer.v(x)))
        assert torch.equal(layer(x, mask), out)


X = torch.zeros(1, 2, 8)
IMPOSSIBLE = {
    "attention": (
        lambda: Attention(10, 4, 3, dropout=1.0, sinks=-1, positions=3, score="softcap"),
        [
            "dropout is not a probability",
            "sinks is negative",
            "heads do not divide d_model",
            "kv_heads do not divide heads",
            "positions is not a Position",
            "score is not an expression",
        ],
    ),
    "a parameter": (
        lambda: Attention(8, 2, score=rg.score + rg.table(torch.zeros(2, requires_grad=True), "gift")[rg.head]),
        ["the score reads a parameter that the layer would not own"],
    ),
    "one head": (lambda: SelfAttention(0, 2.5, True), ["d_model is too small", "d_k is not", "d_v is not"]),
    "as torch's": (
        lambda: MultiHeadAttention(10, 4, dropout=-1, kdim=0),
        ["num_heads do not", "kdim is too small", "dropout is not"],
    ),
    "latent": (
        lambda: LatentAttention(8, 2, kv_rank=0, head_dim=4, rope_dim=3, scale=math.nan),
        ["kv_rank is too small", "rope_dim is not even", "scale is not a number"],
    ),
    "differential": (
        lambda: DifferentialAttention(6, 2, 3, depth=-1),
        ["depth is negative", "heads do not divide d_model into halves", "kv_heads do not divide heads"],
    ),
    "rows": (
        lambda: Attention(8, 2)(X[0], positions=torch.arange(2)),
        ["x does not fit the layer", "the layer has no position encoding"],
    ),
    "rows of two maps": (lambda: DifferentialAttention(8, 2, depth=1)(X[0]), ["x does not fit the layer"]),
    "no memory": (lambda: Attention(8, 2, memory_dim=5)(X), ["memory is missing"]),
    "memory": (
        lambda: Attention(8, 2, positions=Rotary(4))(X, X[..., 1:], cache=rg.KVCache(2, 4)),
        ["the memory does not fit", "a memory is not appended to a cache", "positions are not defined"],
    ),
    "cache": (
        lambda: Attention(8, 2, dropout=0.1)(X, cache=rg.KVCache(2, 4)),
        ["dropout is not supported with a cache"],
    ),
    "positions and a cache": (
        lambda: Attention(8, 2, positions=ALiBi(2))(X, cache=rg.KVCache(2, 4), positions=FAR[0, :2]),
        ["the positions of the keys in the cache are not known"],
    ),
    "mask": (
        lambda: SelfAttention(8)(X, torch.zeros(3, 2)),
        ["the mask has an unsupported dtype", "the mask does not fit"],
    ),
}


@by_name("act, words", IMPOSSIBLE)
def test_all_reasons_at_once(act, words):
    """What cannot work is refused with every reason, each in three beats."""
    found = whats(act)
    assert len(found) == len(words)
    assert all(any(word in what for what in found) for word in words)
