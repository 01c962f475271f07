"""Audits of behaviour: every planted fault is found and named, its healthy twin is silent, and nothing is left
behind.
"""

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers.models.bert import modeling_bert
from transformers.models.llama import modeling_llama
from typer.testing import CliRunner

import regard as rg
from regard.audits import audit
from regard.audits.checks import CHECKS, OfModel, OfRule, OfRun, names, of_model
from regard.audits.difference import ALLOWED
from regard.audits.finding import Passed
from regard.audits.make_subject import of_module, of_transformers
from regard.cli import app
from regard.lens.look import look
from regard.torch.hf.tiny_models import tiny_model


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tiny models are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


BEHAVIOUR = [check.name for check in of_model(names())]
LENGTH = 17


class Small(torch.nn.Module):
    """A causal language model of one layer that can be made ill in one place each."""

    def __init__(self, sees=None, heads=None, after=None):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.places = torch.nn.Embedding(40, 16), torch.nn.Embedding(64, 16)
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 40)
        self.sees, self.heads, self.after = sees or sees_past, heads or split, after or (lambda x: x)

    def forward(self, ids, attention_mask=None):
        n = ids.shape[1]
        x = self.table(ids) + self.places(torch.arange(n))
        q, k, v = (self.heads(part) for part in self.qkv(x).chunk(3, -1))
        seen = self.sees(n, None if attention_mask is None else attention_mask[:, None, None].bool())
        scores = (q @ k.transpose(2, 3) / 2).masked_fill(~seen, -torch.inf)
        mixed = (scores.softmax(-1).nan_to_num(0) @ v).transpose(1, 2).flatten(2)
        return self.out(self.after(x + mixed))


def split(x):
    """(B, n, 16) -> (B, 4 heads, n, 4)."""
    return x.unflatten(2, (4, 4)).transpose(1, 2)


def sees_past(n, real, diagonal=0):
    """Keys up to the row's own position, without padding."""
    past = torch.ones(n, n, dtype=torch.bool).tril(diagonal)
    return past if real is None else past & real


def sees_all(n, real):
    """Every key that is no padding."""
    return torch.ones(n, n, dtype=torch.bool) if real is None else real


def words(seed=0, n=LENGTH):
    """Tokens, every one of 1 to 39 about as likely."""
    return torch.randint(1, 40, (1, n), generator=torch.Generator().manual_seed(seed))


def only(found):
    """The one finding that is no note."""
    findings = [finding for finding in found.findings if finding.severity != "note"]
    assert len(findings) == 1, str(found)
    return findings[0]


def neighbours(x):
    """The mean with the positions on both sides."""
    return (x + torch.nn.functional.pad(x, (0, 0, 1, 1))[:, 2:] + torch.nn.functional.pad(x, (0, 0, 1, 1))[:, :-2]) / 3


