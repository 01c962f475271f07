"""Checks that run a model: every planted fault is found and named, and the healthy model has no finding."""

import functools
from dataclasses import dataclass, field

import pytest
import torch

from bench.audit_alarms.written import Attention
from regard.audits import audit
from regard.audits.checks import CHECKS, ModelCheck, RunCheck, names, rule_check
from regard.audits.finding import Passed
from regard.lens.look import look
from tests.audits.small_audits import audited, checked
from tests.support.refusals import refusing
from tests.support.small_model import BEHAVIOUR, LENGTH, Small, neighbours, only, sees_all, sees_past, tiny, words

PLANTED = {
    "no causal mask": ({"sees": sees_all}, True, "future-leak", "without a causal mask", {"reach": LENGTH - 1}),
    "off by one": ({"sees": functools.partial(sees_past, diagonal=1)}, True, "future-leak", "off by one", {"reach": 1}),
    "causal with a mask only": (
        {"sees": lambda n, real: (sees_all if real is None else sees_past)(n, real)},
        True,
        "future-leak",
        "missing without a mask, but present with padding",
        {"ways": ["without a mask"]},
    ),
    "causal without a mask only": (
        {"sees": lambda n, real: (sees_past if real is None else sees_all)(n, real)},
        True,
        "future-leak",
        "missing with padding, but present without a mask",
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
    "padding at the neighbors": (
        {"sees": sees_all, "after": neighbours},
        False,
        "padding-leak",
        "neighboring",
        {"rows": [LENGTH - 1]},
    ),
    "padding counted": (
        {"sees": sees_all, "after": lambda x: x / x.shape[1]},
        False,
        "padding-leak",
        "its presence changes the result",
        {},
    ),
    "mean over the batch": (
        {"after": lambda x: x + x.mean(0)},
        True,
        "batch-dependence",
        "statistics over the batch",
        {},
    ),
    "entries counted": ({"after": lambda x: x * len(x)}, True, "batch-dependence", "depends on the batch size", {}),
    "dropout left on": (
        {"after": lambda x: torch.nn.functional.dropout(x, 0.1)},
        True,
        "determinism",
        "dropout without",
        {},
    ),
    "numbers divided by 0": ({"after": lambda x: x / (x - x)}, True, "finite", "Small: the output of div", {}),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_and_named(fault):
    """Each fault is found by its own check, its cause is named, and the difference exceeds the threshold."""
    made, causal, check, cause, numbers = PLANTED[fault]

    whole = audited(Small(**made), causal=causal)
    found = whole.findings[0]

    assert (found.check, found.severity) == (check, "fault")
    assert cause in found.cause
    assert {name: found.numbers[name] for name in numbers} == numbers
    if check != "finite":
        assert found.numbers["difference"] > 100 * found.numbers["threshold"] > 0
    # A mask that is lost is lost for padding as well.
    assert checked(whole.findings[1:]) <= ({"padding-leak"} if check == "future-leak" else set())


@pytest.mark.parametrize("made", [{}, {"sees": sees_all}], ids=["causal", "both ways"])
def test_the_healthy_twin_is_silent(made):
    """The same model without a fault has no finding at all, and every check that applies says what it measured."""
    found = audited(Small(**made), causal=not made)

    assert not found.findings
    assert checked(found.passed) >= {"finite", "determinism", "padding-leak", "batch-dependence"}
    assert ("future-leak" in checked(found.passed)) == (not made)


def test_where_the_future_shows():
    """The place that is named is the last position that feels a token one ahead."""
    found = only(audited(Small(functools.partial(sees_past, diagonal=1)), checks=["future-leak"]))

    assert found.row == found.numbers["changed_from"] - 1
    assert found.numbers["rows"] == [found.row]


def test_dropout_that_was_left_on():
    """A model in training mode is named as such; the other checks see it in evaluation mode, and find nothing."""
    model = Small(after=torch.nn.Dropout(0.5)).train()

    found = only(audit(model, inputs=words(), causal=True, checks=BEHAVIOUR))

    assert found.check == "training-mode" and "1 with dropout" in found.measured
    assert model.training and model.after.training


# --- checks that do not apply, and errors


def test_outputs_that_are_nan_pass_nothing():
    """NaN feels nothing of what changes: checks that compare runs do not apply to it."""
    found = audited(Small(after=lambda x: x / (x - x)))

    assert checked(found.passed) == {"training-mode"}
    assert checked(each for each in found.skipped if "a fault of finite" in each.reason) == {
        "determinism",
        "future-leak",
        "padding-leak",
        "batch-dependence",
        "missing-softmax",
        "implementation-difference",
        "cache",
        "position-offset",
    }


@pytest.mark.parametrize(
    ("token", "dtype"), [(0, None), (39, None), (True, None), (7, torch.uint16), (7, torch.int32), (2**62, None)]
)
def test_inputs_of_one_token_pass_no_leak(token, dtype):
    """Replacing a token by itself shows nothing: a few others are drawn, however large it is, and of its type."""

    class OfAnyType(Small):
        def forward(self, ids, attention_mask=None):
            return super().forward(ids.long() % 40, attention_mask)

    ids = torch.full((1, LENGTH), token, dtype=dtype)

    found = audited(OfAnyType(sees_all), ids, checks=["future-leak", "batch-dependence"])

    assert only(found).check == "future-leak" and checked(found.passed) == {"batch-dependence"}


def test_where_no_other_token_is_known():
    """Without a table of embeddings, zeros tell nothing about what else may be passed."""

    def counted(numbers, attention_mask=None):
        return numbers[..., None] * torch.ones(3) + numbers.sum(1)[:, None, None]

    for token in (0, -1):
        found = audit(counted, inputs=torch.full((1, LENGTH), token), causal=True, checks=BEHAVIOUR)

        unknown = [each for each in found.skipped if "all tokens of the input are equal" in each.reason]
        assert checked(unknown) == {"future-leak", "padding-leak", "batch-dependence"}


def test_a_model_that_returns_the_same_memory():
    """As CUDA graphs do: outputs are copied before the next run. Hooks see arguments as they were passed."""

    class Static(Small):
        memory = torch.zeros(1, LENGTH, 40)

        def forward(self, ids, attention_mask=None):
            return self.memory.copy_(super().forward(ids, attention_mask))

    model = Static(sees_all)
    model.register_forward_pre_hook(lambda _, passed: (passed[0],))
    assert only(audited(model, words(), checks=["future-leak"])).check == "future-leak"


def test_layers_that_read_positions_first():
    """torch's default, batch_first=False: what mixes the entries is named, and how to pass (positions, 1, width)."""
    module = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32), 1, enable_nested_tensor=False)
    x = torch.randn(1, 12, 16)

    found = audit(module.eval(), inputs=x, checks=["batch-dependence"])

    assert "a torch layer with batch_first=False" in only(found).cause, str(found)
    with refusing(r"lambda x: model\(x.transpose\(0, 1\)\).transpose\(0, 1\)"):
        audit(module, inputs=x.transpose(0, 1))
    assert audit(lambda x: module(x.transpose(0, 1)).transpose(0, 1), inputs=x, checks=BEHAVIOUR).healthy


