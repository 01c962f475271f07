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
from tests.support.lanes import sweep

B, H, G, Q, K, D = 2, 4, 2, 6, 9, 8
GENERATOR = torch.Generator().manual_seed(0)
doc = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
docb = torch.stack([doc, doc.flip(0)])
npdoc = doc.numpy()
slopes = torch.rand(H, generator=GENERATOR)
bias = torch.randn(H, Q, K, generator=GENERATOR)
ln = torch.tensor([7, 9])
cap = torch.tensor(3.0)
W, T, F, A = rg.causal() & rg.window(4), rg.table(doc), rg.documents(doc), rg.alibi(slopes)
S = (T[rg.query] == 1) | (T[rg.query] * T[rg.query] > T[rg.key] + T[rg.query])

RULES = {
    "doc[q]==doc[k]": lambda: {"mask": lambda b, h, i, j: doc[i] == doc[j]},
    "doc[b,i]": lambda: {"mask": lambda b, h, i, j: docb[b, i] == docb[b, j]},
    "slopes[h]": lambda: {"score": lambda s, b, h, i, j: s - slopes[h] * (i - j)},
    "bias[h,i,j]": lambda: {"score": lambda s, b, h, i, j: s + bias[h, i - 3, j]},
    "table": lambda: {"mask": rg.table(doc)[rg.query] == rg.table(doc)[rg.key]},
    "documents 2": lambda: {"mask": rg.documents(docb) & rg.causal()},
    "documents lengths": lambda: {"mask": rg.documents(lengths=[3, 3, 3])},
    "lengths": lambda: {"mask": rg.lengths(ln)},
    "alibi n": lambda: {"score": rg.alibi(H)},
    "alibi(x.exp)": lambda: {"score": rg.alibi(slopes.exp())},
    "prefix": lambda: {"mask": rg.prefix(ln)},
    "global": lambda: {"mask": rg.causal() | rg.global_tokens(torch.tensor([0, 2]))},
    "strided": lambda: {"mask": rg.strided(3)},
    "softcap": lambda: {"score": rg.softcap(3.0, rg.alibi(slopes))},
    "softcap tensor": lambda: {"score": rg.softcap(cap)},
    "relative": lambda: {"score": rg.relative(torch.arange(7.0) / 7)},
    "t5": lambda: {"score": rg.t5_buckets(torch.ones(32, H), bidirectional=True)},
    "gate": lambda: {"score": rg.gate(bias.sigmoid())},
    "bias": lambda: {"score": rg.bias(bias, query_start=3)},
    "tensor score": lambda: {"score": bias * 2},
    "tensor mask": lambda: {"mask": bias > 0},
    "numpy closure": lambda: {"mask": lambda b, h, i, j: npdoc[i] == npdoc[j]},
    "numpy documents": lambda: {"mask": rg.documents(npdoc)},
    "outer rules": lambda: {"mask": W & F, "score": A},
    "outer rules with a shared part": lambda: {
        "mask": S | (rg.key < 1),
        "score": A + rg.where(S, 1.0, T[rg.key] * T[rg.key]),
    },
    "mixed": lambda: {"mask": (W | rg.documents(doc)) & (rg.key != 2)},
    "where": lambda: {"score": lambda s, b, h, i, j: torch.where(i - j < 3, s, s - slopes[h])},
    "method": lambda: {"score": lambda s, b, h, i, j: s - (i - j).abs().to(torch.float32) * 0.1},
    "i*tensor": lambda: {"score": lambda s, b, h, i, j: s + j * slopes[0]},
    "logical": lambda: {"mask": lambda b, h, i, j: torch.logical_and(j <= i, torch.abs(i - j) < 4)},
    "rg funcs": lambda: {
        "score": rg.where(rg.key < 3, rg.exp(rg.score * 0.1), rg.clip(rg.score, -1.0, 1.0))
        + rg.relu(rg.score)
        + rg.softplus(rg.score)
    },
    "dense": lambda: {"mask": rg.dense(bias[0] > 0)},
    "blocks": lambda: {"mask": rg.blocks(torch.ones(3, 3, dtype=torch.bool).tril(), 3)},
    "shift": lambda: {"mask": (rg.key >> 1) <= (rg.query >> 1)},
    "pow": lambda: {"score": rg.score - 0.1 * (rg.query - rg.key) ** 2},
    "neg index": lambda: {"score": lambda s, b, h, i, j: s + bias[h, -1, j]},
    "inf": lambda: {"score": rg.where(rg.key <= rg.query, rg.score, float("-inf"))},
    "start tensor": lambda: {"mask": rg.causal(), "query_start": torch.tensor([1, 2])},
    "sinks np": lambda: {"sinks": np.ones(H, np.float32)},
    "True": lambda: {"mask": True},
    "h%2": lambda: {"mask": lambda b, h, i, j: (h % 2 == 0) | (j <= i)},
}
MORE_RULES = {
    "outer table": lambda: {"mask": T[rg.query] == T[rg.key]},
    "documents": lambda: {"mask": rg.documents(doc)},
    "lengths list": lambda: {"mask": rg.lengths([7, 9])},
    "alibi": lambda: {"score": rg.alibi(slopes)},
    "prefix int": lambda: {"mask": rg.prefix(3)},
    "numpy table": lambda: {"mask": rg.table(npdoc)[rg.query] == rg.table(npdoc)[rg.key]},
    "tanh": lambda: {"score": lambda s, b, h, i, j: 2 * torch.tanh(s / 2)},
    "tensor*i": lambda: {"score": lambda s, b, h, i, j: s + slopes[0] * (j)},
    "neg index of one axis": lambda: {"score": lambda s, b, h, i, j: s + slopes[-1]},
    "everything": lambda: {"mask": rg.everything()},
    "b in where": lambda: {"mask": lambda b, h, i, j: (b == 0) | (j <= i)},
}


