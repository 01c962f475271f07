"""The page of a model's cost: computed in the browser, equal to rg.cost at every place of the sliders."""

import dataclasses
import functools
import itertools
import json
import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import transformers  # noqa: E402

import regard as rg  # noqa: E402
from regard.ledger.cost import built  # noqa: E402
from regard.ledger.counting.pairs import Band  # noqa: E402
from regard.ledger.fit import fit  # noqa: E402
from regard.ledger.machine import Machine  # noqa: E402
from regard.ledger.page import terms, written  # noqa: E402
from tests.support.lanes import sweep  # noqa: E402

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 500, "intermediate_size": 96}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
TEXT = SMALL | HEADS
MODELS = {
    "causal": lambda: transformers.LlamaConfig(**TEXT | {"num_hidden_layers": 1}, max_position_embeddings=4096),
    "window": lambda: transformers.MistralConfig(**TEXT, sliding_window=300),
    "two kinds of layers": lambda: transformers.Gemma3TextConfig(**TEXT | {"num_hidden_layers": 7}, sliding_window=100),
    "experts": lambda: transformers.MixtralConfig(**TEXT, num_local_experts=5, num_experts_per_tok=2),
    "learned positions": lambda: transformers.GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=300, n_positions=512
    ),
    "encoder and decoder": lambda: transformers.T5Config(
        d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, vocab_size=200
    ),
}
READ = """({choice}) => {
    choose(choice);
    const found = priced({...choice, metric: "operations"});
    const names = ["linear", "attention", "backward", "flops", "exponentials", "moved", "held"];
    const text = Object.fromEntries(names.map((name) => [name, String(found[name])]));
    const memory = Object.fromEntries(Object.entries(found.memory).map(([name, each]) => [name, String(each)]));
    const fit = fitting(choice);
    const {seconds, compute} = found;
    return {...text, memory, seconds, compute, fit: [String(fit.tokens), String(fit.batch)]};
}"""


@functools.cache
def found_of(name):
    """The formulas of a model."""
    return terms(MODELS[name]())


@pytest.fixture(scope="module")
def pages(kept_open):
    """The open page of each model, made once."""
    found = {}

    def opened(name):
        if name not in found:
            found[name] = kept_open(written(found_of(name)))
        return found[name]

    return opened


def places(name, number):
    """Random places of the sliders; windows and short texts among them."""
    rng = random.Random(name)
    special = [2, 3, 97, 98, 99, 100, 101, 102, 298, 299, 300, 301, 302]
    for at in range(number):
        tokens = rng.choice(special) if at % 2 else round(2 ** rng.uniform(1, 14))
        yield {
            "tokens": tokens,
            "batch": rng.choice([1, 2, 7, 64, 1000]),
            "phase": rng.choice(["prefill", "decode", "train"]),
            "dtype": rng.choice(["float32", "bfloat16", "float16"]),
            "machine": rng.choice(["h100-sxm", "l4"]),
            "memory": rng.choice([0.01, 0.5, 24]),
        }


@pytest.mark.parametrize("name", ["causal", *sweep(*(name for name in MODELS if name != "causal"))])
def test_the_page_computes_what_cost_computes(pages, name):
    """Operations, bytes and memory as whole numbers, seconds to rounding, at random places of the sliders."""
    view = pages(name)
    assert view.tab.evaluate("Object.values(terms.phases).flatMap(Object.values).flatMap((each) => each.without)") == []
    for choice in places(name, 12):
        shown = view.tab.evaluate(READ, {"choice": choice})
        keys = {key: choice[key] for key in ("tokens", "batch", "phase", "dtype", "machine")}
        found = rg.cost(MODELS[name](), **keys)

        for kind in ("linear", "attention", "backward"):
            assert int(shown[kind]) == getattr(found, kind).value, (kind, choice)
        assert int(shown["flops"]) == found.flops, choice
        assert int(shown["exponentials"]) == found.exponentials, choice
        assert int(shown["moved"]) == found.moved, choice
        assert int(shown["held"]) == found.memory.held, choice
        assert shown["seconds"] == pytest.approx(found.time.bound, rel=1e-9), choice
        assert shown["compute"] == pytest.approx(found.time.compute, rel=1e-9), choice


def test_kinds_of_memory(pages):
    """Each kind of memory, in each phase."""
    view = pages("causal")
    names = {"cache": "kv_cache", "activations": "checkpointed"}
    for phase in ("prefill", "decode", "train"):
        choice = {"tokens": 250, "batch": 3, "phase": phase, "dtype": "bfloat16", "machine": "h100-sxm", "memory": 1}
        shown = view.tab.evaluate(READ, {"choice": choice})["memory"]
        held = rg.cost(MODELS["causal"](), tokens=250, batch=3, phase=phase, dtype="bfloat16").memory
        for kind, number in shown.items():
            expected = getattr(held, names.get(kind, kind))
            assert int(number) == (expected if isinstance(expected, int) else expected.value), (phase, kind)


