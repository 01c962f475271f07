"""torch.compile takes attention whole, with rules built outside, built inside, and written as callables."""

import concurrent.futures
import itertools
import operator
import sys
import threading
import time
import types
import warnings

import numpy as np
import pytest
import torch

import regard as rg
import regard.torch as rt
from tests.api.test_tracers import OTHERS
from tests.support.lanes import by_name, sweep
from tests.support.tensors import compiled, normal, qkv

B, H, G, Q, K, D = 2, 4, 2, 6, 9, 8
doc = torch.arange(9) // 3
npdoc = doc.numpy()
slopes = normal(H)
bias = normal(H, Q, K)
ln = torch.tensor([7, 9])
cap = torch.tensor(3.0)
W, T, F, A = rg.causal() & rg.window(4), rg.table(doc), rg.documents(doc), rg.alibi(slopes)
S = (T[rg.query] == 1) | (T[rg.query] * T[rg.query] > T[rg.key] + T[rg.query])

RULES = {
    "callables": lambda: {
        "mask": lambda b, h, i, j: (
            (doc[i] == doc[j]) | (npdoc[i] < npdoc[j]) | torch.logical_and(j <= i, abs(i - j) < 4)
        ),
        "score": lambda s, b, h, i, j: torch.where(i - j < 3, s, s - slopes[h]) + bias[h, i - 3, j] + bias[h, -1, j],
    },
    "methods": lambda: {"score": lambda s, b, h, i, j: s - (i - j).abs().to(torch.float32) * 0.1},
    "masks": lambda: {
        "mask": rg.lengths(ln) & rg.prefix(ln) & rg.strided(3)
        | rg.global_tokens(torch.tensor([0, 2])) & rg.documents(npdoc)
        ^ rg.blocks(torch.ones(3, 3, dtype=torch.bool).tril(), 3)
        ^ rg.dense(bias[0] > 0)
        ^ rg.documents(lengths=[3, 3, 3])
    },
    "scores": lambda: {
        "score": rg.softcap(cap, rg.relative(torch.arange(7.0), rg.gate(bias.sigmoid(), rg.bias(bias, query_start=3))))
    },
    "tensors": lambda: {"score": bias * 2, "mask": bias > 0},
    "outer rules": lambda: {"mask": (W & F | rg.documents(doc)) & (rg.key != 2), "score": A},
    "outer rules with a shared part": lambda: {
        "mask": S | (rg.key < 1),
        "score": A + rg.where(S, 1.0, T[rg.key] * T[rg.key]),
    },
    "expressions": lambda: {
        "mask": (rg.key >> 1) <= (rg.query << 1),
        "score": rg.where(rg.key < 3, rg.exp(rg.score * 0.1), rg.clip(rg.score, -1.0, 1.0))
        + rg.relu(rg.score)
        + rg.where(rg.key <= rg.query, -0.1 * (rg.query - rg.key) ** 2, float("-inf")),
    },
    "vectors": lambda: {
        "mask": lambda b, h, i, j: (
            (ln[b] >> (j - i) & 1 == 0) | (1 << j > ln[b]) | (bias[h, i - 3, :3] > bias[h, :3, j]).any(-1)
        ),
        "score": lambda s, b, h, i, j: (
            s
            + torch.dot(bias[h, i - 3], bias[h, i - j])
            + bias[h, i - 3] @ bias[h, j - 3]
            + torch.tanh(bias[..., i - 3, j] * slopes).sum()
            + (bias[h][..., j] - bias[h, i - 3, 0]).square().mean(0)
        ),
    },
    "not": lambda: {"mask": lambda b, h, i, j: ~(i < j) | ~(rg.key > rg.query)},
    "numbers of a row": lambda: {
        "score": lambda s, b, h, i, j: s + sum(x * y for x, y in zip(bias[h, i - 3], bias[h, j - 3], strict=True)),
    },
    "rows of a matrix": lambda: {"score": lambda s, b, h, i, j: s + sum(row[j] for row in bias[h])},
    "dtypes": lambda: {
        "mask": lambda b, h, i, j: (bias > 0)[h, i - 3, j] if bias[h, i - 3, j].dtype == torch.float32 else i < 0,
        "score": lambda s, b, h, i, j: torch.where(i < j, torch.tensor(-1e9, dtype=s.dtype), s),
    },
    "numbers in arrays": lambda: {
        "mask": rg.causal(),
        "query_start": torch.tensor([1, 2]),
        "sinks": np.ones(H, np.float32),
        "dropout": 0.5,
        "seed": torch.tensor(3),
    },
    "True": lambda: {"mask": True},
}


