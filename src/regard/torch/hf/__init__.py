"""Transformers models on regard: `register()` once, then `attn_implementation="regard"`.

attention       the attention function that transformers calls; lazy_mask: its masks as rules
recorder        the calls of a model, kept while it runs
load_model      models and tokenizers from folders and names, refusals worded
architectures   every architecture of transformers beside its own code; tiny_models: how they are built small
"""

from ...common.public import belong
from .attention import attend, check, register
from .recorder import RecordedCall, record

Call = RecordedCall  # its older name

__all__ = ["Call", "RecordedCall", "attend", "check", "record", "register"]

belong(__name__)
