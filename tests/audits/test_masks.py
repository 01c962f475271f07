"""Masks of recorded calls against the declarations of the layers and of the caller."""

import pytest
import torch

import regard as rg
from regard.audits.finding import Finding, Passed
from regard.torch.hf.tiny_models import tiny_model
from tests.audits.small_audits import ByHand, audited, checked
from tests.support.runs import call_of, checks, run_of, sdpa
from tests.support.small_model import only


def written_out(q, k, v, attn_mask):
    return torch.softmax(q @ k.mT / 4 + attn_mask, -1) @ v


LOOSE = {
    "two keys ahead": (rg.key <= rg.query + 2, ("note", None), "attends to a later key, up to 2 ahead"),
    "one head of two sees all": ((rg.key <= rg.query) | (rg.head == 1), ("fault", 1), "attends to every key"),
    "not itself": ((rg.key < rg.query), ("fault", None), "no row attends to its own key"),
    "not itself, except for the first": (
        (rg.key < rg.query) | (rg.key + rg.query <= 0),
        ("fault", None),
        "no row except the first attends to its own key",
    ),
}


def judged(mask, arrays):
    """What is said of the mask of a call of two heads in a causal layer."""
    q, k, v = arrays[0][:2], *arrays[1:]
    call = call_of(q, k, v, rg.attention(q, k, v, mask=mask), mask=mask, notes={"causal": True})
    return list(checks(run_of(call), None, ["mask"]))


@pytest.mark.parametrize("words", LOOSE)
def test_masks_of_calls_that_are_declared_causal(words, arrays):
    """Each head's mask is read; a row that attends to later keys is at least a note, whatever the rest of the mask."""
    mask, expected, measured = LOOSE[words]

    (found,) = judged(mask, arrays)

    assert isinstance(found, Finding) and (found.severity, found.head) == expected and measured in found.measured


@pytest.mark.parametrize("attend", [sdpa, written_out], ids=["SDPA", "written out"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("low", [-5.0, -200.0, -1e4, -1e9, -1e30])
def test_finite_numbers_that_leave_no_weight_are_a_mask(low, dtype, attend):
    """What is added to later keys hides them where their weight is then 0 in float32; a mask off by one is named beside
    it. In bfloat16 −10⁴ is −9984.
    """

    def found(diagonal):
        added = torch.full((20, 20), low, dtype=dtype).triu(diagonal)
        model = ByHand(lambda q, k, v: attend(q, k, v, attn_mask=added)).to(dtype)
        return audited(model, torch.randn(1, 20, 32, dtype=dtype), checks=["mask"]).findings

    (wrong,) = found(2)

    assert len(found(1)) == (low > -100)
    assert wrong.severity == "fault" and (low > -1e4 or "the diagonal is off by one" in wrong.cause)


def test_unknown_masks_do_not_count_as_declared(arrays):
    """A causal mask with a hole is not a mistake, and does not count as the declared mask."""
    (found,) = judged((rg.key <= rg.query) & ((rg.key < 3) | (rg.key > 4) | (rg.query < 20)), arrays)

    assert isinstance(found, Passed) and "declare" not in found.measured


def test_what_the_caller_says_reaches_the_recorded_calls():
    """Rows that do not see their own key are a fault of the mask where the caller says causal=True; otherwise only
    the last key, which no row sees, is a warning.
    """

    seen = torch.ones(12, 12, dtype=torch.bool).tril(-1)
    seen[0, 0] = True
    model, x = ByHand(lambda q, k, v: sdpa(q, k, v, attn_mask=seen)), torch.randn(1, 12, 32)

    assert checked(audited(model, x, checks=["mask"]).findings) == {"mask"}
    assert "no row attends to 1 key, first 11" in only(audited(model, x, None, ["mask"])).measured


def test_windows_that_are_never_reached_are_reported():
    """A check that passes on a text shorter than the window says that the window was not reached."""
    model = tiny_model("mistral")
    for part in (model.config, *(layer.self_attn for layer in model.model.layers)):
        part.sliding_window = 4096
    found = rg.audit(model, checks=["mask", "cache"])

    assert checked(found.passed) == {"cache", "mask"}
    assert all("window" in each.measured and "4096" in each.measured for each in found.passed), str(found)