@pytest.mark.parametrize("name", ["causal", *sweep("window")])
def test_what_fits(pages, name):
    """The longest context and the largest batch are those of --fit."""
    view = pages(name)
    for phase, memory in (("prefill", 0.02), ("decode", 0.3), ("train", 0.3)):
        choice = {"tokens": 600, "batch": 2, "phase": phase, "dtype": "float32", "machine": "l4", "memory": memory}
        shown = view.tab.evaluate(READ, {"choice": choice})["fit"]
        found = fit(built(MODELS[name](), "float32"), round(memory * 1e9), phase, 600, 2)
        assert shown == [str(found.tokens or 0), str(found.batch or 0)], phase


def test_pairs_are_exact_for_any_band(pages):
    """The script's pairs are Band.count, for random limits, chunks, and lengths up to a million."""
    view, rng = pages("causal"), random.Random(0)
    cases = []
    for number in range(300):
        top = 40 if number % 3 else 1 << 20
        rule = Band(
            *(rng.choice([None, rng.randint(-top, top)]) for _ in range(2)), rng.choice([0, 0, rng.randint(1, top)])
        )
        cases.append((rule, rng.randint(1, top), rng.randint(1, top), rng.choice([0, rng.randint(0, top)])))
    given = [{"rule": dataclasses.asdict(rule), "sizes": sizes} for rule, *sizes in cases]
    found = view.tab.evaluate(
        "(given) => given.map(({rule, sizes}) => String(pairs(rule, ...sizes.map(BigInt))))", given
    )

    assert [int(each) for each in found] == [rule.count(*sizes) for rule, *sizes in cases]


def test_eight_bits_take_half_of_the_matrices(pages):
    """Against bfloat16, matrices take half: in memory, and in what products read; operations stay."""
    view = pages("causal")
    choice = {"tokens": 300, "batch": 1, "phase": "prefill", "machine": "h100-sxm", "memory": 1}
    half, whole = (view.tab.evaluate(READ, {"choice": choice | {"dtype": dtype}}) for dtype in ("int8", "bfloat16"))
    model = transformers.LlamaForCausalLM(MODELS["causal"]())
    matrices = sum(each.numel() for each in model.parameters() if each.ndim > 1)
    embedding = model.get_input_embeddings().weight.numel()

    assert int(whole["held"]) - int(half["held"]) == matrices
    assert int(whole["moved"]) - int(half["moved"]) == matrices - embedding
    assert half["flops"] == whole["flops"]