PLANTED = {
    "no causal mask": ({"sees": sees_all}, True, "future-leak", "without a causal mask", {"reach": LENGTH - 1}),
    "off by one": ({"sees": functools.partial(sees_past, diagonal=1)}, True, "future-leak", "off by one", {"reach": 1}),
    "causal with a mask only": (
        {"sees": lambda n, real: (sees_all if real is None else sees_past)(n, real)},
        True,
        "future-leak",
        "lost without a mask, and holds with padding",
        {"ways": ["without a mask"]},
    ),
    "causal without a mask only": (
        {"sees": lambda n, real: (sees_past if real is None else sees_all)(n, real)},
        True,
        "future-leak",
        "lost with padding, and holds without a mask",
        {"ways": ["with padding"]},
    ),
    "heads and positions mixed": ({"heads": lambda x: x.reshape(len(x), 4, -1, 4)}, True, "future-leak", "view", {}),
    "padding seen": (
        {"sees": lambda n, real: sees_all(n, None)},
        False,
        "padding-leak",
        "does not reach the attention",
        {},
    ),
    "padding seen, and causal": (
        {"sees": lambda n, real: sees_past(n, None)},
        True,
        "padding-leak",
        "does not reach the attention",
        {"ways": ["the content of left padding"]},
    ),
    "mask inverted": (
        {"sees": lambda n, real: sees_all(n, None if real is None or real.all() else ~real)},
        False,
        "padding-leak",
        "inverted",
        {},
    ),
    "padding at the neighbours": (
        {"sees": sees_all, "after": neighbours},
        False,
        "padding-leak",
        "neighbours",
        {"rows": [LENGTH - 1]},
    ),
    "padding counted": (
        {"sees": sees_all, "after": lambda x: x / x.shape[1]},
        False,
        "padding-leak",
        "its presence is felt",
        {},
    ),
    "mean over the batch": (
        {"after": lambda x: x + x.mean(0)},
        True,
        "batch-dependence",
        "statistics over the batch",
        {},
    ),
    "entries counted": ({"after": lambda x: x * len(x)}, True, "batch-dependence", "the number of entries", {}),
    "dropout left on": (
        {"after": lambda x: torch.nn.functional.dropout(x, 0.1)},
        True,
        "determinism",
        "dropout without",
        {},
    ),
    "numbers divided by 0": ({"after": lambda x: x / (x - x)}, True, "finite", "the model (Small)", {}),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_and_named(fault):
    """Each fault is found by its own check, its cause is named, and what was measured lies beyond the threshold."""
    made, causal, check, cause, numbers = PLANTED[fault]

    whole = audit(Small(**made).eval(), inputs=words(), causal=causal, checks=BEHAVIOUR)
    found = whole.findings[0]

    assert (found.check, found.severity) == (check, "fault")
    assert cause in found.cause
    assert {name: found.numbers[name] for name in numbers} == numbers
    if check != "finite":
        assert found.numbers["difference"] > 100 * found.numbers["threshold"] > 0
    # A mask that is lost is lost for padding as well.
    assert {each.check for each in whole.findings[1:]} <= ({"padding-leak"} if check == "future-leak" else set())


@pytest.mark.parametrize("made", [{}, {"sees": sees_all}], ids=["causal", "both ways"])
def test_the_healthy_twin_is_silent(made):
    """The same model without a fault has no finding at all, and every check that applies says what it measured."""
    found = audit(Small(**made).eval(), inputs=words(), causal=not made, checks=BEHAVIOUR)

    assert found.healthy and not found.findings
    assert {each.check for each in found.passed} >= {"finite", "determinism", "padding-leak", "batch-dependence"}
    assert ("future-leak" in {each.check for each in found.passed}) == (not made)


def test_where_the_future_shows():
    """The place that is named is the last position that feels a token one ahead."""
    found = only(
        audit(
            Small(functools.partial(sees_past, diagonal=1)).eval(), inputs=words(), causal=True, checks=["future-leak"]
        )
    )

    assert found.row == found.numbers["changed_from"] - 1
    assert found.numbers["rows"] == [found.row]


# --- transformers


def planted(monkeypatch, module, change):
    """The module's own attention code, with its mask changed before."""
    own = module.eager_attention_forward

    def attend(layer, query, key, value, attention_mask, *args, **kwargs):
        return own(layer, query, key, value, change(attention_mask), *args, **kwargs)

    monkeypatch.setattr(module, "eager_attention_forward", attend)


def tiny(name):
    """A tiny random model on its own attention code."""
    torch.manual_seed(0)
    return tiny_model(name)


def shifted(mask):
    """Every row sees one key more."""
    if mask.shape[2] == 1:
        return mask
    return torch.cat([torch.zeros_like(mask[..., :1]), mask[..., :-1]], -1)


def test_a_llama_that_ignores_its_mask(monkeypatch):
    """A leak in the attention code of a transformers model is a future leak, and what it spoils is not reported
    again.
    """
    planted(monkeypatch, modeling_llama, lambda mask: None)

    found = audit(tiny("llama"), checks=BEHAVIOUR)

    assert [finding.check for finding in found.findings] == ["future-leak", "padding-leak", "implementation-difference"]
    assert {each.check for each in found.skipped} == {"cache", "position-offset"}
    assert "can generate" in found.findings[0].measured


def test_a_llama_whose_mask_is_off_by_one(monkeypatch):
    """Two layers that see one key too far look two ahead, and that is named."""
    planted(monkeypatch, modeling_llama, shifted)

    found = audit(tiny("llama"), checks=["future-leak"])

    assert "off by one" in only(found).cause
    assert only(found).numbers["reach"] == 2


def test_a_bert_that_ignores_its_mask(monkeypatch):
    """Padding that is seen is found in an encoder; the same encoder is not asked about the future."""
    planted(monkeypatch, modeling_bert, lambda mask: None)

    found = audit(tiny("bert"), checks=BEHAVIOUR)

    assert [finding.check for finding in found.findings] == ["padding-leak", "implementation-difference"]
    assert (
        "does not reach the attention" in found.findings[0].cause
        and "the mask of the padding" in found.findings[1].cause
    )
    assert "is_causal is False" in next(each.reason for each in found.skipped if each.check == "future-leak")


def test_a_head_that_writes_on_an_encoder():
    """A class with a head that writes, configured as an encoder, leaks; the configuration is named."""
    torch.manual_seed(0)
    model = tiny("bert-generation")

    assert "is_decoder=False" in only(audit(model, checks=BEHAVIOUR)).cause
    model.config.is_decoder = True
    again = type(model)(model.config).eval()
    assert audit(again, checks=BEHAVIOUR).healthy


def test_a_llama_that_forgets_causality_while_it_fills_a_cache(monkeypatch):
    """A leak of the prefill alone is found, and said to be there alone."""
    model = tiny("llama")
    own, filling = model.forward, []

    @functools.wraps(own)
    def forward(*args, use_cache=None, **kwargs):
        filling[:] = [use_cache]
        return own(*args, use_cache=use_cache, **kwargs)

    model.forward = forward
    planted(monkeypatch, modeling_llama, lambda mask: None if filling[0] and mask.shape[2] > 1 else mask)

    found = only(audit(model, checks=["future-leak"]))

    assert found.numbers["ways"] == ["while a cache is filled"]
    assert "lost while a cache is filled, and holds without a mask and with padding" in found.cause


def turned(model, shift):
    """The model with rotary angles of single tokens turned by so many positions."""
    own = model.model.rotary_emb.forward
    model.model.rotary_emb.forward = lambda x, position_ids: own(x, position_ids + shift * (position_ids.shape[1] == 1))
    return model


@pytest.mark.parametrize("shift", [1, -1, 2])
def test_positions_that_are_off_while_decoding(shift):
    """Positions off by one or two over a cache are found, and by how many is said."""
    found = only(audit(turned(tiny("llama"), shift), checks=["cache"]))

    assert found.check == "position-offset"
    assert found.numbers["offset"] == shift
    assert f"{abs(shift)} too {'large' if shift > 0 else 'small'}" in found.measured


def test_positions_that_start_again():
    """A model that counts from 0 again over a cache is told apart from one that gets given positions wrong."""
    model = tiny("llama")
    own = model.model.forward

    def forward(input_ids, position_ids=None, **kwargs):
        places = torch.arange(input_ids.shape[1])[None] if position_ids is None else position_ids
        return own(input_ids, position_ids=places, **kwargs)

    model.model.forward = forward

    found = only(audit(model, checks=["cache", "position-offset"]))

    assert (found.check, found.severity) == ("position-offset", "warning")
    assert "with position_ids given it agrees" in found.measured


def test_positions_that_count_padding():
    """Generation behind left padding with positions that count the padding is found, though decoding without it is
    right.
    """
    model = tiny("gpt2")
    own = model.transformer.forward
    model.transformer.forward = lambda *args, position_ids=None, **kwargs: own(*args, **kwargs)

    found = only(audit(model, checks=["cache", "position-offset"]))

    assert found.check == "position-offset" and "behind 3 positions of padding" in found.where
    assert "count the padding" in found.cause


def test_a_cache_that_forgets(monkeypatch):
    """A cache that loses its oldest key is a fault of the cache, and not of positions."""
    from transformers.cache_utils import DynamicLayer

    own = DynamicLayer.update

    def update(self, *args, **kwargs):
        keys, values = own(self, *args, **kwargs)
        return (keys, values.flip(2)) if args[0].shape[2] == 1 else (keys, values)

    model = tiny("llama")
    assert audit(model, checks=["cache"]).healthy
    monkeypatch.setattr(DynamicLayer, "update", update)

    found = only(audit(model, checks=["cache", "position-offset"]))

    assert found.check == "cache" and found.row == found.numbers["start"]


def test_dropout_that_was_left_on():
    """A model in training mode is named as such; the other checks see it in evaluation mode, and find nothing."""
    model = Small(after=torch.nn.Dropout(0.5)).train()

    found = only(audit(model, inputs=words(), causal=True, checks=BEHAVIOUR))

    assert found.check == "training-mode" and found.numbers["dropout"] == 1
    assert model.training and model.after.training


def test_the_module_that_makes_nan():
    """The innermost module that makes NaN of finite inputs is named."""
    model = tiny("llama")
    with torch.no_grad():
        model.model.layers[1].post_attention_layernorm.weight.fill_(torch.inf)
        model.model.layers[1].mlp.down_proj.weight.zero_()
    own = model.model.layers[1].mlp.forward
    model.model.layers[1].mlp.forward = lambda x: own(x.nan_to_num(0, 0, 0)) / 0
    model.model.layers[1].post_attention_layernorm.weight.data.fill_(1)

    assert "model.layers.1.mlp" in only(audit(model, checks=["finite"])).cause


def test_an_implementation_that_loses_its_mask(monkeypatch):
    """Eager attention that drops the mask differs from SDPA, and that is found from either side."""
    model = tiny("bert")
    assert audit(model, checks=["implementation-difference"]).healthy
    planted(monkeypatch, modeling_bert, lambda mask: None)

    for name, other in (("eager", "sdpa"), ("sdpa", "eager")):
        model.set_attn_implementation(name)
        found = only(audit(model, checks=["implementation-difference"]))

        assert (found.check, found.numbers["other"], found.numbers["ways"]) == (
            "implementation-difference",
            other,
            ["with padding"],
        )
        assert model.config._attn_implementation == name


# --- what an audit leaves behind, and what it stands on


def test_outputs_that_are_nan_pass_nothing():
    """NaN feels nothing of what changes: checks that compare runs do not apply to it."""
    found = audit(Small(after=lambda x: x / (x - x)).eval(), inputs=words(), causal=True, checks=BEHAVIOUR)

    assert {each.check for each in found.passed} == {"training-mode", "determinism"}
    assert {each.check for each in found.skipped if each.reason.startswith("finite spoils it")} == {
        "future-leak",
        "padding-leak",
        "batch-dependence",
        "implementation-difference",
        "cache",
        "position-offset",
    }


def test_a_model_that_raises_where_a_check_runs_it_is_not_healthy():
    """A model that runs with its inputs and raises beside others, or with its mask, is warned about, with what it
    says.
    """

    class Alone(Small):
        def forward(self, ids, attention_mask=None):
            if len(ids) > 1 or attention_mask is not None:
                raise RuntimeError("one entry,\nand no mask")
            return super().forward(ids)

    found = audit(Alone().eval(), inputs=words(), causal=True, checks=BEHAVIOUR)

    assert not found.healthy
    assert {(each.check, each.severity) for each in found.findings} == {
        (check, "warning") for check in ("future-leak", "padding-leak", "batch-dependence")
    }
    assert all("RuntimeError: one entry," in each.measured for each in found.findings)


def test_a_check_that_could_not_be_made_spoils_no_other(monkeypatch):
    """A model that raises in one check is still asked by those that a fault found there would spoil."""

    def attend(module, query, key, value, attention_mask, scaling=None, is_causal=None, **_):
        if attention_mask is not None and not attention_mask.all():
            raise RuntimeError("no padding")
        if query.shape[2] == 1:
            value = value.roll(1, 2)
        found = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=query.shape[2] > 1, scale=scaling, enable_gqa=True
        )
        return found.transpose(1, 2).contiguous(), None

    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask

    monkeypatch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "raising", sdpa_mask)
    monkeypatch.setitem(AttentionInterface._global_mapping, "raising", attend)
    model = tiny("llama")
    model.set_attn_implementation("raising")
    found = audit(model, checks=["future-leak", "cache"])

    assert [(each.check, each.severity) for each in found.findings] == [("cache", "fault"), ("future-leak", "note")], (
        str(found)
    )


