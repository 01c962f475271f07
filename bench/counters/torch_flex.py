"""Shows that FlexAttention raises TypeError inside FlopCounterMode of torch 2.13.0."""

import warnings

import torch
from shown import pairs, shown
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.flop_counter import FlopCounterMode

import regard as rg
from regard.ledger.counting.pairs import pairs as counted

warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
TOKENS, HEADS, DEPTH = 128, 2, 16
q = torch.randn(1, HEADS, TOKENS, DEPTH)
blocks = create_block_mask(lambda batch, head, query, key: key <= query, None, None, TOKENS, TOKENS, device="cpu")
flex_attention(q, q, q, block_mask=blocks)  # outside it runs
try:
    with FlopCounterMode(display=False) as counter:
        flex_attention(q, q, q, block_mask=blocks)
    result = counter.get_total_flops()
except TypeError as error:
    result = f"TypeError: {error}"[:90]
regard = 4 * DEPTH * counted(rg.causal(), 1, HEADS, TOKENS, TOKENS)
brute = 4 * DEPTH * HEADS * pairs(TOKENS, TOKENS, lambda query, key: key <= query)
shown(
    "torch",
    {"FlexAttention, FlopCounterMode": result, "regard, causal": regard, "brute force, causal": brute},
    wrong=isinstance(result, str),
    exact=regard == brute,
)
