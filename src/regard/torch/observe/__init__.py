"""What attention calls of any torch module are like, observed while it runs.

observed_call  one of them: what was seen of it, and what was found out about it (layout: how its tensors lie)
observer       sees them: of regard, of torch, and those written out as products and a softmax
describe       what each asks, in regard's terms: problem, plan, operations
profiling      what each costs (profile_result: the figures; timeline: the trace of torch's profiler)
tracing        what each was given, and the first that goes wrong (trace_result: the list; faults: what can be wrong)
handwritten    which tensor was made of which, so that attention written out is recognised
"""

from .profiling import profile
from .tracing import trace

__all__ = ["profile", "trace"]
