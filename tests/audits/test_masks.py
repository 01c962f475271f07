"""Masks of recorded calls against the declarations of the layers and of the caller."""

import numpy as np
import pytest
import torch

import regard as rg
from regard.audits.finding import Finding, Passed
from tests.support.runs import call_of, checks, run_of, sdpa

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


@pytest.mark.parametrize("words", LOOSE)
def test_masks_of_calls_that_are_declared_causal(words, arrays):
    """Each head's mask is read; a row that attends to later keys is at least a note, whatever the rest of the mask."""
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


def test_unknown_masks_do_not_count_as_declared(arrays):
    """A causal mask with a hole is not a mistake, and does not count as the declared mask."""
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


def test_windows_that_are_never_reached_are_reported():
    """A check that passes on a text shorter than the window says that the window was not reached."""
    from regard.torch.hf.tiny_models import tiny_model

    torch.manual_seed(0)
    model = tiny_model("mistral")
    for part in (model.config, *(layer.self_attn for layer in model.model.layers)):
        part.sliding_window = 4096
    found = rg.audit(model, checks=["mask", "cache"])

    assert [each.check for each in found.passed] == ["cache", "mask"]
    assert all("window" in each.measured and "4096" in each.measured for each in found.passed), str(found)
