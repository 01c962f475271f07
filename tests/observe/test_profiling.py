"""Profile: operations as torch counts them, times that contain what was planted, memory that is really held, traces
that open.
"""

import gzip
import json
import math
import re
import runpy
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import regard as rg
import regard.torch
from regard.common import call_hooks as watch
from regard.observe import profiling
from regard.observe.profiling import profile
from regard.observe.tracing import trace
from tests import ROOT
from tests.observe.heads import WIDE, B, H, Heads
from tests.support.refusals import refusing, whats
from tests.support.tensors import compiled

ONCE = {"repeats": 1, "warmup": 1, "peak": 100.0}
PLANTED = 0.15  # seconds: more than a busy machine takes from a call of microseconds


class Slow(torch.autograd.Function):
    """The same numbers; the way back sleeps."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, d):
        time.sleep(PLANTED)
        return d


def rows(n=6):
    return torch.randn(B, n, WIDE)


def once(model, inputs=None, **more):
    """The profile of one run of a model, on rows unless it takes something else."""
    return profile(model, rows() if inputs is None else inputs, **ONCE, **more)


@pytest.mark.parametrize("attend", [F.scaled_dot_product_attention, rg.attention])
def test_operations_are_those_that_torch_counts(attend):
    """Of dense attention, torch's own counter counts as many operations, forward and back; both take time."""
    q, k, v = (torch.randn(2, 3, n, 8, requires_grad=True) for n in (5, 7, 7))
    with FlopCounterMode(display=False) as counter:
        scores = q @ k.mT
        again = counter.get_total_flops()
        out = scores.softmax(-1) @ v
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    back = again + counter.get_total_flops()  # no kernel keeps the scores
    found = once(attend, (q, k, v), backward=True)
    (call,) = found.calls
    assert (call.flops, call.backward_flops, found.flops) == (forward, back, forward + back)
    assert 0 < call.backward < 1


def math_only(q, k, v):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


CAUSAL = torch.ones(6, 6, dtype=torch.bool).tril()
FLOATS = torch.zeros(6, 6).masked_fill(~CAUSAL, -torch.inf)


@pytest.mark.parametrize(
    "attend",
    [
        partial(F.scaled_dot_product_attention, is_causal=True),
        partial(F.scaled_dot_product_attention, attn_mask=CAUSAL),
        partial(F.scaled_dot_product_attention, attn_mask=FLOATS),
        lambda q, k, v: (q @ k.mT).masked_fill(~CAUSAL, -torch.inf).softmax(-1) @ v,
        partial(rg.attention, mask=rg.causal()),
        partial(rg.attention, mask=lambda b, h, i, j: j <= i),
    ],
)
def test_only_allowed_pairs_are_counted(attend):
    """A causal mask halves the operations, however it was said: 21 of 36 pairs, 2 · (D + E) each."""
    (call,) = once(Heads(attend)).calls
    assert call.dims == {"B": 2, "H": 4, "G": 4, "Q": 6, "K": 6, "D": 4, "E": 4}
    assert call.flops == 2 * (4 + 4) * 2 * 4 * 21


def test_the_kernel_that_ran_is_named():
    """Engine and reason: regard's own choice, torch's choice among its kernels, and whether the matrix was built."""
    out, matrix = B * 64 * WIDE * 4, B * H * 64 * 64 * 4
    for engine, builds, attend in (
        ("jit", False, rg.attention),
        ("reference", True, partial(rg.attention, engine="reference")),
        ("SDPA flash", False, F.scaled_dot_product_attention),
        ("SDPA math", True, math_only),
        ("written out", True, lambda q, k, v: (q @ k.mT).softmax(-1) @ v),
    ):
        (call,) = once(Heads(attend), rows(64)).calls
        assert call.engine == engine and (call.modelled >= out + matrix) == builds
        assert engine != "reference" or call.why == "requested explicitly"


