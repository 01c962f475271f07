"""`invariant`: the bits of a row alone are those that it has in every batch, and the numbers are torch's."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from regard.engines.jit import threads
from regard.engines.jit.code.target import limited
from regard.torch import invariant
from regard.torch.hf import register
from tests.support.lanes import examples, sweep
from tests.support.machine import each_isa
from tests.torch.hf.models import GREEDY, built

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 2e-3}
OPERATORS = {
    "linear": lambda x, w, bias: F.linear(x, w, bias),
    "columns": lambda x, w, bias: torch.addmm(bias, x, w.T.contiguous(), beta=2, alpha=-1.5),
    "rows apart": lambda x, w, bias: x.T.contiguous().T @ w.T,
    "sigmoid": lambda x, w, bias: torch.sigmoid(9 * x),
    "silu": lambda x, w, bias: F.silu(9 * x),
    "gelu": lambda x, w, bias: F.gelu(9 * x),
    "gelu, tanh": lambda x, w, bias: F.gelu(9 * x, approximate="tanh"),
    "softplus": lambda x, w, bias: F.softplus(9 * x),
}


@each_isa
@pytest.mark.parametrize("dtype", DTYPES)
@examples(20)
@given(sizes=st.tuples(*[st.integers(1, 220)] * 2, st.integers(1, 2100)), data=st.data())
def test_rows_alone(isa, dtype, sizes, data):
    """Every operator, for any sizes, layouts and numbers of threads."""
    rows, outputs, inputs = sizes
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, rows)] * 2)))
    random = torch.Generator().manual_seed(rows)
    x, w, bias = (torch.randn(size, generator=random) for size in ((rows, inputs), (outputs, inputs), (outputs,)))
    x, w, bias = x.to(dtype), (w / inputs**0.5).to(dtype), bias.to(dtype)
    for name, operator in OPERATORS.items():
        usual = operator(x.double(), w.double(), bias.double())
        with invariant(), limited(isa), threads.limit(data.draw(st.integers(1, 3))):
            whole, some = operator(x, w, bias), operator(x[first:last], w, bias)
        assert torch.equal(whole[first:last], some), name
        torch.testing.assert_close(whole.double(), usual, rtol=ROUNDING[dtype], atol=ROUNDING[dtype], msg=name)


def test_it_ends():
    """torch's own operators are back after the last of several blocks, also where one has raised an error."""
    x, w = torch.randn(64, 1000), torch.randn(1000, 1000)
    own = x @ w
    outer = invariant()
    with pytest.raises(RuntimeError, match="cannot be multiplied"), invariant():
        x @ x
    inside = x @ w
    outer.restore()

    assert torch.equal(x @ w, own) and not torch.equal(inside, own)


def test_other_dtypes_are_computed_by_torch():
    x = torch.arange(6).reshape(2, 3)
    with invariant():
        assert torch.equal(x @ x.t(), torch.tensor([[5, 14], [14, 50]]))
        assert torch.sigmoid(x).dtype is torch.float32


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "gemma2"])
@pytest.mark.parametrize("dtype", [torch.float32, *sweep(torch.bfloat16)])
@torch.no_grad()
def test_models(name, dtype):
    """Padding on either side, a prompt in chunks, and what is generated."""
    register()
    model = built(name, vocab_size=60, max_position_embeddings=1500).to(dtype).eval()
    texts = [torch.randint(3, 60, (length,)) for length in (1200, 1, 130, 1100)]
    most = max(map(len, texts)) + 5

    def output(*inputs, **more):
        found = model(*inputs, **more)
        return found.logits if "logits" in found else found.last_hidden_state

    with invariant():
        alone = [output(text[None])[0] for text in texts]
        for left in (True, False):
            spaces = [(most - len(text), 0) if left else (0, most - len(text)) for text in texts]
            ids = torch.stack([F.pad(text, space) for text, space in zip(texts, spaces)])
            mask = torch.stack([F.pad(torch.ones_like(text), space) for text, space in zip(texts, spaces)])
            places = (mask.cumsum(1) - 1).clamp(min=0)
            for found, real, expected in zip(output(ids, attention_mask=mask, position_ids=places), mask, alone):
                assert torch.equal(found[real > 0], expected)
            if left and name != "bert":
                written = model.generate(ids, attention_mask=mask, max_new_tokens=6, **GREEDY)[:, most:]
                for text, expected in zip(texts, written):
                    own = model.generate(
                        text[None], attention_mask=torch.ones(1, len(text)), max_new_tokens=6, **GREEDY
                    )
                    assert torch.equal(own[0, len(text) :], expected)
        if name in ("llama", "gpt2"):  # Gemma's cache keeps a window of keys only
            cache, chunks = None, texts[0][None].split([1, 8, 900, 1, 290], dim=1)
            for chunk, expected in zip(chunks, alone[0].split([1, 8, 900, 1, 290])):
                found = model(chunk, past_key_values=cache, use_cache=True)
                cache = found.past_key_values
                assert torch.equal(found.logits[0], expected)
