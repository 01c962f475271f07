"""FlexAttention compiled by torch.compile: rules as functions, empty blocks are skipped. It needs a C++ compiler."""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ..cases import CAP, Inputs
from . import Form, torch_arrays


def forms(inputs: Inputs, compiled: bool = True) -> list[Form]:
    case = inputs.case
    document, slopes = torch.from_numpy(inputs.document), torch.from_numpy(inputs.slopes)

    def rule(b, h, query, key):
        return case.allows(query, key, document)

    def softcap(score, b, h, query, key):
        return CAP * torch.tanh(score / CAP)

    def alibi(score, b, h, query, key):
        return score - slopes[h] * (query - key)

    blocks = None if case.pattern == "full" else create_block_mask(rule, None, None, case.Q, case.K, device="cpu")
    score = {None: None, "softcap": softcap, "alibi": alibi}[case.twist]
    call = flex_attention
    if compiled:
        torch.compiler.reset()  # the limit on recompilations counts all cases together
        call = torch.compile(flex_attention, dynamic=False)
    grouped = case.H != case.G
    return torch_arrays.forms(
        inputs, "", lambda q, k, v: call(q, k, v, score_mod=score, block_mask=blocks, enable_gqa=grouped)
    )
