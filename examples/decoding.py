"""Decodes three texts of different lengths with key/value caches, and compares the result with full forward passes.

The model is random, so the text is meaningless. The first layer has a sliding window of 100 tokens, whose cache is a
ring buffer with bounded size; the other layers attend to all tokens. Greedy decoding with the caches chooses the same
tokens as a forward pass over each complete text.

    python examples/decoding.py
"""

from __future__ import annotations

import numpy as np

import regard as rg

HEADS, GROUPS, DEPTH, WORDS = 8, 2, 32, 500
WIDTH = HEADS * DEPTH
WINDOWS = [100, None, None]  # the sliding window of each layer
SLOPES = rg.alibi_slopes(HEADS)  # ALiBi: a penalty proportional to the distance

random = np.random.default_rng(0)
words, answers = random.standard_normal((2, WORDS, WIDTH), dtype=np.float32)
layers = [
    [
        random.standard_normal((WIDTH, width), dtype=np.float32) / WIDTH**0.5
        for width in (WIDTH, GROUPS * DEPTH, GROUPS * DEPTH, WIDTH)
    ]
    for _ in WINDOWS
]


def heads(x: np.ndarray) -> np.ndarray:
    """Splits (texts, rows, heads · depth) into (texts, heads, rows, depth)."""
    return x.reshape(*x.shape[:2], -1, DEPTH).swapaxes(1, 2)


def model(tokens: np.ndarray, attend) -> np.ndarray:
    """The logits of every row, (texts, rows, words). attend(layer, q, k, v) computes the attention of a layer."""
    x = words[tokens]
    for number, (to_q, to_k, to_v, to_x) in enumerate(layers):
        normal = x / np.sqrt(np.square(x).mean(-1, keepdims=True))
        q, k, v = (heads(normal @ weights) for weights in (to_q, to_k, to_v))
        x = x + attend(number, q, k, v).swapaxes(1, 2).reshape(x.shape) @ to_x
    return x @ answers.T


def main() -> tuple[list[list[int]], list[int]]:
    """The decoded texts, and for each the number of tokens that a full forward pass also chooses."""
    lengths = np.array([230, 64, 5])
    prompts = random.integers(0, WORDS, (3, lengths.max()))  # padded on the right
    caches = [rg.KVCache(GROUPS, DEPTH, batch=3, window=window) for window in WINDOWS]

    def cached(rows=None):
        def attend(layer, q, k, v):
            caches[layer].append(k, v, rows=rows)
            return caches[layer].attend(q, mask=rg.causal(), score=rg.alibi(SLOPES))

        return attend

    logits = model(prompts, cached(lengths))
    texts = [list(prompt[:length]) for prompt, length in zip(prompts, lengths)]
    newest = logits[np.arange(3), lengths - 1].argmax(-1)
    for _ in range(200):
        for text, token in zip(texts, newest):
            text.append(token)
        newest = model(newest[:, None], cached())[:, -1].argmax(-1)

    def whole(layer, q, k, v):
        window = rg.causal() if WINDOWS[layer] is None else rg.window(WINDOWS[layer])
        return rg.attention(q, k, v, mask=window, score=rg.alibi(SLOPES))

    agreed = []
    for number, text in enumerate(texts):
        again = model(np.array([text]), whole)[0].argmax(-1)
        begin = lengths[number]
        agreed.append(int((again[begin - 1 : -1] == text[begin:]).sum()))
        print(f"text {number}: prompt of {begin} tokens, {agreed[-1]} of 200 new tokens agree with a full forward pass")
    for layer, cache in enumerate(caches):
        print(f"layer {layer}: {cache}, {len(cache.held(0))} cached positions of the first text")
    return texts, agreed


if __name__ == "__main__":
    main()
