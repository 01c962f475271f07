"""Calls on other devices, checked on the CPU: planning from stand-ins, rules as torch operations, blocks, the choice of
engine.
"""

import functools
import re

import numpy as np
import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from hypothesis import assume, given
from torch._dynamo.testing import CompileCounter

import regard as rg
from bench import card
from regard.engines import dispatch, gpu
from regard.engines.gpu import flex, sdpa
from regard.engines.gpu.flex import SIZE, block_mask
from regard.engines.gpu.lowering import lower, whole_of
from regard.engines.plan import plan
from regard.engines.reference import attention as reference
from regard.language.analysis import evaluate
from regard.language.checks.arguments import Arguments
from regard.language.expr import Op
from regard.language.operators import OPERATORS
from regard.language.problem import Problem
from tests.engines.jit.usual import large_examples
from tests.support.lanes import by_name
from tests.support.refusals import reasons_of, refusing
from tests.support.strategies import problems
from tests.support.tensors import law, normal, qkv, tensors

VARIABLES = ("score", "batch", "head", "query", "key")
random_problems = large_examples(12, 12)


# ---- rules as torch operations ---------------------------------------------------------------------------------------


SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, 1.5, 3.0, -7.25, 1e9, -3e9, 2.0**31, 40.0, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_mean_what_the_law_says(name):
    """Each operator gives the numbers of the law, for whole numbers and floats, zero, infinities and NaN."""
    zero, takes = np.zeros((1, 1), int), OPERATORS[name].takes
    values = dict(zip(VARIABLES, (np.array(SPECIAL)[:, None], zero, zero, np.arange(-9, 8)[:, None], np.arange(-6, 6))))
    for x, y in ((rg.query, rg.key), (rg.score, rg.to_float(rg.key) / 2)):
        parts = zip(takes, (x, y, x + y))
        rule = Op(name, *({"b": x > y, "i": rg.to_int(rg.clip(each, -9, 9))}.get(kind, each) for kind, each in parts))
        wanted = np.broadcast_to(evaluate(rule, values), (17, 12))
        dtype = {"bool": torch.bool, "int": torch.int32, "float": torch.float64}[rule.kind]
        found = lower(rule, VARIABLES, {}, torch.float64, torch.int32, dtype)(*map(torch.from_numpy, values.values()))
        np.testing.assert_allclose(found.expand(17, 12), wanted, rtol=1e-12, atol=1e-300)


def test_whole_numbers_are_wide_where_they_must_be():
    """Positions are 32 bits unless the bounds of a product pass them; then nothing wraps around."""
    q = torch.zeros(1, 1, 1, 4, device="meta").expand(1, 1, 100_000, 4)
    assert whole_of(gpu.DeviceCall.of(q, q, q, mask=rg.causal()).problem) == torch.int32
    assert whole_of(gpu.DeviceCall.of(q, q, q, mask=rg.query * rg.key % 7 == 0).problem) == torch.int64


def test_what_decides_by_a_hair_is_decided_in_float64():
    """A step in a float32 score falls where the law's float64 lets it fall, at each of a million positions."""
    rule = rg.score + rg.floor(rg.to_float(rg.key) * 0.1 / 0.7)
    keys = np.arange(1 << 20)
    found = lower(rule, VARIABLES, {}, torch.float32, torch.int32, torch.float32)
    zero = torch.zeros(1)
    given = (zero, zero.int(), zero.int(), zero.int(), torch.from_numpy(keys))
    np.testing.assert_array_equal(found(*given).numpy(), np.floor(keys * 0.1 / 0.7).astype(np.float32))


# ---- FlexAttention ---------------------------------------------------------------------------------------------------