def tensors():
    return qkv(Q=Q, K=K, D=D, E=D)


def silent(call, *given):
    """The result of a call that may not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return call(*given)


@by_name("rules", RULES)
def test_rules_in_one_graph(rules, capfd):
    """fullgraph=True, without a warning, bit-identical to the eager call."""

    def program(q, k, v):
        out, lse = rg.attention_with_lse(q, k, v, **rules())
        return torch.cat([out, lse[..., None]], -1)

    given = tensors()

    assert torch.equal(silent(compiled(program), *given), program(*given))
    assert "Exception ignored" not in capfd.readouterr().err


class Model(torch.nn.Module):
    """Rules over parameters, inputs and what the model computes from them."""

    def __init__(self):
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.rand(H))
        self.bias = torch.nn.Parameter(torch.randn(H, K, K))
        self.linear = torch.nn.Linear(D, D)

    def forward(self, x, ids):
        q = k = v = self.linear(x)
        first = rg.attention(q, k, v, mask=lambda b, h, i, j: ids[i] == ids[j], score=rg.alibi(self.slopes.exp()))
        return rt.attention(
            first,
            k,
            v,
            mask=rg.documents(ids) & rg.causal(),
            score=lambda s, b, h, i, j: 3 * torch.tanh((s + self.bias[h, i, j]) / 3),
            sinks=self.slopes,
        )


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["aot_eager", *sweep("inductor")])
def test_training_in_one_graph(backend, dynamic):
    """Forward and backward: every parameter that a rule reads, directly or through other operators, gets its gradient;
    other documents and other sizes need no new rule.
    """
    torch.manual_seed(0)
    model = Model()
    other = compiled(model, backend=backend, dynamic=dynamic)
    for ids in (doc, doc.flip(0), doc // 2):
        x = torch.randn(B, H, K, D)
        found = []
        for step in (model, other):
            model.zero_grad()
            out = step(x, ids)
            out.square().sum().backward()
            found.append([out, *(parameter.grad for parameter in model.parameters())])
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


def test_sizes_in_rules():
    """A number from a shape may be part of a rule, also when the shape changes; a rule that is an argument is the one
    of this call.
    """

    def call(q, rule):
        return rg.attention(q, q, q, mask=rule, score=rg.alibi(q.shape[-3]))

    found = compiled(call)
    for heads, width in ((4, 2), (8, 2), (6, 3), (4, 4)):
        given = torch.randn(2, heads, 9, D), rg.window(0, width)
        assert torch.equal(found(*given), call(*given))


COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
SIZES = {
    "in arithmetic": lambda compare, n: compare((rg.key * n + rg.query // n - n) % (n - 2), n % 3),
    "in functions": lambda compare, n: rg.window(n // 3) | compare(rg.clip(rg.key, 1, n - 2), rg.query),
    "an exponent": lambda compare, n: compare(rg.key ** (n - 4), 1 + rg.query),
    "in a table": lambda compare, n: compare(rg.table(torch.arange(20))[n - 3 - rg.key], rg.query),
    "a position": lambda compare, n: compare(rg.key, n - 1),
    "the size first": lambda compare, n: compare(n - 1, rg.key),
    "a float": lambda compare, n: compare(rg.key, n / 2),
    "inside where": lambda compare, n: rg.where(compare(rg.key, n // 2), rg.query, 0) > 1,
    "in a callable": lambda compare, n: lambda b, h, i, j: compare(j, n - 1) | (i == j),
}


@pytest.mark.spread
@pytest.mark.parametrize("dynamic", [None, *sweep(True)])
@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("place", SIZES)
def test_a_rule_compares_a_position_with_a_size(place, compare, dynamic):
    """Every comparison, at lengths that the compiler leaves open: the rule of the length, in one program for all."""
    programs = []

    def backend(graph, _):
        programs.append(graph)
        return graph.forward

    def call(q):
        rule = SIZES[place](compare, q.shape[-2])
        return rg.attention(q, q, q, mask=rule if callable(rule) else rule | (rg.key == rg.query))

    found = compiled(call, dynamic=dynamic, backend=backend)
    for rows in (5, 6, 7):
        q = torch.randn(2, 4, rows, D)
        assert torch.equal(found(q), call(q)), rows
    if place != "an exponent":  # where small ones are products
        assert len(programs) == (1 if dynamic else 2)


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_rule_compares_a_position_with_a_size(strict):
    """The program holds for every length."""

    class Last(torch.nn.Module):
        def forward(self, q):
            return rg.attention(q, q, q, mask=(rg.key == q.shape[2] - 1) | (rg.key <= rg.query - q.shape[2] // 4))

    free = {"q": {2: torch.export.Dim("rows", min=3, max=64)}}
    program = torch.export.export(Last(), (torch.randn(2, 4, 8, D),), dynamic_shapes=free, strict=strict).module()
    for rows in (5, 8, 12):
        q = torch.randn(2, 4, rows, D)
        assert torch.equal(program(q), Last()(q))


def test_threads_compile_while_others_import():
    """Programs read no dict that other threads change."""
    done = threading.Event()

    def imports():
        for number in itertools.takewhile(lambda _: not done.is_set(), itertools.count()):
            sys.modules[f"made_for_a_test_{number}"] = types.ModuleType("made")
            time.sleep(0.0005)

    def program(left):
        return torch.compile(lambda q: rg.attention(q, q, q, mask=rg.causal() & rg.window(left)), backend="eager")(q)

    torch._dynamo.reset()
    q, importing = torch.randn(1, 2, 7, D), threading.Thread(target=imports)
    importing.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            found = list(threads.map(program, range(2, 6)))
    finally:
        done.set()
        importing.join()
        for name in [name for name in sys.modules if name.startswith("made_for_a_test_")]:
            del sys.modules[name]
    for left, out in enumerate(found, 2):
        assert torch.equal(out, rg.attention(q, q, q, mask=rg.causal() & rg.window(left)))


REFUSED = {
    "and": (lambda q: rg.attention(q, q, q, mask=lambda b, h, i, j: j <= i and i - j < 4), "has no truth value"),
    "shapes": (lambda q: rg.attention(q, q[..., :3], q), "q and k differ in depth"),
    "a negative window": (lambda q: rg.attention(q, q, q, mask=rg.window(-1)), "left is negative"),
    "a function": (
        lambda q: rg.attention(q, q, q, score=lambda s, b, h, i, j: torch.fft.fft(s)),
        "fft_fft cannot be used in an expression",
    ),
}


@by_name("call, message", REFUSED)
def test_what_is_refused(call, message):
    """The compiled call raises what the eager call raises, or torch's error with that sentence."""

    with pytest.raises((rg.Refused, torch._dynamo.exc.Unsupported), match=message):
        compiled(call)(torch.randn(2, 4, 9, D))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_operator_splits_the_graph(name, capfd):
    """It runs between two graphs, without a warning; fullgraph=True says what to do instead."""
    q = torch.randn(2, 4, 9, D)

    def program(q):
        return OTHERS[name](q) + 1

    assert torch.equal(silent(compiled(program, fullgraph=False), q), program(q))
    assert "Exception ignored" not in capfd.readouterr().err
    with pytest.raises(torch._dynamo.exc.Unsupported, match=f"regard: {name}.* cannot be in a graph"):
        compiled(program)(q)