def test_memory_is_what_was_held():
    """What torch and NumPy held during a call: at least the output; a kernel that builds the matrix holds it, one that
    streams not.
    """
    out, matrix = B * 512 * WIDE * 4, B * H * 512 * 512 * 4
    for attend in (math_only, F.scaled_dot_product_attention, rg.attention):
        held = once(Heads(attend), rows(512)).calls[0].measured
        assert held >= matrix if attend is math_only else out <= held < matrix / 2


def test_times_contain_what_was_planted():
    """A call that sleeps takes as long; another layer does not; the whole contains both."""

    def sleepy(b, h, q, k):
        time.sleep(PLANTED)
        return k <= q

    slow, fast = Heads(partial(rg.attention, mask=sleepy)), Heads(F.scaled_dot_product_attention)
    found = profile(nn.Sequential(fast, slow), rows(), repeats=3, warmup=0, peak=100.0)
    first, second = found.calls
    assert (first.layer, second.layer, first.backward, second.backward) == ("0", "1", None, None)
    assert max(PLANTED, first.seconds) <= second.seconds and found.whole > PLANTED
    assert found.seconds == first.seconds + second.seconds
    assert found.share == pytest.approx(found.seconds / found.whole)


@pytest.mark.parametrize("place", ["before", "inside", "after"])
def test_the_way_back_is_timed(place):
    """Only steps of autograd that belong to the attention count, not those that lead to q or come from its output."""

    def attend(q, k, v):
        q = Slow.apply(q) if place == "before" else q
        scores = q @ k.mT
        out = (Slow.apply(scores) if place == "inside" else scores).softmax(-1) @ v
        return Slow.apply(out) if place == "after" else out

    (call,) = once(Heads(attend), backward=True).calls
    assert (call.backward >= PLANTED) == (place == "inside")
    assert call.total == call.seconds + call.backward


def test_share_of_peak():
    """The share is the rate over the peak that was given, or else over what this machine was measured to reach."""
    (call,) = profile(Heads(rg.attention), rows(), repeats=1, warmup=0, peak=2).calls
    assert call.share == call.rate / 2e9 and call.rate == call.flops / call.seconds
    (call,) = profile(Heads(rg.attention), rows(), repeats=1, warmup=0).calls
    assert call.limit == profiling._machine().of("float32") > 0
    assert profiling._machine().of("float64") == call.limit / 2


def test_what_compiled_code_computes_is_listed_without_a_time():
    """A call inside a compiled graph cannot be told apart: it is listed, without a time, and the notes say so."""
    attend = compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v))
    found = once(nn.Sequential(Heads(attend), Heads(rg.attention)))
    assert [call.engine for call in found.calls] == ["SDPA flash", "jit"]
    assert math.isnan(found.calls[0].seconds) and found.seconds == found.calls[1].seconds > 0
    assert "a call without a time runs inside compiled code" in str(found)


class Checkpointed(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False)


def test_recomputed_calls_are_calls():
    """Under gradient checkpointing attention is computed again on the way back, and listed again."""
    found = once(Checkpointed(Heads(rg.attention)), backward=True)
    assert [call.layer for call in found.calls] == ["layer", "layer"]


def test_a_cache_is_made_anew_for_every_run():
    """Inputs that the model changes are given as a function; every run then makes the same calls."""

    def step(cache, x):
        cache.append(x, x)
        return cache.attend(x, mask=rg.causal())

    def inputs():
        return rg.KVCache(heads=2, depth=8), torch.randn(1, 2, 5, 8)

    (call,) = profile(step, inputs, repeats=2, warmup=1, peak=1.0).calls
    assert (call.kind, call.dims["K"], call.flops) == ("regard.KVCache.attend", 5, 2 * 16 * 2 * 15)


def test_other_threads_are_not_watched():
    """What another thread computes meanwhile is none of the model's."""
    q = torch.randn(2, 6, 8)

    def attend(q, k, v):
        other = threading.Thread(target=rg.attention, args=(q.detach(), k.detach(), v.detach()))
        other.start()
        other.join()
        return rg.attention(q, k, v)

    assert len(once(attend, (q, q, q)).calls) == 1