@pytest.fixture
def table():
    """The table of checks, as it was when the test is over."""
    before = list(CHECKS)
    yield CHECKS
    CHECKS[:] = before


def test_mistakes_of_the_audit_itself_are_not_hidden(table):
    """An error that the model did not raise is an error."""
    table.append(OfModel("toy", lambda subject: [][1]))

    with pytest.raises(IndexError):
        audit(Small().eval(), inputs=words(), checks=["toy"])


def test_a_check_is_one_line_in_one_table(table):
    """A check of runs is carried out on a recorded run and on that of a model, one of models on the model; a check
    whose fault would only be found again is left out.
    """
    table.append(OfRun("toy-run", lambda run, module: [Passed("toy-run", f"{len(run.calls)} calls")]))
    table.append(OfRule("toy-rule", lambda run, number, call, module: True))
    table.append(OfModel("toy-model", lambda subject: [Passed("toy-model", f"{subject.length} positions")]))
    table.append(OfModel("toy-after", lambda subject: [][1], after=("future-leak",)))

    model = Small(sees=lambda n, mask: torch.ones(n, n, dtype=torch.bool)).eval()
    toys = ["future-leak", "toy-run", "toy-rule", "toy-model", "toy-after"]
    of_the_model = audit(model, inputs=words(), causal=True, checks=toys)
    of_the_run = audit(look(model, inputs=words()), checks=toys)

    assert of_the_model.passed == (
        Passed("toy-model", f"{LENGTH} positions"),
        Passed("toy-run", "1 calls"),
        Passed(
            "toy-rule",
            "1 of 1 outputs follow from what their calls were told; 1 calls were told what their layers declare",
        ),
    )
    assert [(each.check, each.reason) for each in of_the_model.skipped] == [
        ("toy-after", "future-leak spoils it: mend that first")
    ]
    assert of_the_run.passed == of_the_model.passed[1:]
    assert names()[-4:] == tuple(toys[1:])
    with pytest.raises(rg.Refused, match="toy-after"):
        audit(model, inputs=words(), checks=["toy-befor"])


