"""Every mistake that is planted is found and named, at its layer, and the healthy twin is silent."""

from dataclasses import replace

import numpy as np
import pytest

import regard as rg
from regard.audits import checks as audit_checks
from regard.audits.finding import Finding, Passed, Skipped
from regard.lens import Axis, Call, Run
from regard.lens.runs.figures import measured

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


def call_of(
    q, k, v, out, *, name="attention", layer=0, mask=None, score=None, scale=None, start=None, sinks=None, **more
):
    """A call as a recording keeps it, from one batch entry's arrays and the rules that it was told."""
    (H, Q, D), K = q.shape, k.shape[1]
    rules = {
        "mask": mask,
        "score": score,
        "scale": D**-0.5 if scale is None else scale,
        "start": K - Q if start is None else start,
    }
    sinks = None if sinks is None else np.asarray(sinks).reshape(H, -1)
    found = measured(q, k, np.zeros(K, bool), **rules, sinks=sinks)
    return Call(name, layer, f"{Q}", f"{K}", q=q, k=k, **rules, sinks=sinks, v=v, out=out, **found, **more)


def run_of(*calls):
    """A run of these calls, on axes of plain positions."""
    sizes = {size for call in calls for size in call.shape[1:]}
    return Run("planted", "", {f"{size}": Axis.of(size) for size in sizes}, calls)


def checks(run, module=None, names=None):
    """What the checks of a run say about it: all of them, or those named."""
    chosen = audit_checks.of_run(audit_checks.names() if names is None else names)
    return (result for check in chosen for result in check.judge(run, module))


def alarms(results):
    """Faults and warnings."""
    return [found for found in results if isinstance(found, Finding) and found.severity != "note"]


class Capture:
    """An attention implementation of transformers: it notes what it is told about batch entry 0, and does as `plant`
    changes it.

    plant(told) -> told for the layers in `at`; told: q, k, v, scale, allowed (H, Q, K), softcap, bias, sinks of all
    entries.
    """

    def __init__(self, plant=None, at=(1,)):
        self.plant, self.at, self.calls, self.names = plant, at, [], {}

    def __call__(
        self,
        module,
        query,
        key,
        value,
        attention_mask,
        *,
        scaling=None,
        softcap=None,
        position_bias=None,
        s_aux=None,
        **_,
    ):
        told = {
            "q": query,
            "k": key,
            "v": value,
            "scale": query.shape[-1] ** -0.5 if scaling is None else scaling,
            "allowed": attention_mask,
            "softcap": softcap,
            "bias": position_bias,
            "sinks": s_aux,
        }
        layer = len(self.calls)
        out = carried_out(**(self.plant(dict(told)) if self.plant and layer in self.at else told))
        self.note(module, layer, told, out)
        return out.transpose(1, 2).contiguous(), None

    def note(self, module, layer, told, out):
        K, Q = told["k"].shape[2], told["q"].shape[2]
        q, k, v, out = (part[0].detach().numpy() for part in (told["q"], told["k"], told["v"], out))
        allowed, bias = told["allowed"], told["bias"]
        score = (
            rg.softcap(told["softcap"])
            if told["softcap"]
            else rg.bias(bias[0].detach().numpy(), query_start=K - Q)
            if bias is not None
            else None
        )
        mask = None if allowed is None else rg.dense(allowed[0].expand(1, Q, K).numpy(), query_start=K - Q)
        sinks = None if told["sinks"] is None else told["sinks"].detach().numpy()
        self.calls.append(
            call_of(
                q,
                k,
                v,
                out,
                name=self.names[module],
                layer=layer,
                mask=mask,
                score=score,
                scale=told["scale"],
                sinks=sinks,
                notes={"kind": "planted"},
            )
        )


