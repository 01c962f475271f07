"""Shows that half a window, min(n, w)/2 keys per row, is not what a causal window attends to."""

from shown import pairs, shown
from transformers import MistralConfig

import regard as rg

TOKENS, WINDOW, WIDTH, HEADS = 2048, 512, 64, 4
config = MistralConfig(
    hidden_size=WIDTH,
    num_attention_heads=HEADS,
    num_key_value_heads=HEADS,
    intermediate_size=128,
    num_hidden_layers=1,
    vocab_size=100,
    sliding_window=WINDOW,
)
regard = rg.cost(config, tokens=TOKENS).layers[0].attention.pairs // HEADS
brute = pairs(TOKENS, TOKENS, lambda query, key: 0 <= query - key < WINDOW)
half = TOKENS * min(TOKENS, WINDOW) // 2
shown(
    "transformers torch",
    {
        "half a window": half,
        "causal, no window": TOKENS * (TOKENS + 1) // 2,
        "w·n − w(w − 1)/2": WINDOW * TOKENS - WINDOW * (WINDOW - 1) // 2,
        "rg.cost": regard,
        "brute force": brute,
        "half a window, keys per row": str(half / TOKENS),
        "brute force, keys per row": f"{brute / TOKENS:.1f}",
    },
    wrong=half < 0.6 * brute,
    exact=regard == brute == WINDOW * TOKENS - WINDOW * (WINDOW - 1) // 2,
)
