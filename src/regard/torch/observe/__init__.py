"""What attention calls of any torch module are like, seen while it runs.

calls          sees them: of regard, of torch, and those written out as products and a softmax
described      what each asks, in regard's terms: problem, plan, operations
profiling      what each costs (profile_result: the figures; timeline: the trace of torch's profiler)
tracing        what each was given, and the first that goes wrong (trace_result: the list; faults: what can be wrong)
lineage        which tensor was made of which
"""

from .profiling import profile
from .tracing import trace

__all__ = ["profile", "trace"]
