"""MultiHeadAttention against torch.nn.MultiheadAttention: the same numbers wherever torch has numbers, our laws where
it has none.
"""

import copy
import itertools
import math

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.testing import assert_close as same

import regard as rg
from regard.torch.layers import MultiHeadAttention
from tests.support.lanes import by_name
from tests.support.refusals import refusing, whats
from tests.support.tensors import compiled, unusual

N, L, S, W, H = 3, 5, 7, 8, 2
PADDING = torch.arange(S) >= torch.tensor([[S], [4], [3]])  # of S keys; the first L of them are padded as well

pytestmark = pytest.mark.filterwarnings(
    "ignore:Support for mismatched"
)  # torch, of masks of two kinds, which it adds all the same


def pair(dtype=torch.float32, **options):
    """torch's layer and ours, with the same parameters, none of them at a special value."""
    torch.manual_seed(0)
    theirs = unusual(torch.nn.MultiheadAttention(W, H, dtype=dtype, **options))
    mine = MultiHeadAttention(W, H, dtype=dtype, **options)
    mine.load_state_dict(theirs.state_dict())
    return theirs, mine


def rows(layer, dtype=torch.float32, batched=True):
    """query, key and value in the layer's layout."""
    sizes = (L, W), (S, layer.kdim), (S, layer.vdim)
    made = [torch.randn(N, *size, dtype=dtype) if batched else torch.randn(size, dtype=dtype) for size in sizes]
    return [part if layer.batch_first or not batched else part.transpose(0, 1) for part in made]


def masks(dtype=torch.float32):
    """(key_padding_mask, attn_mask) of every kind, none of which leaves a row empty."""
    hidden = torch.rand(L, S) < 0.3
    hidden[:, 0] = False
    paddings = None, PADDING, torch.zeros(N, S, dtype=dtype).masked_fill(PADDING, -math.inf)
    added = torch.randn(N * H, L, S, dtype=dtype), -torch.rand(L, S, dtype=dtype)
    both = None, hidden, *added, torch.zeros(L, S, dtype=dtype).masked_fill(hidden, -math.inf)
    return itertools.product(paddings, both)


