"""Writing: what a cache, a neighbour, a stream or a stop must not change, and what chance may choose."""

import math

import pytest
import torch

from regard.models import Config, EncoderDecoder, LanguageModel, TranslationConfig, generate, stream
from regard.models.generation import Sampling, Stops, draw, min_p, top_k, top_p
from regard.torch.cache import TensorCache
from tests.models.test_models import SMALL, drawn
from tests.support.lanes import sweep
from tests.support.refusals import whats
from tests.support.tensors import normal

LONG = SMALL | {"context": 64, "tied": False}
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 1, 1, 2]]


def seeded(make, *args, **kwargs):
    """A model whose logits differ enough to choose among, in float64, so that rounding chooses nothing."""
    torch.manual_seed(0)
    model = make(*args, **kwargs).double().eval()
    with torch.no_grad():
        (model.decoder if hasattr(model, "decoder") else model).output.weight.mul_(30)
    return model


def model(**parts):
    return seeded(LanguageModel, Config(**LONG | parts))


def greedily(logits_of, prompt, tokens):
    """The plain loop without a cache: the whole text again for every token."""
    text = list(prompt)
    for _ in range(tokens):
        text.append(int(logits_of(torch.tensor([text]))[0, -1].argmax()))
    return text[len(prompt) :]


def greedy(made, tokens=8, **more):
    """What a model writes behind the prompts."""
    return generate(made, PROMPTS, tokens=tokens, greedy=True, **more)


def until(word, text):
    """A text up to the end of a word of two tokens, if it is there."""
    return text[: next((end for end in range(2, len(text)) if text[end - 2 : end] == word), len(text))]


@pytest.mark.parametrize(
    "parts",
    [
        {"positions": "learned"},
        {"positions": "alibi", "window": 5, "kv_heads": 1},
        *sweep({"positions": "none", "norm_first": False}, {"window": 3}),
    ],
    ids=str,
)
@torch.no_grad()
def test_caches_change_nothing(parts):
    """Prompts of different lengths at once, over caches, give the tokens of each alone, computed anew for every
    token.
    """
    made = model(**parts)

    assert greedy(made, tokens=10) == [greedily(made, prompt, 10) for prompt in PROMPTS]


@torch.no_grad()
def test_a_window_forgets():
    """The cache of a window gives back what nobody will see again: it stops growing. Over chunks and single tokens the
    rows are those of the whole.
    """
    made = model(window=40)
    tokens = drawn(1, 900)
    cache, parts = made.cache(1), [90] * 8 + [1] * 30 + [150]
    found = torch.cat([made.hidden(part, cache=cache) for part in tokens.split(parts, dim=1)], dim=1)

    assert all(len(each.held(0)) < 40 + 128 + 150 and each.lengths.tolist() == [900] for each in cache)
    torch.testing.assert_close(found, made.hidden(tokens))


@pytest.mark.parametrize("how", [{"temperature": 2.0}, {"top_k": 5}, {"top_p": 0.9, "min_p": 0.01}])
@torch.no_grad()
def test_neighbours_change_nothing(how):
    """A prompt's tokens are the same alone as in a batch, where others stop before it; and again with the same seed."""
    made = model()
    together = generate(made, PROMPTS, tokens=12, seed=5, **how)
    word = together[0][3:5]  # some stop on the way

    assert generate(made, PROMPTS, tokens=12, seed=5, stop=[word], **how) == [until(word, text) for text in together]
    for number, prompt in enumerate(PROMPTS):
        assert generate(made, [prompt], tokens=12, seed=5 + number, **how) == [together[number]]


def test_the_global_generator_gives_the_seed():
    """Without a seed, torch.manual_seed decides; two calls in a row differ."""
    made = model()
    torch.manual_seed(3)
    first, second = (generate(made, PROMPTS, tokens=12, temperature=5.0) for _ in range(2))
    torch.manual_seed(3)

    assert generate(made, PROMPTS, tokens=12, temperature=5.0) == first != second


def watched(made):
    """The sizes of what a model is given, call by call."""
    shapes, hidden = [], made.hidden
    made.hidden = lambda tokens, **rest: shapes.append(tuple(tokens.shape)) or hidden(tokens, **rest)
    return shapes


@torch.no_grad()
def test_the_finished_leave():
    """The model is asked for those that still write, and for nothing after the last token."""
    made = model()
    texts = greedy(made, tokens=6)
    shapes = watched(made)
    greedy(made, tokens=6, stop=[texts[1][:2]])

    assert shapes == [(3, 8), (3, 1), (2, 1), (2, 1), (2, 1), (2, 1)]


def test_a_stream_gives_each_token_at_once():
    """The first token is there after the model was asked once; all of them are those that generate gives. Between two
    tokens, the caller's own code still records gradients.
    """
    made = model()
    shapes, pairs = watched(made), []
    for count, pair in enumerate(stream(made, PROMPTS, tokens=4, greedy=True)):
        assert torch.is_grad_enabled() and len(shapes) == count // 3 + 1
        pairs.append(pair)

    assert [number for number, _ in pairs] == [0, 1, 2] * 4
    assert [[token for each, token in pairs if each == number] for number in range(3)] == greedy(made, tokens=4)
    assert generate(made, [], tokens=3) == [] and generate(made, [[1]], tokens=0) == [[]]


# ---- stops -----------------------------------------------------------------------------------------------------------

SYLLABLES = ["a", "b", "ab", "ba", "c", "", "\N{SNOWMAN}"]


def spelled(tokens):
    return "".join(SYLLABLES[token] for token in tokens)


