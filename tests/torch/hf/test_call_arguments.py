"""Every argument that attention may be given is used, known to belong elsewhere, or refused."""

import inspect
import itertools

import pytest
import torch
from transformers.loss import loss_utils
from transformers.modeling_flash_attention_utils import FlashAttentionKwargs
from transformers.utils import TransformersKwargs

from regard.torch.hf import attend, readiness
from tests import ROOT
from tests.support.refusals import refusing

USED = set(inspect.signature(attend).parameters) - {"kwargs"} | {"cu_seq_lens_q", "cu_seq_lens_k"}
IGNORED = set(itertools.chain(*readiness.IGNORED.values()))
KNOWN = USED | IGNORED | set(readiness.REFUSED)


def call(**kwargs):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 5, 8)
    return attend(torch.nn.Identity(), q, k, v, None, **kwargs)[0]


def test_an_argument_has_one_meaning():
    """Nothing is both used and ignored, ignored and refused, or listed twice."""
    listed = [*USED, *itertools.chain(*readiness.IGNORED.values()), *readiness.REFUSED]
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_belongs_elsewhere_changes_nothing(name):
    """An ignored argument leaves every bit as it was, whatever it is."""
    want = call()
    for value in (7, torch.ones(1, 5)):
        assert torch.equal(want, call(**{name: value}))


@pytest.mark.parametrize("name", [*sorted(readiness.REFUSED), "labls", "temperature"])
def test_what_would_change_the_result_is_refused(name):
    """A refused or an unknown argument says what it is and what to do, unless it is None."""
    with refusing(f"the argument {name} is not supported"):
        call(**{name: torch.ones(1)})
    assert torch.equal(call(), call(**{name: None}))


def test_the_arguments_of_the_loss_are_known():
    """Whatever a loss of a language model takes from the call, attention takes without complaint."""
    made = {"logits", "source", "target", "vocab_size"}  # by the model, for its loss
    for loss in (loss_utils.ForCausalLMLoss, loss_utils.ForMaskedLMLoss, loss_utils.fixed_cross_entropy):
        takes = set(inspect.signature(loss).parameters) - {"kwargs"}
        assert takes - made <= IGNORED and takes & IGNORED


def test_the_arguments_of_all_models_are_known():
    """What transformers documents for the call of any model is used, ignored or refused."""
    names = {*TransformersKwargs.__annotations__, *FlashAttentionKwargs.__annotations__}
    assert len(names) > 10 and names <= KNOWN


def test_the_ignored_arguments_are_documented():
    """The guide lists every ignored argument, under what it belongs to."""
    guide = (ROOT / "docs" / "how-to" / "transformers.md").read_text(encoding="utf-8")
    for group, names in readiness.IGNORED.items():
        assert f"| {group} | {', '.join(f'`{name}`' for name in names)} |" in guide