OPTIONS = [
    {},
    {"batch_first": True, "bias": False},
    {"batch_first": True, "kdim": 6, "vdim": 10},
    {"kdim": 6, "bias": False, "add_zero_attn": True},
    {"batch_first": True, "add_bias_kv": True},
    {"add_bias_kv": True, "add_zero_attn": True, "vdim": 4},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_torch_says_the_same(options):
    """Output and weights for every kind of mask and every constructor, and gradients of rows, of every parameter and of
    a learned mask, through the output and through the weights: equal to the last digits in float64.
    """
    theirs, mine = pair(torch.float64, **options)
    given, number = rows(theirs, torch.float64), OPTIONS.index(options)

    def outcome(layer, padding, mask, average):
        learned = [] if mask is None or mask.dtype == torch.bool else [mask.clone().requires_grad_()]
        wanted = [part.clone().requires_grad_() for part in given]
        asked = {"key_padding_mask": padding, "attn_mask": learned[0] if learned else mask}
        out, weights = layer(*wanted, **asked, average_attn_weights=average)
        same(layer(*wanted, **asked, need_weights=False), (out, None))
        loss = out.square().sum() + weights.square().sum() * 3
        return out, weights, torch.autograd.grad(loss, [*wanted, *learned, *layer.parameters()])

    # All of them with the plain constructor.
    some = itertools.islice(masks(torch.float64), number % 3, None, 3 if number else 1)
    for (padding, mask), average in zip(some, itertools.cycle([True, False])):
        same(outcome(mine, padding, mask, average), outcome(theirs, padding, mask, average))


def test_state_dicts_load_both_ways():
    """The same names and shapes in the same order, and with the same seed the same first values."""
    for options in OPTIONS:
        torch.manual_seed(5)
        theirs = torch.nn.MultiheadAttention(W, H, **options)
        torch.manual_seed(5)
        mine = MultiHeadAttention(W, H, **options)
        assert all(map(torch.equal, mine.state_dict().values(), theirs.state_dict().values()))
        theirs.load_state_dict(mine.state_dict())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_bias_of_another_dtype(dtype):
    """It is added in the dtype of the weights."""
    layers = pair(batch_first=True)
    for layer in layers:
        layer.in_proj_bias = torch.nn.Parameter(layer.in_proj_bias.detach().to(dtype))
    same(*(layer(*rows(layer)) for layer in layers if torch.manual_seed(1)))


@pytest.mark.parametrize("batch_first", [True, False])
def test_rows_without_a_batch(batch_first):
    """(L, E) without a batch axis, with masks of its shapes: the same outputs and weights, without a batch axis."""
    theirs, mine = pair(batch_first=batch_first)
    given = rows(theirs, batched=False)
    asked = {"key_padding_mask": torch.arange(S) > 4, "attn_mask": torch.randn(H, L, S), "average_attn_weights": False}
    same(mine(*given, **asked), theirs(*given, **asked))


def test_a_causal_hint_is_the_causal_mask():
    """is_causal with the causal mask, with padding, or alone, where torch wants the mask spelled out."""
    theirs, mine = pair(batch_first=True)
    x, causal = torch.randn(N, L, W), torch.nn.Transformer.generate_square_subsequent_mask(L)
    padded = {"key_padding_mask": torch.zeros(N, L).masked_fill(PADDING[:, :L], -math.inf)}
    for asked in ({}, padded, {"need_weights": False}, padded | {"need_weights": False}):
        expected = theirs(x, x, x, attn_mask=causal, is_causal=True, **asked)
        same(mine(x, x, x, attn_mask=causal, is_causal=True, **asked), expected)
        same(mine(x, x, x, is_causal=True, **asked), expected)


def test_a_rule_as_attn_mask():
    """A rule of regard says who may attend; the learned and the zero key behind the others are seen by every row, as in
    torch.
    """
    theirs, mine = pair(batch_first=True, add_bias_kv=True, add_zero_attn=True)
    x = torch.randn(N, L, W)
    hidden = (torch.arange(L) - torch.arange(L)[:, None]).abs() > 1
    padding = PADDING[:, :L]
    both, expected = mine(x, x, x, padding, attn_mask=rg.window(2, 1)), theirs(x, x, x, padding, attn_mask=hidden)
    same(both[0][~padding], expected[0][~padding])  # rows of padding may be empty, which torch gives as NaN


def test_an_empty_row_gives_zero():
    """Zero weights, the output's bias, and gradients without NaN."""
    _, mine = pair(batch_first=True)
    x = torch.randn(N, S, W, requires_grad=True)
    out, weights = mine(x, x, x, key_padding_mask=(torch.arange(N) == 1)[:, None].expand(N, S))
    assert (weights[1] == 0).all() and torch.equal(out[1], mine.out_proj.bias.expand(S, W))
    slopes = torch.autograd.grad(out.square().sum() + weights.square().sum(), [x, *mine.parameters()])
    assert all(slope.isfinite().all() for slope in slopes)


@pytest.mark.parametrize("floats", [True, False])
def test_what_is_hidden_does_not_reach(floats):
    """A NaN in a padded key spoils neither the output nor the weights."""
    theirs, mine = pair(batch_first=True)
    query, key, value = rows(theirs)
    padding = torch.zeros(N, S).masked_fill(PADDING, -math.inf) if floats else PADDING
    clean = mine(query, key, value, key_padding_mask=padding)
    key[1, 5], value[1, 6] = math.nan, math.inf
    assert all(map(torch.equal, mine(query, key, value, key_padding_mask=padding), clean))


def test_nothing_is_a_size_too():
    """No key, no row, no batch entry: the shapes that follow, and a row without keys gives the output's bias."""
    _, mine = pair(batch_first=True)
    x, nothing = torch.randn(N, L, W), torch.randn(N, 0, W)
    for q, k in ((x, nothing), (nothing, x), (x[:0], x[:0])):
        padding, mask = torch.zeros(k.shape[:2], dtype=torch.bool), torch.zeros(q.shape[1], k.shape[1])
        out, weights = mine(q, k, k, padding, attn_mask=mask)
        assert out.shape == q.shape and weights.shape == (*q.shape[:2], k.shape[1])
        assert k is x or torch.equal(out, mine.out_proj.bias.expand(*q.shape))


def test_weights_before_dropout():
    """In training the weights are those that rows have, not what dropout left of them; the output is of the rest."""
    _, mine = pair(batch_first=True, dropout=0.5)
    x = torch.randn(N, L, W)
    out, weights = mine(x, x, x)
    calm, same = mine.eval()(x, x, x)
    assert torch.equal(weights, same) and not torch.equal(out, calm)


def test_masks_of_every_length_in_one_graph():
    """torch.compile(fullgraph=True) at changing lengths: a program of the first length and one of all others."""
    layer = MultiHeadAttention(W, H).eval()

    def call(x, **masks):
        return layer(x, x, x, need_weights=False, **masks)[0]

    count = CompileCounter()
    program = compiled(call, backend=count)
    for n in (5, 9, 7):
        x = torch.randn(n, N, W)
        masks = {"attn_mask": torch.randn(N * H, n, n), "key_padding_mask": torch.arange(n).expand(N, n) > 3}
        same(program(x, **masks), call(x, **masks))
    assert count.frame_count == 2


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("with_grad", [True, False])
def test_inside_torchs_encoder(training, with_grad):
    """Replacing self_attn: the same rows in every mode, also where torch's fast path would compute with the parameters
    itself.
    """
    layer = torch.nn.TransformerEncoderLayer(W, H, 16, dropout=0.0, batch_first=True)
    theirs = torch.nn.TransformerEncoder(layer, 2).train(training)
    mine, calls = copy.deepcopy(theirs), []
    for layer in mine.layers:
        layer.self_attn = MultiHeadAttention.of(layer.self_attn)
        layer.self_attn.register_forward_hook(lambda *_: calls.append(1))
    x, causal = torch.randn(N, L, W), torch.nn.Transformer.generate_square_subsequent_mask(L)
    padding = PADDING[:, :L]
    with torch.set_grad_enabled(with_grad):
        for asked in (
            {},
            {"mask": causal},
            {"src_key_padding_mask": padding},
            {"mask": causal != 0, "src_key_padding_mask": padding},
        ):
            seen = ~padding if "src_key_padding_mask" in asked else slice(None)
            same(mine(x, **asked)[seen], theirs(x, **asked)[seen])
    assert len(calls) >= 8


class Scaled(torch.nn.Module):
    def forward(self, parameter):
        return 0.5 * parameter + 0.1


def scaled(layer, name):
    return torch.nn.utils.parametrize.register_parametrization(layer, name, Scaled())


def as_plain_tensor(layer):
    """As PEFT puts merged weights in place of parameters."""
    tensor = layer.in_proj_weight.detach().clone()
    del layer.in_proj_weight
    layer.in_proj_weight = tensor


CHANGES = {
    "weight_norm, by a hook": lambda layer: torch.nn.utils.weight_norm(layer, "in_proj_weight"),
    "two parametrizations": lambda layer: [scaled(layer, name) for name in ("in_proj_weight", "in_proj_bias")],
    "of the output": lambda layer: scaled(layer.out_proj, "weight"),
    "a plain tensor": as_plain_tensor,
    "a hook": lambda layer: layer.register_forward_hook(lambda _, given, out: (2 * out[0], out[1])),
    "a hook before": lambda layer: layer.register_forward_pre_hook(lambda _, given: (2 * given[0], *given[1:])),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@by_name("change", CHANGES)
def test_parametrizations_and_hooks_are_taken_over(change):
    """The converted layer computes with the very parameters, so an optimizer goes on: equal outputs and gradients."""
    theirs, x = torch.nn.MultiheadAttention(W, H, add_bias_kv=True, batch_first=True), torch.randn(N, L, W)
    change(theirs)
    mine = MultiHeadAttention.of(theirs)
    assert [*map(id, mine.parameters())] == [*map(id, theirs.parameters())]
    expected, found = (layer(x, x, x)[0] for layer in (theirs, mine))
    same(found, expected)
    slopes = (torch.autograd.grad(out.square().sum(), mine.parameters()) for out in (found, expected))
    same(*slopes, rtol=1e-4, atol=1e-5)


class OwnForward(torch.nn.MultiheadAttention):
    def forward(self, *given, **named):
        return super().forward(*given, **named)


@pytest.mark.parametrize("kind", [OwnForward, torch.ao.nn.quantizable.MultiheadAttention, torch.nn.Linear])
def test_layers_that_compute_in_a_way_of_their_own_are_not_converted(kind):
    """Their forward would be dropped."""
    with refusing(r"computes in a way of its own|not torch's layer"):
        MultiHeadAttention.of(kind(W, H))


def test_rows_of_different_numbers():
    """A nested tensor gives what padding and a mask give, as a nested tensor."""
    _, mine = pair(batch_first=True)
    parts = [torch.randn(size, W) for size in (2, 5)]
    nested, other = (torch.nested.nested_tensor(parts) for _ in range(2))
    out, _ = mine(nested, nested, nested, need_weights=False)
    same(out.unbind(), tuple(mine(part, part, part)[0] for part in parts))
    assert whats(mine, nested, other, other, key_padding_mask=torch.zeros(2, 5, dtype=torch.bool)) == [
        "nested tensors are supported for self-attention only",
        "nested tensors have no padding",
    ]


def test_masks_and_shapes_that_do_not_fit():
    """The error lists all of them, each in three parts; integer masks are rejected because their meaning is
    ambiguous.
    """
    mine, x = MultiHeadAttention(W, H, batch_first=True), torch.zeros(N, L, W)
    padding = torch.zeros(L, N, dtype=torch.int64)
    assert whats(mine, x, x, x, key_padding_mask=padding, attn_mask=torch.zeros(L, S)) == [
        "key_padding_mask has an unsupported dtype",
        "key_padding_mask does not fit",
        "attn_mask does not fit",
    ]
    assert whats(mine, x, x[..., :4], x) == ["key does not have the width of the layer"]
    assert whats(mine, x, x[0], x) == ["the arguments differ in number of axes, or have too many"]
    assert whats(mine, x, x[:2], x[:, :2]) == [
        "key and value differ in rows or batch",
        "query and key differ in batch",
    ]
