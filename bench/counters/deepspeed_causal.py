"""Shows that the profiler of DeepSpeed 0.19.8 (torch 2.13.0) counts the whole square of causal attention."""

import subject
from deepspeed.profiling.flops_profiler import get_model_profile
from shown import shown

macs = get_model_profile(subject.model(), args=[subject.ids()], print_profile=False, as_string=False)[1]
linear, attention = subject.exact()
square = subject.LAYERS * 4 * subject.TOKENS**2 * subject.WIDTH
shown(
    "deepspeed torch",
    {
        "DeepSpeed, twice the multiply-adds": 2 * macs,
        "linear and the whole square": linear + square,
        "rg.cost": linear + attention,
        "brute force": sum(subject.brute()),
    },
    wrong=2 * macs == linear + square,
    exact=(linear, attention) == subject.brute(),
)