def test_outputs_of_a_dataclass_and_complex_inputs():
    """They are read and replaced like others."""

    @dataclass
    class Output:
        logits: torch.Tensor
        loss: None = None
        unset: torch.Tensor = field(init=False)

    def attend(spectra, causal):
        x = torch.cat([spectra.real, spectra.imag], -1)
        return Output(torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal))

    spectra = torch.randn(1, LENGTH, 8, dtype=torch.complex64)
    for causal in (True, False):
        for given in (spectra, spectra.conj()):
            model = functools.partial(attend, causal=causal)
            assert audit(model, inputs=given, causal=True, checks=["future-leak"]).healthy == causal


def test_a_model_that_raises_where_a_check_runs_it_is_not_healthy():
    """A model that runs with its inputs and raises beside others, or with its mask, is warned about, with what it
    says.
    """

    class Alone(Small):
        def forward(self, ids, attention_mask=None):
            if len(ids) > 1 or attention_mask is not None:
                raise RuntimeError("one entry,\nand no mask")
            return super().forward(ids)

    found = audited(Alone())

    assert not found.healthy
    assert {(each.check, each.severity) for each in found.findings} == {
        (check, "warning") for check in ("future-leak", "padding-leak", "batch-dependence")
    }
    assert all("RuntimeError: one entry," in each.measured for each in found.findings)


def test_a_check_that_could_not_be_made_spoils_no_other():
    """A check in which the model raises does not prevent the later ones, as a fault would. A text of nine tokens leaves
    one to the cache: "1 token".
    """
    model = tiny("llama")
    forward = model.forward

    @functools.wraps(forward)
    def wrong(*args, **kwargs):
        mask = kwargs.get("attention_mask")
        if mask is not None and not mask.all():
            raise RuntimeError("no padding")
        found = forward(*args, **kwargs)
        found.logits = found.logits + (kwargs["input_ids"].shape[1] == 1)
        return found

    model.forward = wrong
    found = audit(model, inputs={"input_ids": words(n=9)}, checks=["future-leak", "cache"])

    assert [(each.check, each.severity) for each in found.findings] == [("cache", "fault"), ("future-leak", "note")]
    assert only(found).numbers["start"] == 1 and "a cache of 1 token and one forward pass" in only(found).measured


