"""Shows what 2·L·G·D·n, and the same without the 2, give for caches of windows and latents (transformers 5.23.0)."""

from shown import shown
from transformers import DeepseekV2Config, Gemma3TextConfig, GPT2Config

import regard as rg

BYTES, TOKENS, LONG = 2, 1024, 32768

# GPT-2: every layer keeps keys and values of all tokens.
gpt2 = rg.cost(GPT2Config(), tokens=TOKENS, dtype="bfloat16").memory.kv_cache.value
gpt2_brute = sum(2 * 768 * BYTES for layer in range(12) for key in range(TOKENS))
without_two = 768 * 12 * TOKENS * BYTES

# Gemma 3 1B: of 26 layers, every sixth has no window. The next token is at position LONG.
gemma = Gemma3TextConfig(
    hidden_size=1152,
    intermediate_size=6912,
    num_hidden_layers=26,
    num_attention_heads=4,
    num_key_value_heads=1,
    head_dim=256,
    sliding_window=512,
)
windowed = rg.cost(gemma, tokens=LONG, dtype="bfloat16").memory.kv_cache.value
read = [sum(layer % 6 == 5 or LONG - key < 512 for key in range(LONG)) for layer in range(26)]
windowed_brute = sum(read) * 2 * 256 * BYTES
windowed_naive = 2 * 26 * 1 * 256 * LONG * BYTES

# Attention of DeepSeek-V2-Lite: a latent of 512 and 64 rotary numbers, for all 16 heads. Experts keep no cache.
deepseek = DeepseekV2Config(
    hidden_size=2048,
    intermediate_size=1408,
    num_hidden_layers=27,
    num_attention_heads=16,
    num_key_value_heads=16,
    q_lora_rank=None,
    first_k_dense_replace=27,
)
latent = rg.cost(deepseek, tokens=TOKENS, dtype="bfloat16").memory.kv_cache.value
latent_brute = sum((512 + 64) * BYTES for layer in range(27) for key in range(TOKENS))
latent_naive = 2 * 27 * 16 * 128 * TOKENS * BYTES

shown(
    "transformers torch",
    {
        "GPT-2, without the 2": without_two,
        "GPT-2, rg.cost": gpt2,
        "GPT-2, brute force": gpt2_brute,
        "Gemma 3 1B, windows ignored": windowed_naive,
        "Gemma 3 1B, rg.cost": windowed,
        "Gemma 3 1B, brute force": windowed_brute,
        "DeepSeek-V2-Lite, latent ignored": latent_naive,
        "DeepSeek-V2-Lite, rg.cost": latent,
        "DeepSeek-V2-Lite, brute force": latent_brute,
    },
    wrong=without_two * 2 == gpt2 and windowed_naive > 5 * windowed and latent_naive > 7 * latent,
    exact=(gpt2, windowed, latent) == (gpt2_brute, windowed_brute, latent_brute),
)