# The text and the timeline --------------------------------------------------------------------------------------------


def test_the_text():
    """The table names layer, engine, sizes, times and shares; a model without attention is told so."""
    found = once(nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval())
    lines = [" ".join(line.split()) for line in str(found).splitlines()]
    number = r"[\d.]+ [µm]s"
    assert re.fullmatch(
        rf"TransformerEncoder: {number} a run forward \({number} watched\), median of 1; \d+ threads of torch", lines[0]
    )
    assert lines[2] == "# layer engine q · keys dtype time GFLOP GFLOP/s of peak memory modelled of the run"
    assert lines[4].startswith("0 layers.0.self_attn SDPA flash 2×2×6×8 · 2×6 float32 ")
    assert any(line.startswith("2 all") for line in lines)
    assert "SDPA flash: the kernel that torch chose" in lines and "torch's fused path" in lines[-1]
    assert "<pre" in found._repr_html_() and "layers.1.self_attn" in found._repr_html_()
    assert "no attention calls were observed" in str(once(nn.Linear(16, 16)))


def test_a_long_table_lists_the_longest_calls():
    """Of many calls those that take longest are listed; the sums are of all."""
    found = once(lambda x: [F.scaled_dot_product_attention(x, x, x) for _ in range(50)])
    text = str(found)
    assert re.search("\\n *50 +all ", text) and "10 faster calls are not listed" in text
    assert len(re.findall("SDPA math +1×2", text)) == 40
    assert found.flops == 50 * found.calls[0].flops


def test_the_trace_holds_layers_and_calls(tmp_path):
    """Every layer and call is a named range of the Chrome trace: a call lies within its layer, and all within the
    run.
    """
    begin = time.perf_counter()
    found = once(nn.Sequential(Heads(F.scaled_dot_product_attention), Heads(rg.attention)))
    took = 1e6 * (time.perf_counter() - begin)
    events = json.loads(found.save(tmp_path / "trace.json").read_text())["traceEvents"]
    ranges = {
        event["name"]: (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") == "user_annotation" and 0 < event["dur"] < took
    }
    assert ranges.keys() >= {"Sequential", "0", "1", "0.q", "0: torch SDPA #0", "1: regard.attention #1"}
    for inner, outer in {"0: torch SDPA #0": "0", "1: regard.attention #1": "1", "1": "Sequential"}.items():
        assert ranges[outer][0] <= ranges[inner][0] < ranges[inner][1] <= ranges[outer][1]
    assert ranges["0"][1] <= ranges["1: regard.attention #1"][0]
    assert found.timeline.events == events
    packed = found.save(tmp_path / "trace.json.gz").read_bytes()
    assert json.loads(gzip.decompress(packed))["traceEvents"] == events


def test_tensorboard_finds_its_file(tmp_path):
    """The name is <worker>.<time>.pt.trace.json in a new folder: what torch's own handler writes."""
    file = once(Heads(rg.attention)).tensorboard(tmp_path / "logs" / "run", worker="machine-1")
    assert re.fullmatch(r"machine-1\.\d+\.pt\.trace\.json", file.name)
    assert json.loads(file.read_text()).keys() >= {"traceEvents", "schemaVersion"}
    assert file.parent == tmp_path / "logs" / "run"


def test_what_cannot_be_saved(tmp_path):
    """A folder that is not there, a worker without a name, a file in place of a folder; what stood there stays."""
    found, file = once(Heads(F.scaled_dot_product_attention)), tmp_path / "file"
    file.write_text("mine")
    for save, wording in (
        (
            lambda: found.save(tmp_path / "nowhere" / "trace.json"),
            "the trace cannot be written there\n  given     '.*json'",
        ),
        (lambda: found.tensorboard(tmp_path, worker="a/b"), "not a valid worker name"),
        (lambda: found.tensorboard(file), "the log path is not a folder"),
    ):
        with refusing(wording):
            save()
    assert file.read_text() == "mine"


# Ranges of any torch profile ------------------------------------------------------------------------------------------


def test_any_torch_profile_shows_regards_calls():
    """Under torch.profiler every call of regard is a range with the sizes of q, k and v, without anybody asking for
    it.
    """
    q, k = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 9, 8)
    cache = rg.KVCache(heads=2, depth=8, batch=2)
    cache.append(k, k)
    with torch.profiler.profile() as profiler:
        rg.attention(q, k, k)
        rg.attention(q=q, k=k, v=k, mask=rg.causal())
        cache.attend(q, query_start=0)
    names = [event.name for event in profiler.events() if event.name.startswith("regard")]
    assert names == ["regard.attention (2, 4, 6, 8) (2, 2, 9, 8) (2, 2, 9, 8)"] * 2 + [
        "regard.KVCache.attend (2, 4, 6, 8)"
    ]