@pytest.fixture
def table():
    """The table of checks, as it was when the test is over."""
    before = list(CHECKS)
    yield CHECKS
    CHECKS[:] = before


def test_mistakes_of_the_audit_itself_are_not_hidden(table):
    """An error that the model did not raise is an error."""
    table.append(ModelCheck("toy", lambda subject: [][1]))

    with pytest.raises(IndexError):
        audited(Small(), checks=["toy"])


def toy_rule(audited):
    """What it does."""
    return True


def test_a_check_is_one_line_in_one_table(table):
    """A check of runs is carried out on a recorded run and on that of a model, one of models on the model; a check
    whose fault would only be found again is left out.
    """
    table.append(RunCheck("toy-run", lambda run: [Passed("toy-run", f"{len(run.calls)} calls")]))
    table.append(rule_check(toy_rule))
    table.append(ModelCheck("toy-model", lambda subject: Passed("toy-model", f"{subject.length} positions")))
    table.append(ModelCheck("toy-after", lambda subject: [][1], after=("future-leak",)))

    model = Small(sees_all)
    toys = ["future-leak", "toy-run", "toy_rule", "toy-model", "toy-after"]
    of_the_model = audited(model, checks=toys)
    of_the_run = audit(look(model, inputs=words()), checks=toys)

    assert of_the_model.passed == (
        Passed("toy-model", f"{LENGTH} positions"),
        Passed("toy-run", "1 calls"),
        Passed(
            "toy_rule",
            "the arguments of the call give 1 of 1 output; the layer declares the arguments of 1 call",
        ),
    )
    assert [(each.check, each.reason) for each in of_the_model.skipped] == [
        ("toy-after", "not meaningful after a fault of future-leak: fix that first")
    ]
    assert of_the_run.passed == of_the_model.passed[1:]
    assert names()[-4:] == tuple(toys[1:])
    with refusing("toy-after"):
        audited(model, checks=["toy-befor"])


def test_every_check_has_a_name_of_its_own_and_follows_those_that_it_needs():
    """A check can only be spoiled by one that was carried out before it."""
    assert len(set(names())) == len(names())
    for number, check in enumerate(CHECKS):
        assert {*getattr(check, "after", ())} <= {*names()[:number]}


def test_positions_that_count_padding_are_found():
    """Left padding moves the outputs of a causal model without position_ids: a warning that names the positions."""
    model = Small(numbers=lambda real: torch.arange(real.shape[1]))
    finding = only(audited(model))
    assert (finding.check, finding.severity) == ("padding-leak", "warning")
    assert "positions count the padding" in finding.cause and "cumulative sum" in finding.fix
    assert audited(model, causal=False, checks=["padding-leak"]).healthy


def test_nan_from_fully_masked_rows_is_named():
    """A mask that reaches the attention and leaves rows without keys is not one that does not reach it."""

    class Twice(Attention):
        def allowed(self, n):
            return super().allowed(n) & self.real

        def forward(self, x, attention_mask):
            self.real = attention_mask.bool()[:, None, None]
            return super().forward(super().forward(x))

    inputs = {"x": torch.randn(1, 12, 32), "attention_mask": torch.ones(1, 12)}
    finding = only(audited(Twice(4, 8, fused=False), inputs))
    assert (finding.check, finding.severity) == ("padding-leak", "fault")
    assert "NaN after the softmax" in finding.cause and "torch.finfo" in finding.fix
    assert finding.numbers["difference"] == "inf"


def test_embeddings_are_not_generated_from():
    """A sequence of vectors is no text that generate continues."""
    model = tiny("llama")
    found = audit(model, inputs={"inputs_embeds": torch.randn(1, 12, model.config.hidden_size)})
    assert found.healthy and any("pass token ids" in each.reason for each in found.skipped), str(found)


def test_a_model_that_requires_its_mask_is_audited_with_one():
    """No check calls it without its mask, and the causal mask is still judged."""

    class RequiresMask(Small):
        def forward(self, ids, attention_mask):
            return super().forward(ids, attention_mask)

    inputs = {"ids": words(), "attention_mask": torch.ones_like(words())}
    healthy, ill = (audit(RequiresMask(sees).eval(), inputs=inputs, causal=True) for sees in (sees_past, sees_all))
    assert healthy.healthy, str(healthy)
    assert any(each.check == "future-leak" and "of real tokens" in each.where for each in ill.findings), str(ill)
