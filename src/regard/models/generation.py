"""Text generation: `stream`, the loop; how the next token is drawn; tokens and strings that end it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias

import numpy as np
import torch

from ..common.errors import Reason, Refused, refuse, refuse_all
from ..language.masks import count, whole
from .encoder_decoder import Reading
from .language_model import LanguageModel


def top_k(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Keeps the k largest logits of each row (and ties with the k-th), and sets the others to −inf.

    Args:
        logits: (…, V) logits.
        k: number of tokens to keep.

    Returns:
        (…, V) logits.

    Source:
        Fan et al. 2018.

    Examples:
        >>> top_k(torch.tensor([3.0, 1.0, 2.0]), 2).tolist()
        [3.0, -inf, 2.0]
    """
    least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < least, -math.inf)


def top_p(logits: torch.Tensor, p: float) -> torch.Tensor:
    """Nucleus sampling: keeps the fewest most probable tokens with a total probability of at least p.

    The logits of the other tokens become −inf.

    Args:
        logits: (…, V) logits.
        p: the total probability to keep, above 0 and at most 1.

    Returns:
        (…, V) logits.

    Source:
        Holtzman et al. 2020.

    Examples:
        >>> top_p(torch.tensor([0.5, 0.3, 0.2]).log(), 0.7).isfinite().tolist()
        [True, True, False]
    """
    descending, order = logits.sort(descending=True, stable=True)
    probability = descending.softmax(-1)
    removed = probability.cumsum(-1) - probability >= p  # the tokens before it suffice
    removed[..., 0] = False  # rounding can remove the first token if p is tiny
    return logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), -math.inf)


def min_p(logits: torch.Tensor, p: float) -> torch.Tensor:
    """Keeps the tokens that are at least p times as probable as the most probable token.

    The logits of the other tokens become −inf.

    Args:
        logits: (…, V) logits.
        p: the minimum relative probability, above 0 and at most 1.

    Returns:
        (…, V) logits.

    Source:
        Nguyen et al. 2024.

    Examples:
        >>> min_p(torch.tensor([0.5, 0.3, 0.2]).log(), 0.5).isfinite().tolist()
        [True, True, False]
    """
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(p), -math.inf)


def draw(logits: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    """Draws a token for each row by inverting the cumulative distribution. Tokens with logit −inf are never drawn.

    Args:
        logits: (…, V) logits.
        chance: (…) uniform random numbers in [0, 1).

    Returns:
        (…) tokens: the first at which the cumulative probability exceeds `chance`.

    Examples:
        >>> draw(torch.tensor([0.5, 0.3, 0.2]).log(), torch.tensor(0.6)).item()
        1
    """
    summed = logits.double().softmax(-1).cumsum(-1)
    reached = chance.to(summed)[..., None] * summed[..., -1:]
    return torch.searchsorted(summed, reached, right=True)[..., 0]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Chooses the next token: temperature, then top-k, top-p and min-p in this order, then a random draw.

    Args:
        temperature: divisor of the logits: below 1 sharpens the distribution, above 1 flattens it.
        top_k: sample from the k most probable tokens only. None: all.
        top_p: sample from the fewest tokens whose probabilities sum to at least p. None: all.
        min_p: sample from tokens that are at least p times as probable as the most probable one. None: all.
        greedy: always choose the most probable token.

    Raises:
        Refused: values out of range, or other arguments together with `greedy`, listing every problem.

    Examples:
        >>> Sampling(top_k=2)(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0.99])).tolist()
        [2]
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    greedy: bool = False

    def __post_init__(self) -> None:
        reasons: list[Reason] = []
        if not 0 < self.temperature < math.inf:
            reasons.append(
                Reason(
                    "temperature is out of range",
                    f"temperature={self.temperature!r}",
                    "a number above 0",
                    "pass greedy=True to always choose the most probable token",
                )
            )
        if self.top_k is not None:
            try:
                count(self.top_k, "generate", "top_k", 1)
            except Refused as refused:
                reasons += refused.reasons
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                reasons.append(
                    Reason(
                        f"{name} is out of range",
                        f"{name}={value!r}",
                        "a number above 0 and at most 1",
                        f"omit {name} to sample from all tokens",
                    )
                )
        unused = [
            f"{name}={getattr(self, name)!r}" for name in ("top_k", "top_p", "min_p") if getattr(self, name) is not None
        ]
        unused += [f"temperature={self.temperature!r}"] if self.temperature != 1 else []
        if self.greedy and unused:
            reasons.append(
                Reason(
                    "greedy cannot be combined with sampling options",
                    f"greedy=True, {', '.join(unused)}",
                    "greedy=True alone",
                    "omit greedy, or the other options",
                )
            )
        refuse_all("generate", reasons)

    def __call__(self, logits: torch.Tensor, chance: torch.Tensor | None = None) -> torch.Tensor:
        """Chooses a token for each row.

        Args:
            logits: (B, V) logits.
            chance: (B,) uniform random numbers in [0, 1); None only if `greedy`.

        Returns:
            (B,) tokens.

        Raises:
            Refused: logits that are NaN or infinite.
        """
        if not bool(logits.amax(-1).isfinite().all()):
            raise refuse(
                "generate",
                "the logits are not finite",
                "NaN or infinity",
                "a finite largest logit in every row",
                "find the first layer that computes NaN or infinity with regard.torch.trace",
            )
        if self.greedy:
            return logits.argmax(-1)
        assert chance is not None
        logits = logits.float() / self.temperature
        logits = logits if self.top_k is None else top_k(logits, self.top_k)
        logits = logits if self.top_p is None else top_p(logits, self.top_p)
        logits = logits if self.min_p is None else min_p(logits, self.min_p)
        return draw(logits, chance)