@pytest.mark.parametrize(
    "stop, tokens, expected",
    [
        ([[0, 1]], [2, 0, 1, 4], 3),
        ([[0, 1]], [2, 0, 2, 1], 4),
        ([(4,)], [4, 4], 1),
        (["abc"], [0, 5, 1, 4], 4),
        (["\N{SNOWMAN}"], [0, 6], 2),
        ("cc", [4, 4, 4], 2),
        ([], [0, 0], 2),
        ([[1], "c"], [0, 4, 1], 2),
    ],
)
def test_stops_are_found(stop, tokens, expected):
    """Sequences of tokens as they are, words in the text that the tokens spell, wherever the borders of tokens lie."""
    ends = Stops(stop, spelled)

    assert next((count for count in range(1, len(tokens) + 1) if ends(tokens[:count])), len(tokens)) == expected


# ---- chance ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own, name, value",
    [
        (top_k, "TopK", 7),
        (top_k, "TopK", 100),
        (top_p, "TopP", 0.8),
        (top_p, "TopP", 1e-9),
        (min_p, "MinP", 0.1),
        (min_p, "MinP", 1.0),
    ],
)
def test_what_is_left_out_is_what_transformers_leaves_out(own, name, value):
    """The same logits stay, the same become −inf."""
    theirs = getattr(pytest.importorskip("transformers"), f"{name}LogitsWarper")(value)
    logits = 3 * normal(50, 40)

    assert torch.equal(own(logits, value), theirs(None, logits))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_chance_follows_the_probabilities(temperature):
    """Chances spread evenly over [0, 1) draw each token as often as softmax(logits / temperature) says, to a single
    draw; −inf never.
    """
    logits = torch.tensor([-math.inf, 1.0, 3.0, -math.inf, 2.5, -1.0, -math.inf], dtype=torch.float64)
    n = 10_000
    chances = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    drawn = torch.bincount(Sampling(temperature=temperature)(logits.expand(n, -1), chances), minlength=7)

    assert (drawn - n * (logits / temperature).softmax(-1)).abs().max() <= 1
    for chance, token in ((0.0, 1), (1 - 2**-53, 5)):  # the first and the last that can be
        assert draw(logits[None], torch.tensor([chance], dtype=torch.float64)) == token


# ---- an encoder's text -----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_what_was_read_is_kept():
    """Over the kept keys of padded sources, tokens are those of each pair alone; sources leave with their sequence."""
    made = seeded(EncoderDecoder, TranslationConfig(**LONG, source_vocabulary=30, encoder_layers=1))
    sources = drawn(3, 7, vocabulary=30)
    lengths = [7, 2, 5]
    expected = [
        greedily(lambda text, n=n: made(sources[n : n + 1, : lengths[n]], text), prompt, 8)
        for n, prompt in enumerate(PROMPTS)
    ]
    assert greedy(made.reading(sources, lengths=lengths)) == expected
    word = expected[0][1:3]
    stopped = [until(word, text) for text in expected]
    assert stopped != expected and greedy(made.reading(sources, lengths=lengths), stop=[word]) == stopped


# ---- a cache of tensors ----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_model_writes_over_tensors_alike():
    """With caches of tensors, as on other devices, the tokens are the same, and the finished leave them too."""
    made = model(window=3)
    texts = greedy(made)
    stop = [texts[1][1:3]]
    expected = greedy(made, stop=stop)
    made.cache = lambda batch: [TensorCache(4, 6, batch=batch, dtype=torch.float64, window=3) for _ in range(2)]

    assert greedy(made, stop=stop) == expected != texts


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_what_cannot_be_written_is_refused():
    """All reasons at once, before the first token: prompts, numbers out of range, stops that cannot be found."""
    made = model(positions="learned")
    prompts = ["text", [], [99], [1.5], [1] * 60]
    asked = {"temperature": 0, "top_k": 0, "top_p": 2.0, "min_p": 0, "stop": ["end", [], 3]}

    assert whats(stream, made, prompts, tokens=5, **asked) == [
        "temperature is out of range",
        "top_k is too small",
        "top_p is out of range",
        "min_p is out of range",
        "a stop string requires decode",
        "empty stop sequence",
        "invalid stop sequence",
        "prompt 0 is not a sequence of tokens",
        "prompt 1 is not a sequence of tokens",
        "prompt 2 contains tokens outside the vocabulary",
        "prompt 3 is not a sequence of tokens",
        "prompt 4 is too long",
    ]
    assert whats(generate, made, [[1]], tokens=-1, greedy=True, temperature=0.5, seed=1.5) == [
        "greedy cannot be combined with sampling options",
        "tokens is negative",
        "seed is not an integer",
    ]


def test_a_model_that_cannot_write_is_refused():
    """Dropout, and weights that give no numbers."""
    training = LanguageModel(Config(**LONG, dropout=0.1))
    broken = model()
    torch.nn.init.constant_(broken.stack.norm.weight, math.nan)

    assert whats(generate, training, [[1]], tokens=1) == ["dropout is active"]
    assert whats(generate, broken, [[1]], tokens=1) == ["the logits are not finite"]


def test_sources_without_prompts_are_refused():
    """An encoder-decoder writes one text for each source; a cache of tensors takes rows that fit it."""
    read = seeded(EncoderDecoder, TranslationConfig(**LONG)).reading(torch.zeros(2, 3, dtype=torch.long))

    assert whats(generate, read, [[1]], tokens=1) == ["the number of prompts differs from the number of sources"]
    assert whats(TensorCache(2, 8).append, torch.zeros(1, 3, 1, 8), torch.zeros(1, 2, 1, 4)) == [
        "k does not fit the cache",
        "v does not fit the cache",
    ]
