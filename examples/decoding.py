"""Decode three texts of different lengths with a small model, token by token, and check it against the whole at once.

The model is random, so the text is nonsense; what counts is that nothing is computed twice and nothing differs: the
last layers see everything, the first a window of 100 tokens, whose cache is a ring that stops growing.

    python examples/decoding.py
"""

from __future__ import annotations

import numpy as np

import regard as rg

HEADS, GROUPS, DEPTH, WORDS = 8, 2, 32, 500
WIDTH = HEADS * DEPTH
WINDOWS = [100, None, None]  # of each layer
SLOPES = rg.alibi_slopes(HEADS)  # ALiBi: nearer keys count more, wherever the text has got to

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
    """(texts, rows, heads · depth) as (texts, heads, rows, depth)."""
    return x.reshape(*x.shape[:2], -1, DEPTH).swapaxes(1, 2)


def model(tokens: np.ndarray, attend) -> np.ndarray:
    """The logits of every row, (texts, rows, words). attend(layer, q, k, v) is the attention of a layer."""
    x = words[tokens]
    for number, (to_q, to_k, to_v, to_x) in enumerate(layers):
        normal = x / np.sqrt(np.square(x).mean(-1, keepdims=True))
        q, k, v = (heads(normal @ weights) for weights in (to_q, to_k, to_v))
        x = x + attend(number, q, k, v).swapaxes(1, 2).reshape(x.shape) @ to_x
    return x @ answers.T


def main() -> tuple[list[list[int]], list[int]]:
    """The texts, and how many tokens of each the whole text at once chooses too."""
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
        print(f"text {number}: {begin} tokens given, {agreed[-1]} of 200 chosen as the whole text at once chooses them")
    for layer, cache in enumerate(caches):
        print(f"layer {layer}: {cache}, of the first text {len(cache.held(0))} positions held")
    return texts, agreed


if __name__ == "__main__":
    main()
