"""GPU checks and benchmarks: `python -m bench.card`. Accuracy, planning and speed, optionally as JSON.

    python -m bench.card --out card.json

right     about twenty problems on every engine that supports them: out, lse and gradients against the float64 reference
planning  the blocks of regard against torch's create_block_mask, eager and compiled
speed     forward, and forward with backward, against SDPA and hand-written FlexAttention
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from regard.common.dtypes import FLOATS
from regard.common.errors import Refused, refuse
from regard.common.files.output import check_output, replacing
from regard.common.optional import requires_extra
from regard.engines.reference import attention as reference
from regard.language.analysis import evaluate
from regard.language.checks.arguments import Arguments
from regard.language.expr import Expr, query, table
from regard.language.masks import causal, documents, lengths, prefix, strided, window
from regard.language.problem import Problem
from regard.language.scores import alibi, bias, relative, softcap, t5_buckets

from .accuracy import SUMS, TOLERANCE

with requires_extra("bench.card", "torch"):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    from torch.nn.functional import scaled_dot_product_attention

    from regard.engines import gpu
    from regard.engines.gpu.entry import ENGINES
    from regard.engines.gpu.flex import block_mask, rules

__all__ = ["main", "planning", "right", "speed"]

DTYPES = {name: FLOATS[name].torch for name in TOLERANCE}
LONG = (4096, 16384, 65536)
WIDTH = 1024  # of the window that is timed
TOO_LARGE = 2**31  # pairs; an n × n mask of this size or larger is not built


def noise(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def problems(heads: int, rows: int) -> dict[str, dict[str, Any]]:
    """The problems that are checked: masks, scores, start positions, sinks and dropout, by name."""
    near = {
        name: noise(*shape, seed=5)
        for name, shape in (("relative", (heads, 65)), ("t5", (32, heads)), ("bias", (heads, rows, rows)))
    }
    return {
        "plain": {},
        "causal": {"mask": causal()},
        "scale": {"mask": causal(), "scale": 0.3},
        "window": {"mask": window(70)},
        "both sides": {"mask": window(40, 30)},
        "prefix": {"mask": prefix([50, 90])},
        "strided": {"mask": strided(9)},
        "documents": {"mask": causal() & documents(lengths=[rows // 3, rows // 5, rows])},
        "lengths": {"mask": lengths([rows // 2, rows - 3])},
        "empty rows": {"mask": causal() & (query % 3 != 0)},
        "nothing": {"mask": query < 0},
        "chunk": {"mask": causal(), "query_start": [-20, 17]},
        "softcap": {"mask": causal(), "score": softcap(5.0)},
        "alibi": {"mask": causal(), "score": alibi(heads)},
        "relative": {"score": relative(near["relative"])},
        "t5": {"score": t5_buckets(near["t5"], bidirectional=True)},
        "bias": {"score": bias(near["bias"])},
        "read twice": {"score": softcap(9.0, relative(near["relative"], relative(near["relative"])))},
        "sinks": {"mask": window(70), "sinks": noise(heads, seed=6)},
        "several sinks": {"mask": causal(), "sinks": noise(heads, 3, seed=7)},
        "dropout": {"mask": causal(), "dropout": 0.2, "seed": 11},
    }


def right(device: str, dtypes: list[str], rows: int = 300, depth: int = 64) -> Iterator[dict[str, Any]]:
    """One line per problem, dtype and engine that supports it: the largest errors of out, lse and gradients against
    float64.
    """
    heads = 4
    for dtype in dtypes:
        kind = DTYPES[dtype]
        q, k, v, dout = (
            torch.from_numpy(noise(2, groups, rows, depth, seed=seed)).to(kind)
            for seed, groups in ((1, heads), (2, 2), (3, 2), (4, heads))
        )
        dlse = torch.from_numpy(noise(2, heads, rows, seed=8))
        for name, options in problems(heads, rows).items():
            wide = Problem.of(*(x.double() for x in (q, k, v)), **options)
            out, lse = reference.forward(wide)
            wanted = reference.backward(wide, dout.double().numpy(), np.where(np.isfinite(lse), dlse, 0))
            given = [x.detach().to(device).requires_grad_() for x in (q, k, v)]
            on_card = options | ({"sinks": torch.from_numpy(options["sinks"]).to(device)} if "sinks" in options else {})
            call = gpu.DeviceCall.of(*given, gradients=True, **on_card)
            for engine in ENGINES:
                for whole in (True, False):  # with lse, or without it if the engine does not support it
                    if gpu.why_not(call, engine, whole) or (not whole and not gpu.why_not(call, engine, True)):
                        continue
                    line: dict[str, Any] = {"problem": name, "dtype": dtype, "engine": engine}
                    found = gpu.attend(given[0], given[1], given[2], Arguments(**on_card), engine, lse=whole)
                    if whole:
                        expected = wanted
                        line["lse"] = _error(found[1], lse)
                        loss = (found[0] * dout.to(device)).sum() + (
                            torch.where(found[1].isfinite(), found[1], 0) * dlse.to(device)
                        ).sum()
                    else:
                        expected = reference.backward(wide, dout.double().numpy())
                        loss = (found[0] * dout.to(device)).sum()
                    line["out"] = _error(found[0], out)
                    gradients = torch.autograd.grad(loss, given)
                    line["gradients"] = max(map(_error, gradients, expected[:3]))
                    limit = TOLERANCE[dtype]
                    line["right"] = (
                        line["out"] <= limit and line.get("lse", 0) <= limit and line["gradients"] <= SUMS * limit
                    )
                    yield line


def _error(found: torch.Tensor, wanted: np.ndarray) -> float:
    """The largest difference; infinite if one is finite and the other is not."""
    numbers = found.detach().double().cpu().numpy()
    finite = np.isfinite(wanted)
    if not (np.isfinite(numbers) == finite).all():
        return float("inf")
    return float(np.abs(numbers[finite] - wanted[finite]).max(initial=0))


def timed_cases(n: int, heads: int) -> dict[str, tuple[dict[str, Any], Callable | None, Callable | None]]:
    """The timed cases: the arguments of regard, and hand-written mask_mod and score_mod."""
    ids = np.repeat(np.arange(8), -(-n // 8))[:n]
    return {
        "causal": ({"mask": causal()}, _causal, None),
        "window": ({"mask": window(WIDTH)}, lambda b, h, q, kv: (q >= kv) & (q - kv < WIDTH), None),
        "documents": ({"mask": causal() & documents(ids)}, _in_document(ids), None),
        "softcap": (
            {"mask": causal(), "score": softcap(30.0)},
            _causal,
            lambda s, b, h, q, kv: 30 * torch.tanh(s / 30),
        ),
        "alibi": ({"mask": causal(), "score": alibi(heads)}, _causal, _sloped(heads)),
        "sinks": ({"mask": causal(), "sinks": torch.zeros(heads)}, None, None),
    }


def _causal(b, h, q, kv):
    return q >= kv


def _in_document(ids: np.ndarray) -> Callable:
    document = torch.from_numpy(ids).to(_device())

    def mask(b, h, q, kv):
        return (q >= kv) & (document[q] == document[kv])

    return mask


def _sloped(heads: int) -> Callable:
    slopes = torch.tensor([2.0 ** (-8 * (i + 1) / heads) for i in range(heads)], device=_device())

    def score(s, b, h, q, kv):
        return s - slopes[h] * (q - kv)

    return score


def planning(device: str, sizes: tuple[int, ...] = LONG) -> Iterator[dict[str, Any]]:
    """Seconds to compute the blocks of a mask: by regard from the plan, by torch from every pair, eager and compiled.
    None if the mask is too large.
    """
    compiled = torch.compile(create_block_mask)
    for n in sizes:
        q = torch.zeros(1, 1, 1, 64, device=device).expand(1, 1, n, 64)
        for name in ("causal", "window", "documents"):
            options, mask, _ = timed_cases(n, 8)[name]

            def ours(options=options, q=q):
                changing = {
                    "mask": options["mask"] & (query >= table(np.zeros(1, np.int64))[0])
                }  # a table that may change prevents caching of the plan
                call = gpu.DeviceCall.of(q, q, q, **changing)
                mask, _ = rules(call)
                assert mask is not None
                return block_mask(call.problem, q.device, mask)

            def theirs(make, mask=mask, n=n):
                return make(mask, None, None, n, n, device=device)

            yield {
                "case": name,
                "rows": n,
                "ours": _seconds(device, ours),
                "create_block_mask": _seconds(device, lambda: theirs(create_block_mask)) if n * n < TOO_LARGE else None,
                "compiled": _seconds(device, lambda: theirs(compiled)) if device != "cpu" else None,
            }


def speed(device: str, sizes: tuple[int, ...] = LONG, heads: int = 16, depth: int = 128) -> Iterator[dict[str, Any]]:
    """Seconds of a call in bfloat16, forward and forward with backward: regard, SDPA and hand-written FlexAttention."""
    for n in sizes:
        tensors = [
            torch.randn(1, heads, n, depth, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
        ]
        for name, (options, mask, score) in timed_cases(n, heads).items():
            on_card = {
                key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in options.items()
            }
            engine = gpu.choose(gpu.DeviceCall.of(*tensors, gradients=True, **on_card))[0]
            line: dict[str, Any] = {"case": name, "rows": n, "engine": engine}
            for peer, run in _runs(tensors, on_card, mask, score, engine).items():
                with torch.no_grad():
                    line[peer] = _seconds(device, run)
                line[f"{peer}, with backward"] = _seconds(device, functools.partial(_with_backward, run, tensors))
            yield line


def _runs(tensors: list[torch.Tensor], options: dict[str, Any], mask, score, engine: str) -> dict[str, Callable]:
    """The functions that compute a case: regard, regard with an explicit engine (no check for NaN), SDPA, and
    hand-written FlexAttention.
    """
    q, k, v = tensors
    n, device = q.shape[2], q.device
    runs: dict[str, Callable] = {
        "regard": lambda: gpu.attend(q, k, v, Arguments(**options))[0],
        "regard, explicit engine": lambda: gpu.attend(q, k, v, Arguments(**options), engine)[0],
    }
    if mask is _causal and score is None:
        runs["sdpa"] = lambda: scaled_dot_product_attention(q, k, v, is_causal=True)
    elif score is None and mask is not None and n * n < TOO_LARGE:
        dense = torch.from_numpy(_dense(options["mask"], n)).to(device)
        runs["sdpa"] = lambda: scaled_dot_product_attention(q, k, v, attn_mask=dense)
    if mask is not None and n * n < TOO_LARGE:
        blocks = create_block_mask(mask, None, None, n, n, device=device)
        torch.compiler.reset()  # otherwise its limit counts all cases together
        compiled = torch.compile(flex_attention)
        runs["flex"] = lambda: compiled(*tensors, score_mod=score, block_mask=blocks)
    return runs


def _with_backward(run: Callable, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(run().sum(), tensors)


def _dense(mask: Expr, n: int) -> np.ndarray:
    place = np.arange(n)
    return np.broadcast_to(evaluate(mask, {"batch": 0, "head": 0, "query": place[:, None], "key": place}), (n, n))


def _seconds(device: str, run: Callable) -> float:
    """The median of seven calls after two warm-up calls."""
    times = []
    for number in range(9):
        begin = time.perf_counter()
        run()
        if device != "cpu":
            torch.cuda.synchronize()
        if number > 1:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def main(arguments: list[str]) -> int:
    """Runs everything; returns 0 if all results are right."""
    parser = argparse.ArgumentParser(prog="python -m bench.card", description="Check and time regard on a GPU.")
    parser.add_argument("--out", type=Path, help="write all measurements to this file, as JSON")
    parser.add_argument("--quick", action="store_true", help="check that everything works: few rows, no usable timings")
    given = parser.parse_args(arguments)
    if given.out:
        check_output("bench", "--out", given.out, what="a file of measurements", mark='"card": ')
    if not torch.cuda.is_available():
        raise refuse(
            "bench",
            "no GPU available",
            f"torch {torch.__version__} without CUDA devices",
            "a CUDA device that torch can use",
            "run it on a machine with a GPU, with torch built for CUDA",
        )
    sizes = (512,) if given.quick else LONG
    found: dict[str, Any] = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name, lines in (
        ("right", right("cuda", list(DTYPES))),
        ("planning", planning("cuda", sizes)),
        ("speed", speed("cuda", sizes)),
    ):
        found[name] = []
        for line in lines:
            found[name].append(line)
            print(
                name,
                *(
                    f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}"
                    for key, value in line.items()
                ),
                flush=True,
            )
        if given.out:
            with replacing("bench", "--out", given.out) as draft:  # after each part, in case a later one crashes
                draft.write_text(json.dumps(found, indent=1) + "\n")
    wrong = [line for line in found["right"] if not line["right"]]
    print(f"{len(found['right'])} checks, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Refused as refused:
        sys.exit(str(refused))