@random_problems
@given(problems(dtypes=(np.float64,)))
def test_flex_means_what_the_law_says(case):
    """FlexAttention's own evaluation of our rules and blocks, rescaled for sinks, is the law: out and lse, empty rows
    too.
    """
    call = gpu.DeviceCall.of(**tensors(case))
    assume(0 not in call.q.shape[:3] and call.k.shape[2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
        out, lse = flex.attend(call, torch_flex.flex_attention)
    wanted, wanted_lse = reference.forward(Problem.of(**case.kwargs))
    np.testing.assert_allclose(out, wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(lse, wanted_lse, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_torch_compile_reads_our_rules(monkeypatch):
    """Dynamo follows rules, tables, starts and blocks without a break, and gives gradients to all, a table that is read
    twice too.

    FlexAttention has no backward pass on the CPU but the plain one of its operator, which is used here.
    """
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)
    of_float64 = functools.partial(normal, dtype=torch.float64)
    *qkv_, near, sinks = leaves = [*qkv(dtype=torch.float64, B=1), of_float64(4, 33, seed=4), of_float64(4, seed=5)]
    for leaf in leaves:
        leaf.requires_grad_()
    table = rg.table(near, "near")
    rules = {
        "mask": rg.causal() & rg.documents(np.arange(150) // 60),
        "score": rg.softcap(5.0) + table[rg.head, rg.query - rg.key] * table[rg.head, rg.key % 33],
        "sinks": sinks,
    }
    torch.compiler.reset()
    call = gpu.DeviceCall.of(*qkv_, gradients=True, **rules)
    out, lse = flex.attend(call, torch.compile(flex._run, backend="eager", fullgraph=True))
    dout, dlse = of_float64(*out.shape, seed=6), of_float64(*lse.shape, seed=7)
    found = torch.autograd.grad((out * dout).sum() + (lse * dlse).sum(), leaves)
    wanted = reference.backward(Problem.of(*qkv_, gradients=True, **rules), dout.numpy(), dlse.numpy())
    for gradient, its in zip(found, (*wanted[:3], wanted.tables[table], wanted.sinks[:, 0]), strict=True):
        np.testing.assert_allclose(gradient, its, rtol=1e-8, atol=1e-8)


def test_another_batch_of_documents_is_no_new_program():
    """Contents of tables, starts and blocks are inputs: the compiled code is built once for rules of one text."""
    torch.compiler.reset()
    q, k, v = qkv(B=1, Q=130, K=130)
    counted = CompileCounter()
    run = torch.compile(flex._run, backend=counted, fullgraph=True)
    for seed, start in ((0, 0), (1, 5)):
        ids = np.sort(np.random.default_rng(seed).integers(0, 4, 130))
        flex.attend(gpu.DeviceCall.of(q, k, v, mask=rg.causal() & rg.documents(ids), query_start=start), run)
    assert counted.frame_count == 1
    assert flex.compiled("key <= query", "score") is flex.compiled("key <= query", "score")
    codes = [
        flex.compiled(mask, "score")._torchdynamo_orig_callable.__code__ for mask in ("key <= query", "key < query")
    ]
    assert codes[0] is not codes[1]


# ---- blocks ----------------------------------------------------------------------------------------------------------


def sets(blocks, kind):
    """The listed blocks of a kind as booleans (…, lines, others)."""
    count, index = (getattr(blocks, f"{kind}_{part}") for part in ("num_blocks", "indices"))
    there = torch.arange(index.shape[-1]) < count[..., None]
    return torch.zeros(index.shape, dtype=torch.int64).scatter_add_(-1, index.long(), there.long()) > 0


@random_problems
@given(problems(dtypes=(np.float32,), rows=400, depth=1))
def test_blocks_are_those_of_the_mask(case):
    """Against torch's own block mask, made from every pair: what is called full is full, what is left out is empty, and
    the lists by rows and by keys agree."""
    call = gpu.DeviceCall.of(**tensors(case))
    assume(call.problem.mask is not None and 0 not in call.q.shape[:3] and call.k.shape[2])
    mask, _ = flex.rules(call)
    ours = block_mask(call.problem, torch.device("cpu"), mask)
    B, H, Q, K = (call.problem.dims[name] for name in "BHQK")
    theirs = torch_flex.create_block_mask(mask, B, H, Q, K, device="cpu")
    full, some, all_full, all_some = (sets(blocks, kind) for blocks in (ours, theirs) for kind in ("full_kv", "kv"))
    assert not (full & some).any()
    assert not (full & ~all_full).any()
    assert not ((all_some | all_full) & ~(full | some)).any()
    assert torch.equal(sets(ours, "full_q").mT, full)
    assert torch.equal(sets(ours, "q").mT, some)
    assert ours.shape[-2:] == (Q, K)


def test_a_hundred_thousand_rows_are_planned_along_the_boundary():
    """No pair is evaluated: the mask is never called, and full blocks are counted in closed form."""
    n = 100_000
    q = torch.zeros(1, 1, 1, 8).expand(1, 1, n, 8)
    call = gpu.DeviceCall.of(q, q, q, mask=rg.causal())
    found = block_mask(call.problem, torch.device("cpu"), None)
    tiles = -(-n // SIZE)
    assert found.full_kv_num_blocks.sum() == (tiles - 1) * (tiles - 2) // 2  # the last row of blocks is not whole
    assert found.kv_num_blocks.sum() == 2 * tiles - 1
    near = block_mask(gpu.DeviceCall.of(q, q, q, mask=rg.window(256)).problem, torch.device("cpu"), None)
    assert near.kv_num_blocks.sum() + near.full_kv_num_blocks.sum() == 3 * tiles - 3


# ---- calls without numbers -------------------------------------------------------------------------------------------


def test_floats_on_a_device_are_not_read_for_the_plan():
    """Numbers that stay on the device are unknown: a mask that reads them is mixed everywhere, never wrongly empty or
    full.
    """
    far = torch.zeros(64, device="meta")
    mask = rg.causal() & (rg.table(far, "far")[rg.key] < 1)
    q = torch.zeros(1, 64, 8, device="meta")
    found = plan(Problem.of(np.zeros((1, 64, 8)), np.zeros((1, 64, 8)), None, mask=mask, device="meta"), 16, 16)
    assert found.counts == {"full": 0, "mixed": 10, "empty": 6}
    assert gpu.DeviceCall.of(q, q, q, mask=mask).tables[rg.table(far, "far")] is far


def test_tensors_of_different_devices_are_refused():
    """Everything that a call reads is on one device, or on the CPU; the message names what is not."""
    far, near = torch.zeros(1, 8, 8, device="meta"), torch.zeros(1, 8, 8)
    for function, k, rule in ((gpu.DeviceCall.of, far, None), (rg.attention, near, rg.bias(far))):
        with refusing("on a different device\n  given     meta\n  expected  cpu"):
            function(near, k, near, score=rule)


def test_wrong_kinds_are_refused_together():
    """Arrays mixed with tensors and unsupported dtypes: the error lists every problem."""
    q = torch.zeros(1, 8, 8)
    reasons = reasons_of(gpu.DeviceCall.of, q, np.zeros((1, 8, 8), np.float32), q.long())
    assert [(reason.what, reason.given) for reason in reasons] == [
        ("k is not a tensor", "ndarray"),
        ("v cannot be read", "torch.int64, torch.strided"),
    ]


# ---- the choice of engine --------------------------------------------------------------------------------------------

WINDOW = {"mask": rg.window(9)}
CHOICES = {
    "plain": ({}, "sdpa"),
    "causal": ({"mask": rg.causal()}, "sdpa"),
    "window": (WINDOW, "flex"),
    "sinks": ({"sinks": normal(4)}, "flex"),
    "softcap": ({"mask": rg.causal(), "score": rg.softcap(30)}, "flex"),
    "dropout": ({"dropout": 0.1, "seed": 1}, "tiles"),
    "before the keys": ({"mask": rg.causal(), "query_start": -3}, "flex"),
}


@by_name("rules, wanted", CHOICES)
def test_auto_takes_the_library_kernel_that_fits(rules, wanted, monkeypatch):
    """Unmasked and causal calls use SDPA, other rules FlexAttention, dropout the tiles; a call for lse skips SDPA."""
    monkeypatch.setattr(flex, "DEVICES", ("cpu",))
    call = gpu.DeviceCall.of(*qkv(), **rules)
    assert gpu.choose(call)[0] == wanted
    assert gpu.choose(call, lse=True)[0] == ("flex" if wanted == "sdpa" else wanted)


def test_auto_keeps_what_is_masked_from_leaking(monkeypatch):
    """NaN behind a mask would pass through a library kernel, so the tiles take it; without a mask everything is
    attended anyway.
    """
    monkeypatch.setattr(flex, "DEVICES", ("cpu",))
    q, k, v = qkv()
    v[0, 0, -1, 0] = torch.nan
    for rules, engine in (({"mask": rg.causal()}, "tiles"), (WINDOW, "tiles"), ({}, "sdpa")):
        assert gpu.choose(gpu.DeviceCall.of(q, k, v, **rules))[0] == engine


def test_named_engines_run_or_refuse_with_all_reasons():
    """A named engine says everything that it cannot do; engines of the CPU say how to get there."""
    call = gpu.DeviceCall.of(*qkv(), mask=rg.window(9), score=rg.softcap(3), dropout=0.5, seed=3)
    assert [reason.given for reason in reasons_of(gpu.choose, call, "sdpa")] == [
        "SDPA's kernels do not support a score",
        "SDPA's kernels do not support seeded dropout",
        "SDPA's kernels support only the causal mask; any other would be a Q × K matrix",
    ]
    for name, words in (
        ("flex", "FlexAttention is not compiled for cpu.*does not support dropout"),
        ("jit", r"engine 'jit' computes on the CPU.*tensor.cpu\(\)"),
        ("tile", "did you mean 'tiles'"),
    ):
        with refusing(words):
            gpu.choose(call, name)


@pytest.mark.parametrize(("Q", "start"), [(50, None), (7, None), (1, 30), (20, 11), (20, 0), (5, 60)])
def test_sdpa_means_what_the_law_says(Q, start):
    """Wherever the rows begin among the keys, SDPA gets the keys that they attend to; without a mask, all."""
    q, k, v = qkv(H=2, G=2, Q=Q, K=50, dtype=torch.float64)
    for rules in ({"mask": rg.causal(), "query_start": start}, {}):
        call = gpu.DeviceCall.of(q, k, v, **rules)
        assert sdpa.why_not(call, lse=False) == []
        np.testing.assert_allclose(sdpa.attend(call)[0], law(q, k, v, **rules)[0], rtol=1e-12, atol=1e-12)


def test_the_functions_people_call_go_to_the_device(monkeypatch):
    """attention, lse, weights and statistics of tensors elsewhere are computed here; shapes and gradients are the
    caller's.
    """
    monkeypatch.setattr(dispatch, "elsewhere", lambda _: True)
    q, k, v = (x[0] for x in qkv(Q=40, K=40))
    rules = {"mask": rg.window(9), "score": rg.alibi(4)}
    for found, wanted in zip(rg.attention_with_lse(q, k, v, **rules), law(q, k, v, **rules), strict=True):
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found, wanted[0], rtol=1e-4, atol=1e-5)
    weights = rg.attention_weights(q, k, rows=slice(None, None, -1), keys=3, **rules)
    wanted = reference.weights(Problem.of(q, k, None, **rules), np.arange(40)[::-1], np.array([3]))[0, ..., 0]
    np.testing.assert_allclose(weights, wanted, rtol=1e-4, atol=1e-5)
    assert rg.attention_weights(q[0], k[0], rows=9, keys=3).shape == ()
    assert rg.attention_stats(q, k, of="entropy", **rules).entropy.shape == (4, 40)
    reason = "engine  tiles: torch operations, tile by tile; SDPA's kernels do not support a score"
    assert str(rg.explain(q, k, v, **rules)).splitlines()[3].startswith(reason)
    assert torch.autograd.grad(rg.attention(q, k, v.requires_grad_(), **rules).sum(), v)[0].shape == v.shape
    with refusing("no such engine for tensors on a device"):
        rg.attention_stats(q, k, of="entropy", engine="jit")


# ---- the check on a card ---------------------------------------------------------------------------------------------


def check_card(*check, **sizes) -> None:
    """The check on a card covers every engine and problem, and finds nothing wrong."""
    lines = list(card.right(*check, **sizes))
    assert {line["engine"] for line in lines} == {"sdpa", "flex", "tiles"}
    assert {line["problem"] for line in lines} == card.problems(4, 100).keys()
    assert [line for line in lines if not line["right"]] == []


def test_the_check_on_a_card_finds_everything_right_here(monkeypatch):
    """The twenty problems of the check, out, lse and gradients, on each engine: FlexAttention in its plain form, SDPA,
    tiles.
    """
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)
    monkeypatch.setattr(flex, "DEVICES", ("cpu",))
    monkeypatch.setattr(flex, "compiled", lambda *_: torch_flex.flex_attention)
    check_card("cpu", ["float32"], rows=100, depth=8)


class Far(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cpu = False
    device = torch.device("cuda", 0)

    def numpy(self):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def test_functions_of_the_cpu_name_the_device():
    """Tensors of a GPU are refused by what computes on the CPU only: the words say where they are, and what to do."""
    q = torch.zeros(2, 4, 8).as_subclass(Far)
    cache = rg.KVCache(2, 8)
    for call in ((rg.attention_backward, q, q, q, q), (cache.append, q[None], q[None])):
        for reason in reasons_of(*call):
            assert reason.given == "torch.float32 on cuda:0"
            assert re.match(r"move it.*: \w+\.cpu\(\)", reason.fix)


def test_explain_counts_the_bytes_of_the_tensors():
    """The placeholders of a call on a device take no memory, its tensors do."""
    q, k = torch.zeros(1, 4, 100, 16), torch.zeros(1, 1, 50, 16).expand(1, 2, 50, 16)
    assert gpu.explained(q, k, k, Arguments(mask=rg.causal())).read == {"q": 25_600, "k": 3200, "v": 3200}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_kernel_that_reads_tables_for_pairs_is_loaded_in_one_stage(dtype):
    """Three stages of 16-bit kernels do not fit the shared memory of an H200 with them; others keep torch's choice."""
    q, one = torch.zeros(1, 4, 64, 16, dtype=dtype), {} if dtype == torch.float32 else {"num_stages": 1}
    for score, options in (
        (rg.bias(np.zeros((4, 64, 64), np.float32)), one),
        (rg.relative(np.zeros((4, 65), np.float32)), one),
        (rg.alibi(4), {}),
        (None, {}),
    ):
        assert flex._options(gpu.DeviceCall.of(q, q, q, score=score)) == options


def test_the_check_replaces_no_file_of_the_user(tmp_path, monkeypatch):
    """What is in the way is said before anything is measured, which needs a card; an earlier file of measurements is
    replaced.
    """
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    notes, earlier = tmp_path / "notes.txt", tmp_path / "card.json"
    notes.write_text("mine")
    earlier.write_text('{\n "card": "any"\n}')
    refusals = {
        notes: "the file exists and is not a file of measurements of regard",
        tmp_path / "missing" / "card.json": "the file cannot be written",
        earlier: "no GPU available",
    }
    for path, words in refusals.items():
        with refusing(words):
            card.main(["--out", str(path)])
    assert notes.read_text() == "mine"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")
def test_everything_is_right_on_this_card():
    """The same problems on the compiled kernels, in every dtype."""
    check_card("cuda", list(card.DTYPES))
