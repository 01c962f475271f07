"""`what_if` and `effects`: a running model with changed attention, against the same change by hand."""

import threading

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import regard as rg
from regard import batch, head, key, query, score
from regard.models import Config, LanguageModel
from regard.torch.hf import register
from regard.torch.hf.tiny_models import tiny_config
from tests.support.hf_models import MODELS
from tests.support.refusals import refusing

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5]])


class Written(nn.Module):
    """Attention as people write it: two products and a softmax, with heads on an axis or in the batch, or SDPA."""

    def __init__(self, way: str):
        super().__init__()
        self.way, self.num_heads = way, 4
        self.inner, self.outer = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.inner(x).unflatten(-1, (3, 4, 4)).unbind(2)
        if self.way == "einsum":
            weights = torch.einsum("bqhd,bkhd->bhqk", q, k).div(2).softmax(-1)
            return self.outer(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        if self.way == "bmm":
            q, k, v = (each.flatten(0, 1) for each in (q, k, v))
            out = torch.bmm(torch.bmm(q, k.mT).div(2).softmax(-1), v).unflatten(0, (-1, 4))
        else:
            out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.outer(out.transpose(1, 2).flatten(2))


class Reversed(nn.Module):
    """Blocks that run from the last to the first, the last one twice."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Written("sdpa") for _ in range(3))

    def forward(self, x):
        for block in (*reversed(self.blocks), self.blocks[2]):
            x = x + block(x)
        return x


class Apart(nn.Sequential):
    """Numbered blocks that run after attention that has no number."""

    def __init__(self):
        super().__init__(nn.Linear(16, 16))
        self.attention = Written("sdpa")

    def forward(self, x):
        return self[0](self.attention(x))


OUTER = {
    "llama": "model.layers.1.self_attn.o_proj",
    "bert": "bert.encoder.layer.1.attention.output.dense",
    "t5": "decoder.block.1.layer.1.EncDecAttention.o",
    "gpt-oss": "model.layers.1.self_attn.o_proj",
    "TransformerEncoderLayer": "self_attn.out_proj",
    "regard.models": "stack.blocks.0.attention.part.o",
}


def inputs_of(name):
    """What a model of transformers reads."""
    return {"input_ids": IDS} | ({"decoder_input_ids": IDS[:, :4]} if name == "t5" else {})


def host(name):
    """A model as a function without arguments, its module, and the path of the output projection of its last layer."""
    torch.manual_seed(0)
    x = torch.randn(2, 9, 16)
    if name in MODELS:
        model = MODELS[name]()
        return lambda: model(**inputs_of(name)).logits, model, OUTER[name]
    made = {
        "MultiheadAttention": lambda: nn.MultiheadAttention(16, 4, batch_first=True),
        "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        "regard.models": lambda: LanguageModel(Config.gpt(vocabulary=10, context=16, d_model=16, heads=4, layers=1)),
    }
    model = made.get(name, lambda: Written(name))().eval()
    if name == "MultiheadAttention":
        return lambda: model(x, x, x)[0], model, "out_proj"
    return (lambda: model(IDS)) if name == "regard.models" else (lambda: model(x)), model, OUTER.get(name, "outer")


@pytest.mark.parametrize("name", [*OUTER, "MultiheadAttention", "einsum", "bmm", "sdpa"])
def test_a_head_without_output(name):
    """It is the head whose columns of the output projection are 0; so is one whose keys are all masked."""
    run, model, path = host(name)
    outer, layer = model.get_submodule(path), path.removesuffix(".output.dense").rpartition(".")[0]
    pattern = f"{layer}*" if layer else None
    wide = outer.weight.shape[1] // 4
    with torch.no_grad():
        plain = run()
        with rg.what_if(model, layer=pattern, head=1, output=0):
            zero = run()
        with rg.what_if(model, layer=pattern, mask=head != 1):
            masked = run()
        outer.weight[:, wide : 2 * wide] = 0
        expected = run()

    assert not torch.allclose(zero, plain, atol=1e-4)
    torch.testing.assert_close(zero, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(masked, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("way", ["einsum", "bmm", "sdpa"])
def test_rules_by_hand(way):
    """Masks, scores and values of some heads and entries, against softmax(score(s) where mask) v over written-out
    products.
    """
    run, model, _ = host(way)
    mask, rule, other = (query != 4) | (key > 1) | (batch == 0), score * 0.5 + head, torch.randn(2, 1, 9, 4)
    with torch.no_grad(), rg.what_if(model, head=[0, 3], mask=mask, score=rule, v=other):
        out = run()
        x = torch.randn(2, 9, 16, generator=torch.manual_seed(0))
        q, k, v = model.inner(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
    scores = q @ k.mT / 2
    causal = torch.ones(9, 9, dtype=bool).tril() if way == "sdpa" else torch.ones(9, 9, dtype=bool)
    allowed = causal.repeat(2, 4, 1, 1)
    allowed[1, [0, 3], 4, :2] = False
    scores[:, 0], scores[:, 3] = scores[:, 0] * 0.5, scores[:, 3] * 0.5 + 3
    v[:, [0, 3]] = other
    expected = (scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)

    torch.testing.assert_close(out, model.outer(expected), atol=1e-5, rtol=1e-5)


def test_a_run_repeated():
    """q, k, v, weights and output of a run in their own place change nothing, nor do its weights times the sums of what
    a function gets; a mask of masked pairs changes no bit.
    """
    run, model, _ = host("llama")
    register()
    model.set_attn_implementation("regard")
    call = rg.look(model, inputs={"input_ids": IDS}, values=True).calls[1]
    twice = {name: np.repeat(getattr(call, name), 2, 0)[1] for name in ("k", "v")}
    with torch.no_grad():
        plain = run()
        tensors, own = {"q": call.q, "k": call.k, "v": call.v}, torch.from_numpy(call.weights())
        function = {"mask": key == 0, "weights": lambda weights: own * weights.sum(-1, keepdim=True)}
        for given in (tensors, {"output": call.out}, {"weights": own}, function):
            with rg.what_if(model, layer=1, **given):
                torch.testing.assert_close(run(), plain, atol=1e-5, rtol=1e-5)
        with rg.what_if(model, layer=1, head=1, q=call.q[1], **twice):  # of one head, whose keys another shares
            torch.testing.assert_close(run(), plain, atol=1e-5, rtol=1e-5)
        with rg.what_if(model, mask=key <= query) as running:
            assert torch.equal(run(), plain)

    assert running.calls == 2


def test_layers_with_the_same_weights():
    """They have the numbers of a run."""
    model = transformers.AlbertModel(tiny_config(transformers.AlbertConfig)).eval()
    inputs = {"input_ids": IDS}
    with torch.no_grad(), rg.what_if(model, layer=1, output=0):
        run, out = rg.look(model, inputs=inputs), total(model(IDS))
    found = rg.effects(model, inputs=inputs, of="layers", layer=1, measure=total)
    assert [call.out.any() for call in run.calls] == [True, False]
    np.testing.assert_allclose(found.values[0] + found.clean, float(out), rtol=1e-5)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_steps_gradients_and_looks(name):
    """Positions are those of the text with a cache, too, which may have dropped keys before its window; gradients flow;
    a run recorded inside has the change.
    """
    model = MODELS[name]()
    with torch.no_grad(), rg.what_if(model, layer=0, mask=key != 2, score=score + (query - 2 * key) % 3):
        whole = model(IDS).logits
        first = model(IDS[:, :6], use_cache=True)
        rest = model(IDS[:, 6:], past_key_values=first.past_key_values).logits
        seen = rg.look(model, inputs={"input_ids": IDS}).calls
    with rg.what_if(model, layer=1, head=1, output=0) as change:  # not of what `look` computes about calls
        without = rg.look(model, inputs={"input_ids": IDS}).calls[1]
    x = torch.randn(1, 9, 16, requires_grad=True)
    with rg.what_if(layer := Written("einsum"), score=2 * score), rg.what_if(layer, head=2, mask=key != 3):
        layer(x).sum().backward()

    torch.testing.assert_close(rest, whole[:, 6:], atol=1e-5, rtol=1e-5)
    assert change.calls == 1 and not without.out[1].any() and without.rows["moved"][1].all()
    assert not seen[0].weights()[..., 2].any() and seen[1].weights()[..., 2].any()
    assert x.grad.isfinite().all() and x.grad.any()


@pytest.mark.parametrize("change", [{"mask": key != 2}, {"score": 2 * score}, {"output": 0}], ids=str)
def test_a_cache_of_regard(change):
    """In steps, with positions of the text, as in one pass."""
    torch.manual_seed(0)
    model = LanguageModel(Config(vocabulary=11, d_model=16, layers=2, heads=4)).eval()
    with torch.no_grad(), rg.what_if(model, layer=1, head=2, **change) as changed:
        whole, cache = model(IDS), model.cache()
        steps = [model(part, cache=cache) for part in IDS.split([5, 1, 3], 1)]

    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-5, rtol=1e-5)
    assert changed.calls == 4


def test_sinks():
    """A sink takes weight from every key; -inf removes those of the model."""
    run, model, _ = host("gpt-oss")
    with torch.no_grad():
        with rg.what_if(model, layer=0, sinks=50.0):
            drained = run()
        with rg.what_if(model, layer=0, output=0):
            torch.testing.assert_close(drained, run(), atol=1e-5, rtol=1e-5)
        with rg.what_if(model, layer=0, sinks=-torch.inf):
            without = run()
        model.model.layers[0].self_attn.sinks.fill_(-1e4)
        torch.testing.assert_close(without, run(), atol=1e-5, rtol=1e-5)


def hooks(model):
    """Everything that a block might leave in a model."""
    return [
        (len(each._forward_hooks), len(each._forward_pre_hooks), "forward" in vars(each)) for each in model.modules()
    ]


def test_left_as_it_was():
    """After an error, Ctrl-C, and effects: no hook, and the attention implementation of before."""
    run, model, _ = host("bert")
    model.set_attn_implementation("eager")
    before = hooks(model), run()

    def change(error):
        with rg.what_if(model, output=0):
            run()
            raise error

    for error in (ValueError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            change(error)
    rg.effects(model, inputs={"input_ids": IDS})

    assert hooks(model) == before[0] and model.config._attn_implementation == "eager"
    assert torch.equal(run(), before[1])


REFUSALS = {
    "nothing": ({}, "nothing is changed"),
    "a model": ({"model": 3, "output": 0}, "not a model"),
    "a layer": ({"layer": 7, "output": 0}, "no attention call was changed"),
    "a head": ({"head": 4, "output": 0}, "no such head"),
    "a head by name": ({"head": "a", "output": 0}, "head is not a number"),
    "a size": ({"output": torch.ones(3, 3)}, "output does not fit the layer"),
    "q": ({"q": 0}, "q of handwritten attention"),
    "sinks": ({"sinks": 0}, "sinks of handwritten attention"),
    "heads unknown": ({"head": 0, "output": 0}, "heads and batch in one axis of 8"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    """What is not reached is named; nothing is computed in silence without the change."""
    run, model, _ = host("bmm")
    change, words = REFUSALS[name]
    if name == "heads unknown":
        del model.num_heads
    with refusing(words), torch.no_grad(), rg.what_if(**{"model": model} | change):
        run()


def total(out):
    """A number for each entry of a batch, to which every row adds."""
    return (out if isinstance(out, torch.Tensor) else out[0])[:, :, 5].sum(1)


@pytest.mark.parametrize("name", ["llama", "t5", "einsum", "reversed", "apart"])
def test_effects_one_by_one(name):
    """Every head in a batch is the head alone, also where blocks before it are not computed again."""
    torch.manual_seed(0)
    own = {"reversed": Reversed, "apart": Apart}
    model = own[name]() if name in own else host(name)[1]
    inputs = inputs_of(name) if name in MODELS else torch.randn(1, 9, 16)

    found = rg.effects(model.eval(), inputs=inputs, measure=total)
    for layer, number in np.ndindex(found.values.shape):
        with torch.no_grad(), rg.what_if(model, layer=found.layers[layer], head=number, output=0):
            alone = model(**inputs) if isinstance(inputs, dict) else model(inputs)
        np.testing.assert_allclose(found.values[layer, number], float(total(alone)) - found.clean, atol=1e-4)

    assert found.measure == "total" and found.ranked(1)[0][1] == found.values.flat[np.abs(found.values).argmax()]


def test_effects_of_everything(monkeypatch):
    """Layers, tokens and edges are the masks written by hand, in one pass or many; the measures are their formulas."""
    model = MODELS["llama"]()
    given = {"inputs": {"input_ids": IDS}, "layer": 1}
    with torch.no_grad():
        clean = model(IDS).logits[0].double()
    masks = {"layers": key < 0, "tokens": (key != 3) | (query == 3), "edges": ~((query == 6) & (key == 3))}
    for of, mask in masks.items():
        at = {"layers": 0, "tokens": 3, "edges": (6, 3)}[of]
        with torch.no_grad(), rg.what_if(model, layer=1, mask=mask):
            logits = model(IDS).logits[0].double()
        chances = clean.softmax(-1)
        expected = {
            "loss": nn.functional.cross_entropy(logits[:-1], IDS[0, 1:])
            - nn.functional.cross_entropy(clean[:-1], IDS[0, 1:]),
            "logit": logits[-1, 7] - clean[-1, 7],
            "kl": (chances * (clean.log_softmax(-1) - logits.log_softmax(-1))).sum(-1).mean(),
            "cosine": 1 - nn.functional.cosine_similarity(logits, clean, dim=-1).mean(),
        }
        for measure, value in expected.items():
            found = rg.effects(model, of=of, measure=measure, token=7 if measure == "logit" else None, **given)
            np.testing.assert_allclose(found.values[at], float(value), atol=1e-5)

    other, mask = MODELS["t5"](), (key != 1) | (query == 1)  # of the target, not of what cross-attention reads
    own = rg.effects(other, inputs=inputs_of("t5"), of="tokens", measure=total)
    with torch.no_grad(), rg.what_if(other, layer="decoder*SelfAttention", mask=mask):
        change = float(total(other(**inputs_of("t5")))) - own.clean
    np.testing.assert_allclose(own.values[1], change, atol=1e-5)
    assert abs(change) > 1e-3
    assert np.isnan(found.values[3, 6]) and not np.isnan(found.values[6, 3])  # no row reads a later key
    once = rg.effects(model, **given, of="tokens").values
    monkeypatch.setattr("regard.lens.interventions.effects.TOKENS", 1)
    np.testing.assert_allclose(rg.effects(model, **given, of="tokens").values, once, atol=1e-5)


def test_effects_interrupted(monkeypatch, tmp_path):
    """Ctrl-C keeps what was computed; the arrays are saved with their names, and with a run of the same layers."""
    model, passes, x = Reversed().eval(), [], torch.randn(1, 9, 16)

    def measure(out):
        passes.append(len(out))
        if len(passes) == 3:
            raise KeyboardInterrupt
        return out[:, -1, 5]

    found = rg.effects(model, inputs=x, measure=measure)
    rg.look(model, inputs=x, effects=found, into=tmp_path / "run")
    found.save(tmp_path / "effects.npz")
    held = np.load(tmp_path / "effects.npz")

    assert np.isnan(found.values).any(1).tolist() == [False, True, True]
    assert held["layers"].tolist() == list(found.layers)
    again = rg.Run.open(tmp_path / "run").effects
    assert str(again) == str(found)
    for values in (held["values"], again.values):
        np.testing.assert_array_equal(values, found.values)
    with refusing("effects of something else"):
        rg.look(Written("einsum"), inputs=x, effects=found)


def test_refusals_of_effects():
    """A model in training mode, batches, measures without logits, and unknown words."""
    layer, x = Written("einsum"), torch.randn(1, 9, 16)
    with refusing("training mode"):
        rg.effects(layer.train(), inputs=x)
    layer.eval()
    for given, words in (
        ({"inputs": x.expand(2, -1, -1)}, "a batch of several entries"),
        ({"inputs": x, "measure": "loss"}, "the output does not have this measure"),
        ({"inputs": x, "of": "words"}, "of= is not known"),
        ({"inputs": x, "head": 0}, "head= is not used"),
        ({"inputs": x, "token": 3}, "token= is not used"),
        ({"inputs": x, "target": "a"}, "a text or tokenizer for a module"),
        ({}, "nothing to run"),
        ({"inputs": x, "layer": 3}, "no attention call was changed"),
    ):
        with refusing(words):
            rg.effects(layer, **given)


class Hooks:
    """Patching by hooks: of row 2 after a block, and of what head 1 gives to an output projection."""

    def __init__(self, model, path):
        self.model, self.block = model, model.get_submodule(path[: path.index(".1.") + 2])
        self.outer, self.wide = model.get_submodule(path), model.get_submodule(path).weight.shape[1] // 4

    def run(self, inputs, head=lambda columns: columns, row=None):
        """The output of the model, of the head, and of the block, with these changes."""
        seen = []

        def before(_, args):
            columns = args[0][..., self.wide : 2 * self.wide]
            seen.append(columns.clone())
            columns.copy_(head(columns))

        def after(_, args, out):
            first = out if isinstance(out, torch.Tensor) else out[0]
            seen.append(first.clone())
            if row is not None:
                first[:, 2] = row[:, 2]

        handles = self.outer.register_forward_pre_hook(before), self.block.register_forward_hook(after)
        out = self.model(**inputs)
        for handle in handles:
            handle.remove()
        return out, *seen


@pytest.mark.parametrize("name", ["llama", "bert", "t5"])
@torch.no_grad()
def test_recipes_of_hooks(name):
    """Activation patching of the stream and of heads, means, and functions of a head, against hooks."""
    _, model, path = host(name)
    hooks, given = Hooks(model, path), inputs_of(name)
    other = {part: ids.flip(1) + 1 for part, ids in given.items()}
    (clean, own, _), (_, head, block) = hooks.run(given), hooks.run(other)
    mean = torch.cat([own, head], 1).mean(1, keepdim=True)
    layer = path.removesuffix(".output.dense").rpartition(".")[0] + "*"
    with rg.what_if(model, layer=layer, head=1, output=lambda out: out * 2 - 1):
        changed = model(**given)
    torch.testing.assert_close(total(changed), total(hooks.run(given, lambda out: out * 2 - 1)[0]))
    for of, source, at, expected in (
        ("stream", other, (-1, 2), hooks.run(given, row=block)),
        ("heads", other, (-1, 1), hooks.run(given, lambda _: head)),
        ("heads", [given, other], (-1, 1), hooks.run(given, lambda _: mean)),
    ):
        found = rg.effects(model, inputs=given, of=of, source=source, measure=total)
        np.testing.assert_allclose(found.values[at], float(total(expected[0]) - total(clean)), atol=1e-4)
        assert np.abs(found.values[at]) > 1e-3


@torch.no_grad()
def test_another_thread_runs_the_model():
    """It is in the middle of a layer where the block begins a call, and leaves it before the attention of that call."""
    run, model, _ = host("llama")
    register()
    model.set_attn_implementation("regard")
    plain = run()
    with rg.what_if(model, layer=1, output=0):
        expected = run()
    first, last = (layer.self_attn for layer in model.model.layers)
    entered, ready, outputs = threading.Event(), threading.Event(), []
    other = threading.Thread(target=lambda: outputs.append(run()))

    def meet(module, _):
        if threading.current_thread() is other and module is first:
            entered.set()
            ready.wait(60)
        elif threading.current_thread() is not other and module is last:
            ready.set()
            other.join()

    with rg.what_if(model, layer=1, output=0):
        handles = [module.register_forward_pre_hook(meet) for module in (first, last)]
        other.start()
        entered.wait(60)
        changed = run()
    for handle in handles:
        handle.remove()

    torch.testing.assert_close(changed, expected)
    torch.testing.assert_close(outputs[0], plain)
