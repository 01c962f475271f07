"""Runs for the tests of storage."""

import dataclasses

import ml_dtypes
import numpy as np

import regard as rg
from regard.language.expr import key, query
from regard.lens import Axis, Call, Overview, Run, Segment, Step
from regard.lens.look import of_arrays
from regard.lens.storage.folder import open_run
from tests.support.refusals import refusal

HOSTILE = ("</script>", "\u202egnp.exe", "\ud800", "\x00", "🦊", "x" * 10_000, "", '"')


def example(**more) -> Run:
    """A small run of one call with rules."""
    numbers = np.random.default_rng(0).standard_normal((2, 4, 10, 8), dtype=np.float32)
    return of_arrays(*numbers, mask=rg.causal(), score=rg.alibi(4), **more)


def rich() -> Run:
    """A run with everything that a run can have."""
    random = np.random.default_rng(1)
    run = example(v=random.standard_normal((4, 10, 3), dtype=np.float32))
    (call,) = run.calls
    full = dataclasses.replace(
        call,
        q=call.q.astype(ml_dtypes.bfloat16),
        k=call.k.astype(np.float16)[:2],
        v=call.v[:2].astype(np.float64),
        layer=None,
        sinks=random.standard_normal((4, 1)),
        x=random.standard_normal((10, 32)),
        out=random.standard_normal((4, 3, 10)).swapaxes(1, 2),
        overview=Overview(*random.random((2, 4, 5, 5), np.float32), "sampled 1 row of 2"),
        engine="jit",
        start=3,
        scale=float("nan"),
        notes={
            "window": None,
            "scale": float("inf"),
            "kinds": ["a", {"b": -1}],
            "difference": np.float32("nan"),
            "deep": (1, 2),
        },
    )
    given = Call("weights only", 1, "keys", "keys", call.lse, given=call.weights(), mask=key <= query)
    picture = Axis(
        "patches",
        (*HOSTILE, "a"),
        (True, *[False] * 8),
        (2, 4),
        b"\x89PNG\r\n",
        (Segment(1, 4, "ä"), Segment(4, 9, "b")),
    )
    steps = (Step(8, ((" the", 0.75), ("</script>", 0.25))), Step(9, ()))
    return Run(
        "a model\ud800",
        "words\u2028",
        {"keys": run.axes["keys"], "patches": picture},
        (full, given),
        steps,
        {"nan": np.nan},
    )


def contents(call: Call) -> dict:
    """Every field of a call, arrays as (dtype, shape, bytes)."""

    def plain(value):
        if isinstance(value, np.ndarray):
            return value.dtype.name, value.shape, value.tobytes()
        if isinstance(value, Overview):
            return plain(value.share), plain(value.largest), value.exact
        return {name: plain(one) for name, one in value.items()} if isinstance(value, dict) else value

    return {field.name: plain(getattr(call, field.name)) for field in dataclasses.fields(call)}


# ---- what is refused -------------------------------------------------------------------------------------------------


def refused(folder, **more) -> str:
    """The sentences with which a folder is not opened."""
    return refusal(open_run, folder, **more)