class Stops:
    """Decides whether a generated text ends after its last token.

    Args:
        stop: sequences of tokens, and strings. Strings are searched in the decoded text, so they may start and end
            inside a token.
        decode: function from tokens to text; required for strings.

    Raises:
        Refused: empty stop sequences, strings without `decode`, or other types, listing every problem.

    Examples:
        >>> ends = Stops([[7, 7], "end"], decode=lambda tokens: bytes(tokens).decode())
        >>> ends([1, 7, 7]), ends(list(b"the en")), ends(list(b"the end"))
        (True, False, True)
    """

    def __init__(
        self, stop: str | Iterable[str | Sequence[int]] = (), decode: Callable[[list[int]], str] | None = None
    ):
        listed: list[Any] = [stop] if isinstance(stop, str) else list(stop)
        reasons = []
        for each in listed:
            if isinstance(each, str) and decode is None:
                reasons.append(
                    Reason(
                        "a stop string requires decode",
                        f"stop={each!r}, decode=None",
                        "a function from tokens to text",
                        "pass decode=, or pass the string as tokens",
                    )
                )
            elif not isinstance(each, Sequence):
                reasons.append(
                    Reason(
                        "invalid stop sequence", f"{each!r}", "a sequence of tokens, or a string", f"pass [{each!r}]"
                    )
                )
            elif not len(each):
                reasons.append(
                    Reason("empty stop sequence", f"{each!r}", "at least one token or character", "remove it")
                )
        refuse_all("generate", reasons)
        self.words = [each for each in listed if isinstance(each, str)]
        self.tokens = [list(each) for each in listed if not isinstance(each, str)]
        self.decode = decode

    def __call__(self, tokens: list[int]) -> bool:
        """Returns whether the text ends with the last of these generated tokens."""
        if any(tokens[-len(stop) :] == stop for stop in self.tokens):
            return True
        if not self.words or self.decode is None:
            return False
        # Decodes the whole text: a string may span any number of tokens, and decoding may depend on earlier tokens.
        text = self.decode(tokens)
        return any(word in text for word in self.words)


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
    refuse_all("generate", reasons)
    generators = []
    if not greedy:
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
    logits = _append(model, prompts, cache)
    for step in range(most):
        chance = None
        if generators:
            drawn = (torch.rand((), generator=generators[number], dtype=torch.float64) for number in active)
            chance = torch.stack(list(drawn))
        for number, token in zip(active, sampling(logits, chance).tolist(), strict=True):
            texts[number].append(token)
            yield number, token
        done = [row for row, number in enumerate(active) if ends(texts[number])]
        if len(done) == len(active) or step == most - 1:
            return
        if done:
            for each in cache:
                each.drop(done)
            active = [number for row, number in enumerate(active) if row not in done]
        logits = _append(model, [texts[number][-1:] for number in active], cache)


@torch.no_grad()
def _append(model: Model, texts: list[list[int]], cache: list[Any]) -> torch.Tensor:
    """Logits (B, V) of the last token of each text; all texts are appended to the cache."""
    lengths = [len(text) for text in texts]
    longest = max(lengths)
    device = next(model.parameters()).device
    padded = torch.tensor([text + [0] * (longest - len(text)) for text in texts], device=device)
    rows = None if min(lengths) == longest else np.array(lengths)
    hidden = model.hidden(padded, cache=cache, rows=rows)
    last = torch.tensor(lengths, device=device) - 1
    return model.head(hidden[:, -1] if rows is None else hidden[torch.arange(len(texts), device=device), last])


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
        fix = "start with one token, such as the end-of-document token"
        try:
            text = [index(token) for token in (prompt.tolist() if isinstance(prompt, torch.Tensor) else prompt)]
        except TypeError:
            words = isinstance(prompt, str)
            fix = "encode the text with the model's vocabulary" if words else "pass a single prompt as [prompt]"
            text = []
        if not text:
            reasons.append(
                Reason(f"prompt {number} is not a sequence of tokens", f"{prompt!r:.60}", "one or more integers", fix)
            )
            continue
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
    refuse_all("generate", reasons)
    return texts
