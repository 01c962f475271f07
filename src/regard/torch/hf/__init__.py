"""Transformers models on regard: call `register()` once, then use `attn_implementation="regard"`.

attention       the attention function that transformers calls, and whether the weights of a call are wanted
lazy_mask       its masks as expressions; packed documents
cache           caches that append keys and values in place
divided         the same where ranks hold parts of a sequence, or some of the heads
readiness       checks that a model can run on regard, and which arguments reach its attention; quiet: no messages
load_model      loads models and tokenizers from folders and hub ids
tiny_models     small random models of every architecture, for audits and tests
"""

from ...common.optional import requires_extra
from ...common.public import belong

with requires_extra("regard.torch.hf", "hf"):
    from ...observe.recorder import RecordedCall, record
    from .attention import attend, check, register
    from .cache import Cache

__all__ = ["Cache", "RecordedCall", "attend", "check", "record", "register"]

belong(__name__)
