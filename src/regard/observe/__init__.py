"""Observation of the attention calls of any torch module while it runs: `profile`, `trace` and `record`; the lens and
the ledger observe calls by the same `Observer`.

observed_call  one attention call, its properties and the memory layout of its tensors; as a problem of regard
observer       observes the calls of regard and torch, and attention computed by separate products and a softmax
profiling      the cost of each call: figures, table, and the trace of torch's profiler
tracing        the inputs of each call and the first fault
recorder       records the calls of a transformers model on regard, whose rules it receives from torch/hf
handwritten    recognizes handwritten attention by following products through torch functions
"""

from .profiling import profile
from .tracing import trace

__all__ = ["profile", "trace"]