def tensors():
    generator = torch.Generator().manual_seed(1)
    shapes = (B, H, Q, D), (B, G, K, D), (B, G, K, D)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def silent(call):
    """The result of a call that may not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return call()


@pytest.mark.parametrize("rules", [*RULES.values(), *sweep(*MORE_RULES.values())], ids=[*RULES, *MORE_RULES])
def test_rules_in_one_graph(rules, capfd):
    """fullgraph=True, without a warning, bit-identical to the eager call."""

    def program(q, k, v):
        return rg.attention(q, k, v, **rules())

    given = tensors()
    torch._dynamo.reset()
    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")

    assert torch.equal(silent(lambda: compiled(*given)), program(*given))
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
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend, dynamic=dynamic)
    for ids in (doc, doc.flip(0), doc // 2):
        x = torch.randn(B, H, K, D)
        found = []
        for step in (model, compiled):
            model.zero_grad()
            out = step(x, ids)
            out.square().sum().backward()
            found.append([out.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
        for mine, theirs in zip(*found, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_sizes_in_rules():
    """A number from a shape may be part of a rule, also when the shape changes."""

    def call(q):
        return rg.attention(q, q, q, mask=rg.window(q.shape[-2] // 2), score=rg.alibi(q.shape[-3]))

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for rows in (5, 9, 12, 5):
        q = torch.randn(2, 4, rows, D)
        assert torch.equal(compiled(q), call(q))


COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
SIZES = {
    "in arithmetic": lambda compare, n: compare((rg.key * n + rg.query // n - n) % (n - 2), n % 3),
    "in functions": lambda compare, n: rg.window(n // 3) | compare(rg.clip(rg.key, 1, n - 2), rg.query),
    "an exponent": lambda compare, n: compare(rg.key ** (n - 4), 1 + rg.query),
    "in a table": lambda compare, n: compare(rg.table(torch.arange(20))[n - 3 - rg.key], rg.query),
    "a position": lambda compare, n: compare(rg.key, n - 1),
    "the size first": lambda compare, n: compare(n - 1, rg.key),
    "an expression": lambda compare, n: compare(rg.query + rg.key, int(n)),
    "a float": lambda compare, n: compare(rg.key, n / 2),
    "inside where": lambda compare, n: rg.where(compare(rg.key, n // 2), rg.query, 0) > 1,
    "in a callable": lambda compare, n: lambda b, h, i, j: compare(j, n - 1) | (i == j),
    "batch": lambda compare, n: compare(rg.batch, n - 5),
}


@pytest.mark.parametrize("dynamic", [None, *sweep(True)])
@pytest.mark.parametrize("place", SIZES)
def test_a_rule_compares_a_position_with_a_size(place, dynamic):
    """Every comparison, at lengths that the compiler leaves open: the rule of the length, in one program for all."""
    programs = []

    def backend(graph, _):
        programs.append(graph)
        return graph.forward

    def call(compare, q):
        rule = SIZES[place](compare, q.shape[-2])
        return rg.attention(q, q, q, mask=rule if callable(rule) else rule | (rg.key == rg.query))

    for compare in COMPARISONS:
        torch._dynamo.reset()
        programs.clear()
        compiled = torch.compile(call, fullgraph=True, dynamic=dynamic, backend=backend)
        for rows in (5, 6, 7, 12):
            q = torch.randn(2, 4, rows, D)
            assert torch.equal(compiled(compare, q), call(compare, q)), (compare, rows)
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
        for number in itertools.count():
            sys.modules[f"made_for_a_test_{number}"] = types.ModuleType("made")
            time.sleep(0.0005)
            if done.is_set():
                break

    def program(left):
        return torch.compile(lambda q: rg.attention(q, q, q, mask=rg.causal() & rg.window(left)), backend="eager")

    torch._dynamo.reset()
    importing = threading.Thread(target=imports)
    importing.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            q = torch.randn(1, 2, 7, D)
            found = list(threads.map(lambda left: program(left)(q), range(2, 6)))
    finally:
        done.set()
        importing.join()
        for name in [name for name in sys.modules if name.startswith("made_for_a_test_")]:
            del sys.modules[name]
    for left, out in enumerate(found, 2):
        assert torch.equal(out, rg.attention(q, q, q, mask=rg.causal() & rg.window(left)))


REFUSED = {
    "and": (lambda q: rg.attention(q, q, q, mask=lambda b, h, i, j: j <= i and i - j < 4), "has no truth value"),
    "if": (lambda q: rg.attention(q, q, q, mask=lambda b, h, i, j: j if i > 3 else i), "has no truth value"),
    "a score as mask": (lambda q: rg.attention(q, q, q, mask=rg.score), "a mask must be a condition"),
    "shapes": (lambda q: rg.attention(q, q[..., :3], q), "q and k differ in depth"),
    "a name": (lambda q: rg.attention(q, q, q, mask="causal"), r"write mask=regard.causal\(\)"),
    "a negative window": (lambda q: rg.attention(q, q, q, mask=rg.window(-1)), "left is negative"),
    "an engine": (lambda q: rg.attention(q, q, q, engine="nope"), "no such engine"),
    "a function": (
        lambda q: rg.attention(q, q, q, score=lambda s, b, h, i, j: torch.fft.fft(s)),
        "fft_fft cannot be used in an expression",
    ),
}


@pytest.mark.parametrize("program", REFUSED)
def test_what_is_refused(program):
    """The compiled call raises what the eager call raises, or torch's error with that sentence."""
    call, message = REFUSED[program]
    torch._dynamo.reset()

    with pytest.raises((rg.Refused, torch._dynamo.exc.Unsupported), match=message):
        torch.compile(call, fullgraph=True, backend="aot_eager")(torch.randn(2, 4, 9, D))


OTHERS = {
    "attention_stats": lambda q: rg.attention_stats(q, q, of=["entropy"])["entropy"] + 1,
    "attention_weights": lambda q: rg.attention_weights(q, q, rows=0) + 1,
    "attention_backward": lambda q: rg.attention_backward(q, q, q, q).q + 1,
    "explain": lambda q: q + len(str(rg.explain(q, q, q))),
    "merge": lambda q: rg.merge([rg.attention_with_lse(q, q, q)] * 2)[0] + 1,
    "KVCache": lambda q: _decoded(q) + 1,
}


def _decoded(q):
    cache = rg.KVCache(4, D, batch=2)
    cache.append(q, q)
    return cache.attend(q)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_operator_splits_the_graph(name, capfd):
    """It runs between two graphs, without a warning; fullgraph=True says what to do instead."""
    q = torch.randn(2, 4, 9, D)
    torch._dynamo.reset()

    assert torch.equal(silent(lambda: torch.compile(OTHERS[name], backend="aot_eager")(q)), OTHERS[name](q))
    assert "Exception ignored" not in capfd.readouterr().err
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=f"regard: {name}.* cannot be in a graph"):
        torch.compile(OTHERS[name], backend="aot_eager", fullgraph=True)(q)
