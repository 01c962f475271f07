"""Observation of the attention calls of any torch module while it runs: `profile` and `trace`.

observed_call  one attention call, its properties, and the memory layout of its tensors
observer       observes the calls of regard and torch, and attention computed by separate products and a softmax
describe       a call as a problem of regard: rules, engine, cost
profiling      the cost of each call (profile_result: figures and table; timeline: the trace of torch's profiler)
tracing        the inputs of each call and the first fault (trace_result: the list; faults: the checks)
handwritten    recognizes handwritten attention by following products through torch functions
"""

from .profiling import profile
from .tracing import trace

__all__ = ["profile", "trace"]
