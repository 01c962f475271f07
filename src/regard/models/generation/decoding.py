"""Text generation: a model continues prompts token by token, with key/value caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import torch

from ...common.errors import Reason, Refused, refuse
from ...language.masks import count, whole
from ..encoder_decoder import Reading
from ..language_model import LanguageModel
from .sampling import Sampling
from .stops import Stops

Model: TypeAlias = LanguageModel | Reading
Prompt: TypeAlias = bytes | Sequence[int] | torch.Tensor


def generate(model: Model, prompts: Iterable[Prompt], *, tokens: int, **how: Any) -> list[list[int]]:
    """Generates a continuation of each prompt.

    Each token is drawn from softmax(logits of the last row / temperature), restricted to the tokens that top_k, top_p
    and min_p allow.

    Args:
        model: a `LanguageModel` in evaluation mode, or the result of `EncoderDecoder.reading`.
        prompts: sequences of token ids, which may differ in length.
        tokens: maximum number of new tokens per prompt.
        how: `temperature`, `top_k`, `top_p`, `min_p`, `greedy`, `stop`, `decode`, `seed` and `cache`, as for `stream`.

    Returns:
        The new tokens of each prompt, without the prompt.

    Raises:
        Refused: prompts that the model cannot read, more tokens than learned positions, active dropout, or invalid
            arguments, listing every problem.

    Examples:
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
    model: Model,
    prompts: Iterable[Prompt],
    *,
    tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    greedy: bool = False,
    stop: str | Iterable[str | Sequence[int]] = (),
    decode: Callable[[list[int]], str] | None = None,
    seed: int | None = None,
    cache: list[Any] | None = None,
) -> Iterator[tuple[int, int]]:
    """Generates continuations as `generate` does, and yields each token immediately.

    Args:
        model: a `LanguageModel` in evaluation mode, or the result of `EncoderDecoder.reading`.
        prompts: sequences of token ids, which may differ in length.
        tokens: maximum number of new tokens per prompt.
        temperature: divisor of the logits: below 1 sharpens the distribution, above 1 flattens it.
        top_k: sample from the k most probable tokens only.
        top_p: sample from the fewest tokens whose probabilities sum to at least p.
        min_p: sample from tokens that are at least p times as probable as the most probable one.
        greedy: always choose the most probable token.
        stop: sequences of tokens and strings that end a text. They are part of the generated tokens.
        decode: function from tokens to text; required for strings in `stop`.
        seed: prompt i is sampled with its own generator, seeded with seed + i, so its tokens do not depend on the
            other prompts. None: the seed is drawn from torch's global generator.
        cache: empty caches with a sequence for each prompt, such as rp.spread(model.cache(len(prompts))), whose
            positions are spread over processes. None: model.cache(len(prompts)).

    Returns:
        An iterator over pairs (index of the prompt, token).

    Raises:
        Refused: prompts that the model cannot read, more tokens than learned positions, active dropout, or invalid
            arguments, listing every problem.

    Examples:
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
    if cache is not None and texts is not None:
        checked(_check_cache, cache, len(texts))
    if reasons:
        raise Refused("generate", reasons)
    if greedy:
        return _decode(model, texts, most, sampling, ends, [], cache=cache)
    first = int(torch.randint(1 << 62, ())) if first is None else first
    generators = [torch.Generator().manual_seed((first + number) % (1 << 64)) for number in range(len(texts))]
    return _decode(model, texts, most, sampling, ends, generators, cache=cache)


def _decode(
    model: Model,
    prompts: list[list[int]],
    most: int,
    sampling: Sampling,
    ends: Stops,
    generators: list[torch.Generator],
    *,
    cache: list[Any] | None,
) -> Iterator[tuple[int, int]]:
    """The decoding loop: chooses a token for each active sequence, drops finished ones, and calls the model."""
    if not prompts or not most:
        return
    active = list(range(len(prompts)))
    texts: list[list[int]] = [[] for _ in prompts]
    cache = model.cache(len(prompts)) if cache is None else cache
    logits = _prefill(model, prompts, cache)
    for step in range(most):
        uniform = None if sampling.greedy else torch.stack([_uniform(generators[number]) for number in active])
        chosen = sampling(logits, uniform).tolist()
        for number, token in zip(active, chosen, strict=True):
            texts[number].append(token)
            yield number, token
        done = [row for row, number in enumerate(active) if ends(texts[number])]
        if len(done) == len(active) or step == most - 1:
            return
        if done:
            for each in cache:
                each.drop(done)
            active = [number for row, number in enumerate(active) if row not in done]
        newest = torch.tensor([[texts[number][-1]] for number in active], device=logits.device)
        logits = _next(model, newest, cache)


@torch.no_grad()
def _prefill(model: Model, prompts: list[list[int]], cache: list[Any]) -> torch.Tensor:
    """Logits (B, V) of the last token of each prompt; all prompts are appended to the cache."""
    rows = torch.tensor([len(prompt) for prompt in prompts])
    longest = int(rows.max())
    device = next(model.parameters()).device
    padded = torch.tensor([prompt + [0] * (longest - len(prompt)) for prompt in prompts], device=device)
    hidden = model.hidden(padded, cache=cache, rows=None if bool((rows == longest).all()) else rows.numpy())
    return model.head(hidden[torch.arange(len(prompts), device=device), (rows - 1).to(device)])


@torch.no_grad()
def _next(model: Model, newest: torch.Tensor, cache: list[Any]) -> torch.Tensor:
    """Logits (B, V) after one more token of each sequence, (B, 1)."""
    return model.head(model.hidden(newest, cache=cache)[:, -1])


def _uniform(generator: torch.Generator) -> torch.Tensor:
    return torch.rand((), generator=generator, dtype=torch.float64)


def _check_cache(cache: list[Any], prompts: int) -> None:
    """Rejects caches that do not begin with these prompts."""
    growing = [each for each in cache if hasattr(each, "append")]  # not those of the sources of an encoder
    counts, filled = {len(each) for each in growing}, any(each.lengths.any() for each in growing)
    if filled or counts != {prompts}:
        raise refuse(
            "generate",
            "the caches do not fit the prompts",
            "caches that hold positions already"
            if filled
            else f"caches for {', '.join(map(str, sorted(counts)))} sequences, {prompts} prompts",
            "empty caches with a sequence for each prompt",
            "make new ones: model.cache(len(prompts))",
        )


def _read(model: Model, prompts: Iterable[Any], tokens: int) -> list[list[int]]:
    """The prompts as lists of tokens; raises every reason why the model cannot continue them."""
    config, reasons = model.config, []
    if model.training and config.dropout:
        reasons.append(
            Reason(
                "dropout is active",
                f"a model in training mode with dropout={config.dropout}",
                "a model in evaluation mode",
                "call model.eval()",
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
            fix = (
                "encode the text with the model's vocabulary"
                if isinstance(prompt, str)
                else "pass a single prompt as [prompt]"
            )
            if given.numel() == 0 and not isinstance(prompt, str):
                fix = "start with one token, such as the end-of-document token"
            reasons.append(
                Reason(f"prompt {number} is not a sequence of tokens", f"{prompt!r:.60}", "one or more integers", fix)
            )
            continue
        text = given.tolist()
        outside = [token for token in text if not 0 <= token < config.vocabulary]
        if outside:
            reasons.append(
                Reason(
                    f"prompt {number} contains tokens outside the vocabulary",
                    f"token {outside[0]}",
                    f"0 … {config.vocabulary - 1}",
                    "encode it with the model's vocabulary",
                )
            )
        if config.longest is not None and len(text) + tokens > config.longest:
            reasons.append(
                Reason(
                    f"prompt {number} is too long",
                    f"{len(text)} tokens and {tokens} new ones",
                    f"at most {config.longest} tokens: the model has learned positions",
                    "request fewer tokens, or shorten the prompt",
                )
            )
        texts.append(text)
    if reasons:
        raise Refused("generate", reasons)
    return texts