def carried_out(q, k, v, scale, allowed, softcap, bias, sinks):
    """Attention, written out."""
    k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], 1) for part in (k, v))
    scores = scale * q @ k.transpose(-1, -2)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    if sinks is not None:
        scores = torch.cat([scores, sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    return torch.softmax(scores, -1)[..., : k.shape[2]] @ v


def recorded(model, plant=None, at=(1,), **inputs):
    """(run, model) of a transformers model whose attention is `Capture`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    capture = Capture(plant, at)
    AttentionInterface.register("planted", capture)
    AttentionMaskInterface.register("planted", lambda **given: sdpa_mask(**given | {"allow_is_causal_skip": False}))
    model.set_attn_implementation("planted")
    capture.names = {module: name for name, module in model.named_modules()}
    with torch.no_grad():
        model(**inputs)
    return run_of(*capture.calls), model


# Models whose attention does something else than it was told ----------------------------------------------------------


@pytest.fixture(scope="module")
def models():
    """Tiny random models by name, made once, with inputs of 12 tokens."""
    from regard.torch.hf.tiny_models import tiny_model

    made = {}

    def model(name):
        if name not in made:
            torch.manual_seed(0)
            made[name] = tiny_model(name)
        ids = torch.randint(3, 50, (1, 12), generator=torch.Generator().manual_seed(1))
        given = {"input_ids": ids}
        return made[name], given | ({"decoder_input_ids": ids.flip(1)} if name == "t5" else {})

    return model


def shifted(allowed, by):
    """Causal, with `by` keys more on the right."""
    return torch.arange(allowed.shape[-1]) <= torch.arange(allowed.shape[-2])[:, None] + by


def without(name):
    return lambda told: told | {name: None}


def scaled(change):
    return lambda told: told | {"scale": change(told["scale"], told["q"].shape[-1])}


def masked(change):
    return lambda told: told | {"allowed": change(told["allowed"])}


def tiled(told):
    repeats = told["q"].shape[1] // told["k"].shape[1]
    return told | {name: told[name].repeat(1, repeats, 1, 1) for name in "kv"}


def next_head(told):
    return told | {"v": told["v"].roll(-1, 1)}


PLANTED = {
    "scale left out": ("llama", scaled(lambda scale, D: 1.0), "scale", "no scale"),
    "scale doubled": ("llama", scaled(lambda scale, D: 2 * scale), "scale", "twice the scale"),
    "scale inverted": ("llama", scaled(lambda scale, D: D**0.5), "scale", "scale √D"),
    "root forgotten": ("llama", scaled(lambda scale, D: 1 / D), "scale", "applied twice"),
    "some other scale": ("llama", scaled(lambda scale, D: 1.3 * scale), "scale", "1.3 times as large"),
    "mask ignored": ("llama", without("allowed"), "mask", "no mask at all"),
    "sees the next token": ("llama", masked(lambda allowed: shifted(allowed, 1)), "mask", "one key more on the right"),
    "inverted mask": ("llama", masked(lambda allowed: ~allowed), "mask", "inverted"),
    "window one too short": (
        "mistral",
        masked(lambda allowed: allowed & ~shifted(allowed, -3)),
        "mask",
        "one key less on the left",
    ),
    "window ignored": ("mistral", masked(lambda allowed: shifted(allowed, 0)), "mask", "a causal mask alone"),
    "heads tiled": ("mistral", tiled, "groups", "mod 2"),
    "values of the next head": ("llama", next_head, "heads", "v of the next head"),
    "softcap dropped": ("gemma2", without("softcap"), "softcap", "without the softcap"),
    "sinks dropped": ("gpt_oss", without("sinks"), "sinks", "without its sinks"),
    "bias dropped": ("t5", without("bias"), "bias", "without the bias"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_mistake_is_found_named_and_placed(planted, models):
    """One layer that does something else than it was told is a fault of that layer alone, by the name of the
    mistake.
    """
    name, plant, check, words = PLANTED[planted]
    model, given = models(name)

    found = alarms(checks(*recorded(model, plant, **given)))

    assert [(finding.check, finding.severity, finding.call) for finding in found] == [(check, "fault", 1)]
    assert words in found[0].measured and found[0].where.startswith("call 1 (")


@pytest.mark.parametrize("name", sorted({name for name, *_ in PLANTED.values()}))
def test_the_healthy_twin_is_silent(name, models):
    """The same models without a mistake: no fault, no warning, and the outputs were really compared."""
    model, given = models(name)

    results = list(checks(*recorded(model, **given)))

    assert alarms(results) == []
    assert any(isinstance(found, Passed) and found.check == "output" for found in results)


def test_two_mistakes_at_once_are_both_named(models):
    """A layer without scale and mask is found by both checks."""
    model, given = models("llama")

    found = alarms(checks(*recorded(model, lambda told: told | {"scale": 1.0, "allowed": None}, **given)))

    assert {finding.check for finding in found} == {"scale", "mask"} and all(
        "no mask at all" in finding.measured for finding in found
    )


def test_padding_that_the_mask_forgets(models):
    """Left padding that an implementation does not mask is a mask ignored but for its causality."""
    model, given = models("llama")
    seen = torch.ones(1, 12, dtype=torch.long)
    seen[0, :4] = 0
    plant = masked(lambda allowed: shifted(allowed, 0))

    found = alarms(checks(*recorded(model, plant, **given, attention_mask=seen)))
    healthy = list(checks(*recorded(model, **given, attention_mask=seen)))

    assert [(finding.check, finding.call) for finding in found] == [("mask", 1)] and "a causal mask alone" in found[
        0
    ].measured
    assert alarms(healthy) == []


def test_a_mask_aligned_at_the_wrong_end(models):
    """Three new rows over a cache: a mask that begins at the top left is a matter of alignment."""
    from transformers import DynamicCache

    model, given = models("llama")

    def stepped(plant):
        cache = DynamicCache(config=model.config)
        ids = given["input_ids"]
        recorded(model, input_ids=ids[:, :9], past_key_values=cache)
        return alarms(checks(*recorded(model, plant, input_ids=ids[:, 9:], past_key_values=cache)))

    found = stepped(masked(lambda allowed: shifted(allowed, 0)))

    assert [(finding.check, finding.call) for finding in found] == [("alignment", 1)] and "top left" in found[
        0
    ].measured
    assert stepped(None) == []


# Functions whose output is looked at alone ----------------------------------------------------------------------------


@pytest.fixture
def arrays():
    """q (4, 24, 16), k and v (2, 24, 16)."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((4, 24, 16), np.float32), *rng.standard_normal((2, 2, 24, 16), np.float32)


def softmax(scores, axis=-1):
    weights = np.exp(scores - scores.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


def heads_and_rows(out):
    return out.swapaxes(0, 1).reshape(out.shape)


CAUSAL = np.tri(24, dtype=bool)
WRONG = {
    "a mask that comes after the softmax": ("mask", lambda s, v: (softmax(s) * CAUSAL) @ v),
    "a mask added as numbers 0 and 1": ("mask", lambda s, v: softmax(s + CAUSAL) @ v),
    "scores that the mask sets to 0": ("mask", lambda s, v: softmax(s * CAUSAL) @ v),
    "a softmax over the queries": ("softmax", lambda s, v: softmax(np.where(CAUSAL, s, -1e30), -2) @ v),
    "other heads (1 in place of 0": ("heads", lambda s, v: (softmax(np.where(CAUSAL, s, -1e30)) @ v)[[1, 0, 3, 2]]),
    "heads and rows that changed places": (
        "heads",
        lambda s, v: heads_and_rows(softmax(np.where(CAUSAL, s, -1e30)) @ v),
    ),
    "no usual mistake": ("output", lambda s, v: softmax(np.where(CAUSAL, s, -1e30)) @ v + 0.01),
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_functions_are_named(words, arrays):
    """Usual mistakes in a function written by hand, and one that has no name."""
    q, k, v = arrays
    check, wrong = WRONG[words]
    each = np.arange(4) // 2
    out = wrong(q @ k[each].swapaxes(1, 2) / 4, v[each]).astype(np.float32)

    found = alarms(checks(run_of(call_of(q, k, v, out, mask=rg.causal()))))

    assert [finding.check for finding in found] == [check] and words in found[0].measured


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_noise_of_a_dtype_is_no_mistake_and_hides_none(dtype, arrays):
    """torch's own attention in each dtype is silent with scores from small to large; a scale of 5 % too much is found
    where the dtype can tell.
    """
    import ml_dtypes

    for size in (0.1, 1.0, 3.0):
        q, k, v = (
            torch.from_numpy(part).to(getattr(torch, dtype))
            for part in (arrays[0] * size, arrays[1][[0, 0, 1, 1]], arrays[2][[0, 0, 1, 1]])
        )
        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype

        def alarmed(factor, q=q, k=k, v=v, kind=kind):
            right = torch.nn.functional.scaled_dot_product_attention(
                q[None], k[None], v[None], is_causal=True, scale=factor / 4
            )[0]
            host = [
                part.float().numpy().astype(kind) if dtype != "float64" else part.numpy() for part in (q, k, v, right)
            ]
            return [finding.check for finding in alarms(checks(run_of(call_of(*host, mask=rg.causal()))))]

        assert alarmed(1.0) == []
        if size == 1.0 and dtype.startswith("float"):
            assert alarmed(1.5) == ["scale"]


LOOSE = {
    "two keys ahead": (rg.key <= rg.query + 2, ("note", None), "sees a key after its own, up to 2 ahead"),
    "one head of two sees all": ((rg.key <= rg.query) | (rg.head == 1), ("fault", 1), "every key is seen"),
    "not itself": ((rg.key < rg.query), ("fault", None), "does not see its own key"),
    "not itself, but for the first": (
        (rg.key < rg.query) | (rg.key + rg.query <= 0),
        ("fault", None),
        "but for the first",
    ),
}


@pytest.mark.parametrize("words", LOOSE)
def test_masks_of_calls_that_are_declared_causal(words, arrays):
    """Each head's mask is read; a row that sees later keys is at least worth a note, whatever else the mask is."""
    q, k, v = arrays
    mask, expected, measured = LOOSE[words]
    out = rg.attention(q[:2], k, v, mask=mask).astype(np.float32)
    call = call_of(q[:2], k, v, out, mask=mask, notes={"causal": True})

    found = [each for each in checks(run_of(call), None, ["mask"]) if isinstance(each, Finding)]

    assert [(each.severity, each.head) for each in found] == [expected] and measured in found[0].measured


@pytest.mark.parametrize("written_out", [False, True], ids=["SDPA", "written out"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("low", [-5.0, -200.0, -1e4, -1e9, -1e30])
def test_finite_numbers_that_leave_no_weight_are_a_mask(low, dtype, written_out):
    """What is added to later keys hides them where their weight is then 0 in float32; a mask off by one is named beside
    it. In bfloat16 −10⁴ is −9984.
    """

    class Adding(torch.nn.Module):
        def __init__(self, diagonal):
            super().__init__()
            torch.manual_seed(0)
            self.qkv, self.diagonal = torch.nn.Linear(32, 96), diagonal

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(2, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            added = torch.full((20, 20), low, dtype=dtype).triu(self.diagonal)
            if written_out:
                return torch.softmax(q @ k.mT * 8**-0.5 + added, -1) @ v
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added)

    x = torch.randn(1, 20, 32, dtype=dtype)
    right, wrong = (rg.audit(Adding(at).to(dtype).eval(), inputs=x, causal=True, checks=["mask"]) for at in (1, 2))

    assert [each.check for each in right.findings] == ([] if low < -100 else ["mask"]), str(right)
    assert [each.severity for each in wrong.findings] == ["fault"]
    assert low > -1e4 or "the diagonal is off by one" in wrong.findings[0].cause


@pytest.mark.parametrize("config", [{"num_heads": 4}, ("four", "heads"), 4])
def test_a_configuration_may_be_anything(config):
    """Modules keep dicts and tuples as their configuration; such a layer declares nothing."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.qkv, self.config = torch.nn.Linear(32, 96), config

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(2, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)

    found = rg.audit(Layer().eval(), inputs=torch.randn(1, 9, 32), checks=["scale", "mask", "groups"])

    assert found.findings == () and {each.check for each in found.skipped + found.passed} == {"scale", "mask", "groups"}


def test_bands_that_nobody_knows_are_not_said_to_be_declared(arrays):
    """A causal mask with a hole is no mistake, and is not counted as what the layer declares."""
    q, k, v = arrays
    mask = (rg.key <= rg.query) & ((rg.key < 3) | (rg.key > 4) | (rg.query < 20))
    out = rg.attention(q, k, v, mask=mask).astype(np.float32)

    found = list(checks(run_of(call_of(q, k, v, out, mask=mask, notes={"causal": True})), None, ["mask"]))

    assert [type(each) for each in found] == [Passed] and "declare" not in found[0].measured


def test_what_the_caller_says_reaches_the_recorded_calls():
    """Rows that do not see their own key are a fault of the mask where the caller says causal=True, and unknown
    otherwise.
    """

    def attend(x):
        q = x.unflatten(2, (2, -1)).transpose(1, 2)
        seen = torch.ones(12, 12, dtype=torch.bool).tril(-1)
        seen[0, 0] = True
        return sdpa(q, q, q, attn_mask=seen).transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    x = torch.randn(1, 12, 32)

    assert [each.check for each in rg.audit(attend, inputs=x, causal=True, checks=["mask"]).findings] == ["mask"]
    assert rg.audit(attend, inputs=x, checks=["mask"]).healthy


def test_one_wrong_head_is_placed(arrays):
    """A mistake in a single head names that head, and the first row that shows it."""
    q, k, v = arrays
    out = rg.attention(q, k, v, mask=rg.causal())
    out[2] = rg.attention(q, k, v)[2]

    found = alarms(checks(run_of(call_of(q, k, v, out, mask=rg.causal()))))

    assert [(finding.check, finding.head, finding.row) for finding in found] == [("mask", 2, 0)]


def test_what_was_not_kept_is_not_judged(arrays):
    """Without values and outputs the checks that need them are skipped, and say so."""
    q, k, _ = arrays

    results = list(checks(run_of(call_of(q, k, None, None))))

    assert alarms(results) == [] and {"output", "mask", "dead"} <= {
        each.check for each in results if isinstance(each, Skipped)
    }
    assert {each.check for each in results} == {each.name for each in audit_checks.of_run(audit_checks.names())}


# Models that are recorded as they are: what a layer declares, against what its call was told --------------------------


def written(scale=lambda scale: scale, mask=lambda mask: mask, tiled=False, leak=False, values=False):
    """transformers' own eager attention, with a mistake in layer 1."""

    def attend(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
        wrong = module.layer_idx == 1
        groups = query.shape[1] // key.shape[1]
        repeat = (
            (lambda part: part.repeat(1, groups, 1, 1))
            if wrong and tiled
            else lambda part: part.repeat_interleave(groups, 1)
        )
        scores = torch.matmul(query, repeat(key).transpose(2, 3)) * (scale(scaling) if wrong else scaling)
        seen = mask(attention_mask) if wrong else attention_mask
        weights = torch.softmax(scores if seen is None else scores + seen, -1)
        if wrong and leak:
            weights = torch.softmax(scores, -1) * (attention_mask == 0)
        values_too = value.repeat(1, groups, 1, 1) if wrong and values else repeat(value)
        return torch.matmul(weights, values_too).transpose(1, 2).contiguous(), weights

    return attend


def ahead(mask):
    """One key more on the right."""
    return torch.where(shifted(mask, 1), 0.0, torch.finfo(mask.dtype).min)


DECLARED = {
    "scale left out": (written(scale=lambda scale: 1.0), "scale", "fault", "the scale was left out"),
    "scale doubled": (written(scale=lambda scale: 2 * scale), "scale", "fault", "the scale is doubled"),
    "scale inverted": (written(scale=lambda scale: 1 / scale), "scale", "fault", "the scale is inverted"),
    "mask ignored": (written(mask=lambda mask: None), "mask", "fault", "the mask is dropped"),
    "sees the next token": (written(mask=ahead), "mask", "fault", "off by one"),
    "window one too wide": (written(mask=lambda mask: window_of(mask, 5)), "mask", "fault", "the window is off by one"),
    "window ignored": (written(mask=lambda mask: window_of(mask, 99)), "mask", "fault", "the window was left out"),
    "heads tiled": (written(tiled=True), "groups", "fault", "keys and values are repeated as blocks"),
    "values tiled": (written(values=True), "groups", "fault", "values are repeated as blocks"),
    "a mask that comes after the softmax": (written(leak=True), "weights", "fault", "the mask came after the softmax"),
}


def window_of(mask, width):
    near = shifted(mask, 0) & ~shifted(mask, -width)
    return torch.where(near, 0.0, torch.finfo(mask.dtype).min)


@pytest.mark.parametrize("planted", [None, *DECLARED])
def test_attention_that_a_model_writes_out_against_what_its_layers_declare(planted, models, monkeypatch):
    """Recorded as it is, an eager model whose layer 1 does otherwise than it declares is found there; the healthy one
    is silent.
    """
    from transformers.models.mistral import modeling_mistral

    from regard.lens.look import look

    attend, check, severity, words = DECLARED.get(planted, (written(), None, None, ""))
    model, given = models("mistral")
    monkeypatch.setattr(modeling_mistral, "eager_attention_forward", attend)
    model.set_attn_implementation("eager")

    found = alarms(checks(look(model, inputs=given, values=True), model))

    assert [(finding.check, finding.severity, finding.call) for finding in found] == (
        [] if planted is None else [(check, severity, 1)]
    )
    assert all(words in finding.cause for finding in found)


def test_a_scale_that_was_changed_on_the_layer_itself(models):
    """Where the layer declares the wrong scale as well, the usual one and the other layers tell."""
    from regard.lens.look import look

    model, given = models("llama")
    model.set_attn_implementation("sdpa")
    layer = model.model.layers[1].self_attn
    right = layer.scaling
    try:
        layer.scaling = 2 * right
        found = alarms(checks(look(model, inputs=given), model))
    finally:
        layer.scaling = right

    assert [(finding.check, finding.severity, finding.call) for finding in found] == [("scale", "warning", 1)]
    assert "doubled" in found[0].cause and found[0].numbers["factor"] == pytest.approx(2)


class ByHand(torch.nn.Module):
    """Attention written by hand, which declares nothing."""

    def __init__(self, attend):
        super().__init__()
        self.qkv, self.attend = torch.nn.Linear(32, 96), attend

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.attend(q, k, v).transpose(1, 2).flatten(2)


def sdpa(q, k, v, **rules):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, **rules)


def weighted(part):
    return torch.nn.functional.rms_norm(part, (16,), torch.linspace(0.5, 1.5, 16))


BY_HAND = {
    "healthy": (lambda q, k, v: sdpa(q, k, v, is_causal=True), None),
    "normed q and k": (
        lambda q, k, v: sdpa(*(torch.nn.functional.normalize(part, dim=-1) for part in (q, k)), v, scale=1.0),
        None,
    ),
    "q scaled before": (lambda q, k, v: sdpa(q / 4, k, v, scale=1.0), None),
    "q and k scaled before": (lambda q, k, v: sdpa(q / 2, k / 2, v, scale=1.0), None),
    "q scaled before, written out": (lambda q, k, v: torch.softmax((q / 4) @ k.mT, -1) @ v, None),
    "q and k normed with weights": (lambda q, k, v: sdpa(weighted(q), weighted(k), v, scale=1.0), None),
    "scaled before and by the call": (lambda q, k, v: sdpa(q / 4, k, v), ("scale", "warning")),
    "no scale": (lambda q, k, v: sdpa(q, k, v, scale=1.0), ("scale", "warning")),
    "inverted scale": (lambda q, k, v: sdpa(q, k, v, scale=4.0), ("scale", "warning")),
    "scaled twice": (lambda q, k, v: sdpa(q, k, v, scale=1 / 16), ("scale", "warning")),
    "top left": (lambda q, k, v: sdpa(q[:, :, -3:], k, v, is_causal=True), ("alignment", "fault")),
    "booleans added": (
        lambda q, k, v: torch.softmax(q @ k.mT / 4 + torch.ones(12, 12).tril().bool(), -1) @ v,
        ("mask", "fault"),
    ),
    "along the queries": (lambda q, k, v: torch.softmax(q @ k.mT / 4, -2) @ v, ("weights", "fault")),
    "dropout left on": (
        lambda q, k, v: torch.dropout(torch.softmax(q @ k.mT / 4, -1), 0.3, True) @ v,
        ("weights", "fault"),
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_modules_written_by_hand(name):
    """Mistakes in a plain torch module that declares nothing are named, and its healthy twins are silent."""
    from regard.lens.look import look

    attend, expected = BY_HAND[name]
    torch.manual_seed(0)
    module = ByHand(attend).eval()

    found = alarms(checks(look(module, inputs=torch.randn(1, 12, 32)), module))

    assert [(finding.check, finding.severity) for finding in found] == ([] if expected is None else [expected])


@pytest.mark.parametrize("shown", [False, True], ids=["SDPA", "weights are returned"])
def test_the_attention_of_torch_is_silent(shown):
    """torch.nn.MultiheadAttention, which scales q itself where it returns weights, is healthy."""

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(32, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=shown)[0]

    torch.manual_seed(0)
    found = rg.audit(Encoder().eval(), inputs=torch.randn(1, 12, 32), checks=["scale"])

    assert not found.findings and [each.check for each in found.passed] == ["scale"], str(found)


def test_arguments_that_never_reached_the_call(arrays):
    """A softcap, sinks or a bias that the layers have and a call was not told of are named, unless they make no
    difference.
    """
    q, k, v = arrays
    each = np.arange(4) // 2
    scores, bias = q @ k[each].swapaxes(1, 2) / 4, np.random.default_rng(1).standard_normal((4, 24, 24), np.float32)
    out = softmax(scores) @ v[each]
    layer = torch.nn.ModuleDict({"attention": torch.nn.Module()})
    layer["attention"].sinks = torch.nn.Parameter(torch.ones(4))

    def found(*calls, module=None):
        return [(found.check, found.severity, found.call) for found in alarms(checks(run_of(*calls), module))]

    assert found(call_of(q, k, v, out, notes={"softcap": 5.0})) == [("softcap", "fault", 0)]
    assert found(call_of(q, k, v, out, notes={"softcap": 1e9})) == []
    assert (
        found(
            call_of(q, k, v, softmax(5 * np.tanh(scores / 5)) @ v[each], score=rg.softcap(5.0), notes={"softcap": 5.0})
        )
        == []
    )
    assert found(call_of(q, k, v, out), module=layer) == [("sinks", "fault", 0)]

    biased = call_of(q, k, v, softmax(scores + bias) @ v[each], score=rg.bias(bias), name="layers.0.attention")
    assert found(biased, call_of(q, k, v, out, name="layers.1.attention")) == [("bias", "warning", 1)]
    assert found(biased, call_of(q, k, v, out, name="cross.1.attention")) == []


# Numbers, rows, weights, heads ----------------------------------------------------------------------------------------


def test_the_first_nan_is_placed(models):
    """A NaN weight shows first in what it makes; what follows is only counted."""
    from regard.lens.look import look

    model, given = models("llama")
    model.set_attn_implementation("sdpa")
    weight = model.model.layers[1].self_attn.v_proj.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight[3] = float("nan")
        found = alarms(checks(look(model, inputs=given), model))
        weight.copy_(before)

    assert [(finding.check, finding.call, finding.numbers["array"]) for finding in found] == [("numbers", 1, "v")]


def test_arrays_that_are_spoiled_apart_are_all_named(arrays):
    """NaN in q does not hide infinity in k, and nothing is said of an x that was not kept."""
    from regard.lens.look import look

    q, k, _ = (part.copy() for part in arrays)
    q[1, 2, 3], k[0, 4, 5] = np.nan, np.inf

    (found,) = alarms(checks(look(q, k=k), None, ["numbers"]))

    assert "q holds 1 " in found.measured and "k holds 1 " in found.measured and found.numbers["arrays"] == ["q", "k"]
    assert "x, which was not kept" in found.cause and "q and k" in found.cause and "finite" not in found.cause


def test_products_beyond_float16(arrays):
    """q·k beyond 65504 is a warning where the output survived, and a fault where it did not."""
    q, k, v = (part.astype(np.float16) for part in (arrays[0] * 200, arrays[1] * 200, arrays[2]))
    each = np.arange(4) // 2
    exact = np.float32(q) @ np.float32(k[each]).swapaxes(1, 2)
    out = (softmax(exact / 4) @ np.float32(v[each])).astype(np.float16)
    with np.errstate(all="ignore"):
        lost = (softmax(np.float16(exact) / 4) @ v[each]).astype(np.float16)

    def found(q, k, out):
        return [(each.check, each.severity) for each in alarms(checks(run_of(call_of(q, k, v, out))))]

    assert ("overflow", "warning") in found(q, k, out) and np.isnan(lost).any()
    assert {("overflow", "fault"), ("numbers", "fault")} <= set(found(q, k, lost))


def test_scores_that_16_bit_cannot_tell_apart(arrays):
    """A large part that all scores share uses up the bits of bfloat16."""
    import ml_dtypes

    q, k, v = arrays
    k = k + 40 * np.sign(q.mean((0, 1)))
    q = np.abs(q) * np.sign(q.mean((0, 1))) * 0.5 + np.sign(q.mean((0, 1))) * 4
    results = checks(run_of(call_of(*(part.astype(ml_dtypes.bfloat16) for part in (q, k, v)), None)))

    assert [(found.check, found.severity) for found in alarms(results)] == [("overflow", "warning")]


@pytest.mark.parametrize("convention", ["0", "the mean of all values", "NaN"])
def test_rows_without_keys_and_their_convention(convention, arrays):
    """What an implementation makes of rows that may attend nothing is said, and NaN is a fault."""
    q, k, v = arrays
    each = np.arange(4) // 2
    seen = np.tri(24, dtype=bool)
    seen[:, :2] = False
    with np.errstate(all="ignore"):
        out = softmax(np.where(seen, q @ k[each].swapaxes(1, 2) / 4, -np.inf)) @ v[each]
    out[:, :2] = {"0": 0, "NaN": np.nan}.get(convention, v[each].mean(1, keepdims=True))

    found = [
        each
        for each in checks(run_of(call_of(q, k, v, out.astype(np.float32), mask=rg.causal() & (rg.key >= 2))))
        if isinstance(each, Finding)
    ]

    assert [(each.check, each.severity) for each in found] == [
        ("empty-rows", "fault" if convention == "NaN" else "note")
    ]
    assert found[0].numbers == {"rows": 2, "convention": convention, "heads": [0, 1, 2, 3]}


GIVEN = {
    "rows that sum to less than 1": lambda weights: weights * 0.9,
    "rows that sum to more than 1": lambda weights: weights * 1.1,
    "negative weights": lambda weights: weights - np.float32(0.01) * CAUSAL,
    "weight on keys that the mask forbids": lambda weights: weights + np.float32(0.01) * ~CAUSAL,
}


@pytest.mark.parametrize("words", [None, *GIVEN])
def test_weights_that_were_handed_over(words, arrays):
    """Weights that no softmax over the allowed keys gives are a fault, the worst of it first; a softmax in float32 is
    none.
    """
    from regard.lens.look import look

    weights = softmax(np.where(CAUSAL, arrays[0] @ arrays[1][[0, 0, 1, 1]].swapaxes(1, 2), -np.inf).astype(np.float32))

    found = alarms(checks(look(weights=weights if words is None else GIVEN[words](weights), mask=rg.causal())))

    assert {finding.check for finding in found} == (set() if words is None else {"weights"})
    assert words is None or found[0].measured.startswith(words)


def test_faults_of_weights_in_other_rows_are_named_too():
    """What is wrong in one row hides nothing that is wrong in another."""
    from regard.lens.look import look

    weights = np.tri(6)[None] / np.arange(1, 7)[:, None]
    weights[0, 5] *= 1.5
    weights[0, 3, :2] += [0.5, -0.5]
    weights[0, 1] = [0.5, 0.25, 0.25, 0, 0, 0]

    found = alarms(checks(look(weights=weights, mask=rg.causal()), None, ["weights"]))

    assert [(each.row, each.numbers["what"]) for each in found] == [
        (1, "weight on keys that the mask forbids"),
        (3, "negative weights"),
        (5, "rows that sum to more than 1"),
    ]


@pytest.mark.parametrize("dtype", [np.int64, np.int8, bool])
def test_weights_of_whole_numbers(dtype):
    """Weights 0 and 1 are weights, whatever kind of number they come as."""
    results = list(checks(rg.look(weights=np.eye(4, dtype=dtype)[None]), None, ["weights"]))

    assert [type(each) for each in results] == [Passed], str(results)


@pytest.mark.parametrize("told", ["nope", 5, "int8", "torch.bool"])
def test_notes_that_name_no_dtype(told, arrays):
    """What stands in the notes of a foreign run stops no audit."""
    q, k, v = arrays
    run = run_of(call_of(q, k, v, rg.attention(q, k, v).astype(np.float32), notes={"dtype": told}))

    assert alarms(checks(run)) == []


def test_eight_bits_are_no_fault(arrays):
    """Attention on numbers of 8 bits, whose outputs have 3 bits after the first, is within their rounding."""
    import ml_dtypes

    q, k, v = (part.astype(ml_dtypes.float8_e4m3fn) for part in arrays)
    out = rg.attention(*(part.astype(np.float32) for part in (q, k, v))).astype(ml_dtypes.float8_e4m3fn)
    call = call_of(*(part.astype(np.float32) for part in (q, k, v, out)))

    assert alarms(checks(run_of(replace(call, q=q, k=k, v=v, out=out)), None, ["output", "scale"])) == []


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_softmax_of_few_bits_is_named(kind):
    """Weights that are rounded to 16 bits in a module of 32 are a note that says so, not a fault with another cause."""
    torch.manual_seed(0)
    dtype = getattr(torch, kind)
    module = ByHand(lambda q, k, v: torch.softmax((q @ k.mT / 4).to(dtype), -1).float() @ v).eval()

    found = rg.audit(module, inputs=torch.randn(1, 200, 32), checks=["weights", "output", "softmax"])

    assert found.healthy, str(found)
    assert [(each.check, kind in each.cause) for each in found.findings] == [("weights", True)], str(found)


def test_values_of_large_calls_are_kept(monkeypatch):
    """A call of a module that is larger than what `look` keeps unasked is compared all the same."""

    def attend(x):
        q = x.unflatten(2, (2, -1)).transpose(1, 2)
        return sdpa(q, q, q).transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    monkeypatch.setattr("regard.lens.recording.keeper.VALUES", 1000)
    found = rg.audit(attend, inputs=torch.randn(1, 12, 32), checks=["output"])

    assert [each.check for each in found.passed] == ["output"], str(found)


def test_windows_that_are_never_reached_are_told():
    """A check that passes on a text shorter than the window says that the window was not reached."""
    from regard.torch.hf.tiny_models import tiny_model

    torch.manual_seed(0)
    model = tiny_model("mistral")
    for part in (model.config, *(layer.self_attn for layer in model.model.layers)):
        part.sliding_window = 4096
    found = rg.audit(model, checks=["mask", "cache"])

    assert [each.check for each in found.passed] == ["cache", "mask"]
    assert all("window" in each.measured and "4096" in each.measured for each in found.passed), str(found)


def heads_of(name, run):
    """{call: heads} that a check has notes about."""
    found = [each for each in checks(run, None, [name]) if isinstance(each, Finding)]
    assert all(each.severity == "note" for each in found)
    return {each.call: each.numbers["heads"] for each in found}


def test_heads_that_stand_out_are_noted(arrays):
    """Saturated, even, dead, equal and resting heads are notes on these heads; ordinary heads have none."""
    q, k, v = np.repeat(arrays[0], 2, 0), np.repeat(arrays[1], 4, 0).copy(), np.repeat(arrays[2], 4, 0).copy()
    q[1] *= 1000
    q[2] = 0
    v[3] = 0
    q[5] = q[4]
    k[6, 0], q[6, :, 0] = 0, 4
    k[6, 0, 0] = 8
    out = softmax(np.where(CAUSAL, q @ k.swapaxes(1, 2) / 4, -1e30)) @ v
    run = run_of(call_of(q, k, v, out.astype(np.float32), mask=rg.causal()))

    found = {name: heads_of(name, run).get(0, []) for name in ("saturated", "uniform", "dead", "duplicate", "sink")}

    assert found == {"saturated": [1], "uniform": [2], "dead": [3], "duplicate": [4, 5], "sink": [6]}
    assert alarms(checks(run)) == []


def test_what_ran_and_what_never_arrived(models):
    """A layer set to one implementation that runs another is noted; layers of which no call was seen are a warning."""
    from regard.lens.look import look

    model, given = models("llama")
    model.set_attn_implementation("sdpa")
    run = look(model, inputs=given)
    model.set_attn_implementation("eager")
    after = [found for found in checks(run, model, ["implementation"]) if isinstance(found, Finding)]
    fewer = replace(run, calls=run.calls[:1])

    assert [(found.check, found.severity) for found in after] == [("implementation", "note")] * 2
    assert [found.check for found in alarms(checks(fewer, model))] == ["arrived"]
    assert [type(found) for found in checks(run, model, ["arrived"])] == [Passed]