def test_every_check_has_a_name_of_its_own_and_follows_those_that_it_needs():
    """A check can only be spoiled by one that was carried out before it."""
    assert len(set(names())) == len(names())
    for number, check in enumerate(CHECKS):
        assert {*getattr(check, "after", ())} <= {*names()[:number]}


def test_a_model_that_does_not_run_is_refused():
    """A module that raises with the inputs that it was given is no healthy one."""

    def attend(x):
        raise ValueError("never")

    with pytest.raises(rg.Refused, match="the model does not run") as refused:
        audit(attend, inputs=torch.randn(1, 4, 8))

    assert "ValueError: never" in str(refused.value)


def test_an_audit_leaves_the_model_as_it_was():
    """Weights, modes, hooks, implementation and the caller's random numbers are what they were."""
    model = tiny("llama").train()
    model.model.layers[0].eval()
    before = {name: part.clone() for name, part in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    random = torch.get_rng_state()

    audit(model)

    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("name", ["llama", "bert", "t5", "qwen3_moe"])
def test_rounding_is_what_float32_makes(name):
    """The measured rounding covers what float32 errs against float64, and is not a thousand times as large."""
    model = tiny(name)
    subject = of_transformers(model)
    rounding = subject.rounding
    exact = of_transformers(model.double()).run(subject.given)

    for output, part in subject.outputs.items():
        erred = float((part.double() - exact[output]).abs().max())
        assert erred <= ALLOWED * rounding[output]
        assert rounding[output] <= 1000 * erred


@pytest.mark.parametrize("seed", [7, 9, 21, 25, 28])
def test_rounding_within_a_fused_layer_is_no_leak(seed):
    """A layer that torch computes in one operator is given what its sums round, and torch's own choice stays as it
    was.
    """
    torch.manual_seed(seed)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    fused = torch.backends.mha.get_fastpath_enabled()

    found = audit(layer, inputs=torch.randn(1, 24, 64), checks=["padding-leak", "batch-dependence"])

    assert found.healthy and {each.check for each in found.passed} == {"padding-leak", "batch-dependence"}, str(found)
    assert torch.backends.mha.get_fastpath_enabled() is fused


def test_a_leak_below_rounding_is_no_finding():
    """What the outputs would move by rounding alone passes, whatever makes it; what is beyond does not."""
    subject = of_module(Small().eval(), words(), True)
    limit = ALLOWED * subject.rounding["output"]

    for size, healthy in ((limit / 2, True), (limit * 50, False)):
        model = Small(after=lambda x, size=size: x + size * x.flip(1) / 4).eval()
        assert audit(model, inputs=words(), causal=True, checks=["future-leak"]).healthy == healthy


def test_near_equal_choices_are_no_fault():
    """A model that chooses between equals by rounding alone has no finding: its rounding is measured over more runs."""

    class Choosing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.table, self.out = torch.nn.Embedding(40, 16), torch.nn.Linear(16, 16)

        def forward(self, ids, attention_mask=None):
            x = self.out(self.table(ids))
            return torch.where(
                (x.sum(-1, keepdim=True) - x.flip(-1).sum(-1, keepdim=True)) * (ids.shape[1] % 2 - 0.5) > 0, x, -x
            )

    found = audit(Choosing().eval(), inputs=words(), checks=["padding-leak", "batch-dependence"])

    assert found.healthy, str(found)


# --- what can be given


@pytest.mark.parametrize("diagonal", [0, 1])
def test_a_function_of_q_k_v(diagonal):
    """An attention function is asked about positions, not heads: its causal mask is off by one, or it is not."""
    q, k, v = torch.randn(3, 1, 4, LENGTH, 8, generator=torch.Generator().manual_seed(0))
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(diagonal)
    function = functools.partial(torch.nn.functional.scaled_dot_product_attention, attn_mask=seen)

    found = audit(function, inputs=(q, k, v), causal=True)

    assert found.healthy == (diagonal == 0)
    assert [each.check for each in found.findings if each.severity == "fault"] == ["future-leak", "mask"][
        : 2 * diagonal
    ]
    assert found.healthy or found.findings[0].numbers["reach"] == 1


def test_a_run_and_its_folder(tmp_path):
    """A recorded run and the folder it was saved in are audited alike, by the checks of runs alone."""
    q, k = np.random.default_rng(0).standard_normal((2, 2, 9, 8), dtype=np.float32)
    run = look(q, k=k, mask=rg.causal())
    run.save(tmp_path / "run")

    whole, saved = audit(run), audit(tmp_path / "run")

    assert whole.healthy and whole.to_json() == saved.to_json()
    assert not {each.check for each in (*whole.passed, *whole.skipped)} & set(BEHAVIOUR)


def test_json_is_plain():
    """Everything that an audit knows survives JSON."""
    found = audit(Small(after=lambda x: x / (x - x)).eval(), inputs=words(), causal=True)

    assert json.loads(json.dumps(found.to_json(), allow_nan=False)) == found.to_json()
    assert found.to_json()["findings"][0]["check"] in str(found)


REFUSED = [
    (lambda: audit(Small(), inputs=words(), checks=["future-leek"]), "no such check", "'future-leek'"),
    (lambda: audit(Small()), "no inputs", "NoneType for Small"),
    (lambda: audit(Small(), inputs=torch.cat([words(), words()])), "several batch entries", "(2, 17)"),
    (
        lambda: audit(tiny("bert"), inputs={"input_ids": torch.ones(2, 4).long()}),
        "several batch entries",
        "input_ids of shape (2, 4)",
    ),
    (lambda: audit(Small(), "a text", inputs=words()), "text= has no meaning for a torch module", "str"),
    (lambda: audit(tiny("llama"), "a text"), "a text without a tokenizer", "'a text' for LlamaForCausalLM"),
    (
        lambda: audit(tiny("llama"), inputs={"input_ids": torch.zeros(1, 4)}),
        "the model does not run",
        "LlamaForCausalLM",
    ),
    (lambda: audit("no/such/folder"), "no such model", "'no/such/folder'"),
    (
        lambda: audit(look(np.ones((1, 2, 4)), k=np.ones((1, 2, 4))), causal=True),
        "causal= has no meaning for a recorded run",
        "bool",
    ),
]


@pytest.mark.parametrize("call, what, given", REFUSED, ids=range(len(REFUSED)))
def test_what_makes_no_sense_is_refused(call, what, given):
    """Every refusal says what was given, what is expected and how to mend it."""
    with pytest.raises(rg.Refused) as refused:
        call()

    (reason,) = refused.value.reasons
    assert reason.what == what and given in reason.given and reason.expected and reason.mend


# --- the command


def test_the_command_says_what_is_wrong(tmp_path):
    """Exit status 1 for a fault, 0 for a healthy model; the same findings as text and as JSON."""
    model = tiny("llama")
    model.save_pretrained(tmp_path / "healthy")
    with torch.no_grad():
        model.model.layers[1].input_layernorm.weight.fill_(torch.nan)
    model.save_pretrained(tmp_path / "ill")
    runner = CliRunner()

    healthy = runner.invoke(app, ["audit", str(tmp_path / "healthy")])
    ill = runner.invoke(app, ["audit", str(tmp_path / "ill"), "--checks", "finite", "--json"])

    assert healthy.exit_code == 0 and "healthy" in healthy.output.splitlines()[0] and "future-leak" in healthy.output
    assert ill.exit_code == 1
    assert [finding["check"] for finding in json.loads(ill.output)["findings"]] == ["finite"]


def test_json_acts_on_no_terminal(tmp_path):
    """JSON on standard output is ASCII: a name that holds control characters does nothing, and is still the same
    name.
    """
    q, k = np.random.default_rng(0).standard_normal((2, 2, 6, 8))
    run = look(q, k=k)
    replace(run, model="\u009b2J\u202e").save(tmp_path / "run")

    found = CliRunner().invoke(app, ["audit", str(tmp_path / "run"), "--json"])

    assert found.output.isascii() and json.loads(found.output)["model"] == "\u009b2J\u202e"


def test_notes_count_where_they_are_asked_to():
    """The default model has notes and no faults: it passes, and does not under --strict."""
    runner = CliRunner()

    assert runner.invoke(app, ["audit", "--checks", "sink"]).exit_code == 0
    strict = runner.invoke(app, ["audit", "--checks", "sink", "--strict"])
    assert strict.exit_code == 1 and "to mend" in strict.output


def test_the_command_refuses_in_sentences(capsys, monkeypatch):
    """An unknown check is one sentence and exit status 2."""
    from regard.cli import main

    monkeypatch.setattr("sys.argv", ["regard", "audit", "--checks", "leek"])
    with pytest.raises(SystemExit) as left:
        main()

    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("regard: no such check: 'leek'; expected one of ")
