"""Writing: a model goes on from prompts, token by token, over caches of what it has seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ...common.errors import Reason, Refused
from ...language.masks import count, whole
from .sampling import Sampling
from .stops import Stops

__all__ = ["generate", "stream"]


def generate(model, prompts, *, tokens: int, **how: Any) -> list[list[int]]:
    """What the model writes after each prompt: lists of new tokens, the prompts not repeated.

    token ~ softmax(logits of the last row / temperature), of the tokens that top_k, top_p and min_p leave

    prompts: sequences of tokens, of any lengths; what is shorter is not padded in the caches. tokens: at most so many
    new ones for each. greedy, temperature, top_k, top_p, min_p: see `Sampling`. stop, decode: see `Stops`; the tokens
    that complete a stop are the last. seed: prompt i draws from a generator of its own, seeded with seed + i, so that
    its tokens do not depend on the other prompts; None takes a seed from torch's generator.

    Refused, with all reasons at once: prompts that the model cannot read, more tokens than learned positions, dropout.

    >>> from regard.models import Config, LanguageModel
    >>> model = LanguageModel(Config(vocabulary=256, d_model=32, layers=1, heads=2)).eval()
    >>> [len(text) for text in generate(model, [b"A long time ago", b"So"], tokens=5, top_k=20, seed=1)]
    [5, 5]
    """
    prompts = list(prompts)
    steps = stream(model, prompts, tokens=tokens, **how)
    texts: list[list[int]] = [[] for _ in prompts]
    for number, token in steps:
        texts[number].append(token)
    return texts


def stream(
    model,
    prompts,
    *,
    tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    greedy: bool = False,
    stop: Iterable = (),
    decode: Callable[[list[int]], str] | None = None,
    seed: int | None = None,
) -> Iterator[tuple[int, int]]:
    """`generate`, each token as soon as it is chosen: pairs (number of the prompt, token).

    >>> from regard.models import Config, LanguageModel
    >>> model = LanguageModel(Config(vocabulary=256, d_model=32, layers=1, heads=2)).eval()
    >>> [number for number, token in stream(model, [b"A", b"B"], tokens=2, greedy=True)]
    [0, 1, 0, 1]
    """
    reasons: list[Reason] = []

    def checked(make, *args, **kwargs):
        try:
            return make(*args, **kwargs)
        except Refused as refused:
            reasons.extend(refused.reasons)

    sampling = checked(Sampling, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, greedy=greedy)
    ends = checked(Stops, stop, decode)
    most = checked(count, tokens, "generate", "tokens")
    first = None if seed is None else checked(whole, seed, "generate", "seed")
    texts = checked(_read, model, prompts, most or 0)
    if reasons:
        raise Refused("generate", reasons)
    if greedy:
        return _written(model, texts, most, sampling, ends, [])
    first = int(torch.randint(1 << 62, ())) if first is None else first
    chances = [torch.Generator().manual_seed((first + number) % (1 << 64)) for number in range(len(texts))]
    return _written(model, texts, most, sampling, ends, chances)


def _written(model, prompts, most: int, sampling: Sampling, ends: Stops, chances: list) -> Iterator[tuple[int, int]]:
    """The loop: choose a token for each sequence that still writes, let go of those that are done, ask the model
    again.
    """
    if not prompts or not most:
        return
    writing = list(range(len(prompts)))
    texts: list[list[int]] = [[] for _ in prompts]
    cache = model.cache(len(prompts))
    logits = _first(model, prompts, cache)
    for step in range(most):
        chance = None if sampling.greedy else torch.stack([_chance(chances[number]) for number in writing])
        chosen = sampling(logits, chance).tolist()
        for number, token in zip(writing, chosen, strict=True):
            texts[number].append(token)
            yield number, token
        done = [row for row, number in enumerate(writing) if ends(texts[number])]
        if len(done) == len(writing) or step == most - 1:
            return
        if done:
            for each in cache:
                each.drop(done)
            writing = [number for row, number in enumerate(writing) if row not in done]
        newest = torch.tensor([[texts[number][-1]] for number in writing], device=logits.device)
        logits = _next(model, newest, cache)


@torch.no_grad()
def _first(model, prompts: list[list[int]], cache) -> torch.Tensor:
    """Logits (B, V) of the last token of each prompt; the cache holds them all."""
    rows = torch.tensor([len(prompt) for prompt in prompts])
    longest = int(rows.max())
    device = next(model.parameters()).device
    padded = torch.tensor([prompt + [0] * (longest - len(prompt)) for prompt in prompts], device=device)
    hidden = model.hidden(padded, cache=cache, rows=None if bool((rows == longest).all()) else rows.numpy())
    return model.head(hidden[torch.arange(len(prompts), device=device), (rows - 1).to(device)])


@torch.no_grad()
def _next(model, newest: torch.Tensor, cache) -> torch.Tensor:
    """Logits (B, V) after one token more for each sequence (B, 1)."""
    return model.head(model.hidden(newest, cache=cache)[:, -1])


def _chance(generator: torch.Generator) -> torch.Tensor:
    return torch.rand((), generator=generator, dtype=torch.float64)


def _read(model, prompts, tokens) -> list[list[int]]:
    """The prompts as lists of tokens, or all reasons why the model cannot go on from them."""
    config, reasons = model.config, []
    if model.training and config.dropout:
        reasons.append(
            Reason(
                "a model that drops weights does not write",
                given=f"dropout={config.dropout}, in training",
                expected="a model in evaluation",
                fix="call model.eval()",
            )
        )
    texts: list[list[int]] = []
    for number, prompt in enumerate(prompts):
        try:
            given = torch.as_tensor(list(prompt) if isinstance(prompt, bytes) else prompt)
        except (TypeError, ValueError, RuntimeError):
            given = torch.zeros((), dtype=torch.bool)
        readable = given.ndim == 1 and not given.dtype.is_floating_point and given.dtype != torch.bool
        if not readable or isinstance(prompt, str):
            mend = (
                "encode the text with the model's vocabulary"
                if isinstance(prompt, str)
                else "one prompt alone is [prompt]"
            )
            if given.numel() == 0 and not isinstance(prompt, str):
                mend = "begin with a token, such as the end of a text"
            reasons.append(
                Reason(
                    f"prompt {number} is no sequence of tokens",
                    given=f"{prompt!r:.60}",
                    expected="at least one whole number",
                    fix=mend,
                )
            )
            continue
        text = given.tolist()
        outside = [token for token in text if not 0 <= token < config.vocabulary]
        if outside:
            reasons.append(
                Reason(
                    f"prompt {number} holds tokens that the model does not know",
                    given=f"{outside[0]}",
                    expected=f"0 … {config.vocabulary - 1}",
                    fix="encode it with the model's own vocabulary",
                )
            )
        if config.longest is not None and len(text) + tokens > config.longest:
            reasons.append(
                Reason(
                    f"prompt {number} leaves no room for what is to be written",
                    given=f"{len(text)} tokens and {tokens} new ones",
                    expected=f"{config.longest} positions, as learned",
                    fix="ask for fewer tokens, or cut the prompt",
                )
            )
        texts.append(text)
    if reasons:
        raise Refused("generate", reasons)
    return texts