# The model ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [partial(once, backward=True), trace])
def test_the_model_is_left_as_it_was(run):
    """Profiled or traced: hooks, gradients that were there, buffers and random numbers are as before."""
    model = nn.Sequential(nn.BatchNorm1d(6), Heads(rg.attention), nn.Dropout(0.5)).train()
    x, before = rows(), torch.get_rng_state()
    model[1].q.weight.grad = torch.ones_like(model[1].q.weight)
    run(model, x)
    assert torch.equal(torch.get_rng_state(), before) and not model[0].running_mean.any()
    assert bool((model[1].q.weight.grad == 1).all()) and model[0].weight.grad is None
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_an_error_of_the_model_is_its_own():
    """What the model raises arrives as it is, and nothing stays behind."""
    model = Heads(rg.attention)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        once(model, torch.randn(2, 6, 15))
    assert watch.watchers == [] and not model._forward_hooks


def test_what_cannot_be_profiled():
    """What is not a model, runs or a speed, a compiled model, no gradients: the error lists every problem."""
    assert whats(profile, 3, rows(), repeats=0, warmup=-1, peak=math.nan) == [
        "not a model",
        "repeats is not a number of runs",
        "warmup is not a number of runs",
        "peak is not a positive number",
    ]
    model = Heads(rg.attention).requires_grad_(False)
    with refusing("a compiled model hides its calls\n  given     OptimizedModule"):
        once(torch.compile(model))
    with refusing("the output has no grad_fn"):
        once(model, backward=True)


def test_arrays():
    """A function of NumPy arrays is profiled too."""
    q = np.zeros((2, 5, 8), np.float32)
    (call,) = once(rg.attention, (q, q, q)).calls
    assert (call.engine, call.dtype, call.dims["Q"]) == ("jit", "float32", 5)


@pytest.mark.sweep
def test_the_example_runs(tmp_path, monkeypatch, capsys):
    """The example writes timelines that hold its model's layers, and finds the faults that it plants."""
    monkeypatch.setattr(sys, "argv", ["profiling.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / "profiling.py"))
    for name, kind in (("sdpa", "torch SDPA"), ("regard", "regard, for transformers")):
        events = json.loads((tmp_path / f"{name}.json").read_text())["traceEvents"]
        assert f"model.layers.1.self_attn: {kind} #1" in {event["name"] for event in events}
    printed = capsys.readouterr().out
    assert "model.layers.1.mlp.up_proj.weight holds NaN in 1 of 32,768 numbers, first at [7, 3]" in printed
    assert "the mask array does not fit\n  given     (6, 7)" in printed


def test_a_compiled_call_shows_under_the_operators_name():
    """Inside a compiled graph a call is one operator of torch's trace."""
    attend = compiled(lambda q: regard.torch.attention(q, q, q, mask=rg.causal()))
    q = torch.randn(1, 2, 8, 16)
    attend(q)
    with torch.profiler.profile() as profiler:
        attend(q)
    assert "regard::attention" in {event.name for event in profiler.events()}