def test_a_term_that_is_not_confirmed_has_no_formula():
    """A number that steps is named, and is null; the rest keeps its formulas."""
    from regard.ledger.page.formula import fitted, plain, planned

    plan = planned([], None)
    steps = {(n, B): B * (n // 100) for n, B in plan.sizes}
    squares = {(n, B): B * n * (n + 1) // 2 + 3 * n for n, B in plan.sizes}

    assert fitted(steps, plan) is None
    assert plain(fitted(squares, plan)) == [[1, 1, 1, 0, 0, 6, 0, 2]]


class Padded(torch.nn.Module):
    """A layer that works on whole hundreds of rows."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x):
        padded = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[1] % 100))
        return self.head(self.linear(padded)[:, : x.shape[1]])


def test_the_page_says_what_has_no_formula(opened):
    """A part that steps is left out of the sums, and named; the other one is counted."""
    found = terms(Padded(), phases=["prefill"])
    view = opened(written(found))
    without = found["phases"]["prefill"]["bfloat16"]["without"]

    assert "least time" in without and any(each.endswith("forward") for each in without)
    assert "Without a formula, and not in the sums: " in view.text("#notes")
    assert view.tab.is_disabled("#metric-time")


@pytest.mark.sweep
def test_a_rule_without_limits_has_a_table(opened):
    """Pairs of such a rule are exact at powers of two, and the page says that others are not."""
    mask = rg.causal() | (rg.key < 5)
    view = opened(written(terms(MODELS["causal"](), mask=mask, phases=["prefill"])))
    for tokens in (16, 1024, 16384):
        choice = {"tokens": tokens, "batch": 3, "phase": "prefill", "dtype": "bfloat16", "machine": "l4", "memory": 1}
        shown = view.tab.evaluate(READ, {"choice": choice})
        found = rg.cost(MODELS["causal"](), tokens=tokens, batch=3, mask=mask, dtype="bfloat16")
        assert int(shown["flops"]) == found.flops
        between = view.tab.evaluate(READ, {"choice": choice | {"tokens": tokens + tokens // 3}})
        exact = rg.cost(MODELS["causal"](), tokens=tokens + tokens // 3, batch=3, mask=mask, dtype="bfloat16")
        if tokens < 16384:
            assert int(between["attention"]) == pytest.approx(exact.attention.value, rel=0.05)
    assert "pairs between the lengths of a table" in view.text("#notes")


@pytest.mark.sweep
def test_models_without_tokens_have_no_slider_of_tokens(opened):
    """An image model: batch alone, no plot over tokens, no decoding; the numbers are those of rg.cost."""
    config = transformers.ViTConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96)
    view = opened(written(terms(config)))
    choice = {"tokens": 1, "batch": 5, "phase": "train", "dtype": "float32", "machine": "l4", "memory": 1}
    shown = view.tab.evaluate(READ, {"choice": choice})
    found = rg.cost(config, batch=5, phase="train", dtype="float32", machine="l4")
    one = view.tab.evaluate(READ, {"choice": choice | {"batch": 1}})

    assert one["seconds"] == pytest.approx(rg.cost(config, phase="train", dtype="float32", machine="l4").time.bound)
    assert (int(shown["flops"]), int(shown["held"])) == (found.flops, found.memory.held)
    assert shown["seconds"] == pytest.approx(found.time.bound, rel=1e-9)
    assert not view.tab.is_visible("#tokens") and not view.tab.is_visible("#curve")
    assert "Not possible: decode" in view.text("#sentence")


def test_windows_end_where_caches_do():
    """The border between two pieces is found exactly, for random windows and several of them."""
    from regard.ledger.page.formula import fitted, planned, value

    rng = random.Random(1)
    for _ in range(50):
        windows = sorted(rng.sample(range(40, 3000), rng.randint(1, 3)))
        if any(after - before < 20 for before, after in itertools.pairwise(windows)):
            continue
        plan = planned(windows, None)

        def bytes_of(n, B, windows=windows):
            return 8 * B * sum(min(n, window - 1) for window in windows) + 5 * n

        found = fitted({size: bytes_of(*size) for size in plan.sizes}, plan)
        for n in [*range(1, 60), *(window + by for window in windows for by in (-2, -1, 0, 1, 2)), 100_000]:
            assert value(found, n, 9) == bytes_of(n, 9), (windows, n)


def test_every_control_draws(pages):
    """Sliders, numbers and choices work by keyboard, plots answer arrow keys, and the address keeps the choice."""
    view = pages("causal")
    view.tab.evaluate("choose({tokens: 256, batch: 1, phase: 'prefill', dtype: 'bfloat16', machine: 'h100-sxm'})")
    view.tab.focus("#tokens")
    view.press("ArrowRight")
    assert view.tab.input_value("#tokens-number") == "279"
    view.tab.fill("#tokens-number", "1000")
    view.press("Tab")
    assert "tokens=1000" in view.tab.url and view.text("#layers-title").startswith("At 1,000 tokens, attention takes")
    view.tab.focus("#phase-prefill")
    view.press("ArrowRight")
    assert view.text("#memory-title").startswith("Decoding holds")
    view.tab.focus("#layers-plot")
    view.press("ArrowRight")
    assert view.text("#layers-read").startswith("model.layers 0: ")
    view.press("End")
    assert view.text("#layers-read").startswith("outside of layers: ")
    view.tab.focus("#curve-plot")
    view.press("Home")
    assert view.text("#curve-read").startswith("1 token: ")
    view.tab.focus("#memory-plot")
    view.press("ArrowRight")
    assert view.text("#memory-read").startswith("weights: ")
    assert view.tab.locator("#layers-table table").count() == 1


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", ["causal", *sweep("two kinds of layers")])
def test_nothing_is_cut_off(opened, name, width):
    """On a narrow and on a wide screen, in the dark too; and the file opens without a network (see `opened`)."""
    view = opened(written(found_of(name)), viewport={"width": width, "height": 800}, color_scheme="dark")
    assert view.cut_off() == []


def test_hostile_names_stay_text(opened):
    """A model's name is text, in the title, in the data and on the page."""
    text = written(found_of("causal") | {"name": "</script><script>window.harmed=1</script>"})
    assert "</script><script>window" not in text
    view = opened(text)
    assert view.tab.evaluate("window.harmed") is None and "window.harmed" in view.text("h1")


def test_the_machine_and_the_start_are_chosen(opened):
    """What the command was given is what the page shows first."""
    mine = Machine("mine", {"float32": 1e12}, 1e10, 10**10, 10**6, "mine.toml")
    start = {"tokens": 777, "batch": 3, "phase": "decode", "dtype": "float32", "memory": 5 * 10**9}
    view = opened(written(found_of("causal"), start, mine))
    chosen = json.loads(view.tab.evaluate("JSON.stringify(choice)"))

    assert {key: chosen[key] for key in start if key != "memory"} == {
        key: start[key] for key in start if key != "memory"
    }
    assert chosen["memory"] == 5 and chosen["machine"] == "own"
    found = rg.cost(MODELS["causal"](), tokens=777, batch=3, phase="decode", dtype="float32", machine=mine)
    assert view.tab.evaluate("priced(choice).seconds") == pytest.approx(found.time.bound, rel=1e-9)
