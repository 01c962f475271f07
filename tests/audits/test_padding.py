"""Padding of modules written by hand: of one length, with one output for all tokens, beside images and tables."""

import pytest
import torch

from bench.audit_alarms.written import Conditioned, FixedLength, Padded, Pooled
from regard.audits import audit
from tests.audits.small_audits import audited, checked, healthy
from tests.support.lanes import by_name
from tests.support.tensors import normal

X = normal(1, 12, 16)
GIVEN = {"given": {"x": X, "attention_mask": torch.ones(1, 12)}, "not given": {"x": X}}


def returning(returns, base=Padded):
    """A class of models that return something made of the rows and the mask."""

    class Returning(base):
        def forward(self, x, attention_mask=None):
            out = super().forward(x, attention_mask)
            return returns(out, torch.ones(1, x.shape[1]) if attention_mask is None else attention_mask)

    return Returning


@by_name("inputs", GIVEN)
@pytest.mark.parametrize("causal", [True, False])
def test_a_model_of_one_length(causal, inputs):
    """No padding can be added to it, so positions of its input are masked; where it ignores them, that is found."""

    class Ignoring(FixedLength):
        def forward(self, x, attention_mask=None):
            return super().forward(x)

    for kind in (FixedLength, Ignoring):
        found = audited(kind(2, 8, n=12, causal=causal), inputs, causal)

        assert checked(found.findings) == ({"padding-leak"} if kind is Ignoring else set()), str(found)
        assert ("padding-leak" in checked(found.passed)) == (kind is FixedLength)
        assert ("future-leak" in checked(found.passed)) == causal


@pytest.mark.parametrize("n", [11, 12])
@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
@pytest.mark.parametrize("causal", [True, False])
def test_one_output_for_all_tokens(pooling, causal, n):
    """Padding must not change it. Where a model takes one position for it, padding on that side is not supported. With
    padding, the length may be the width of the output: 11 + 5 positions.
    """
    model = Pooled(2, 8, causal=causal)
    model.pooling = pooling

    healthy(audited(model, X[:, :n], causal, ["padding-leak", "determinism"]), "padding-leak", "determinism")


POOLINGS = {
    "mean": lambda out, mask: out.mean(1),
    "maximum": lambda out, mask: out.amax(1),
    "divided by all": lambda out, mask: (out * mask[..., None]).sum(1) / out.shape[1],
    "both ends": lambda out, mask: out[:, 0] + out[:, -1],
}


@pytest.mark.parametrize("pooling", POOLINGS)
@by_name("inputs", GIVEN)
def test_pooling_over_padding(pooling, inputs):
    """A mean or maximum over all positions, or a mean of the real ones divided by the number of all."""
    (found,) = audited(returning(POOLINGS[pooling])(2, 8, causal=False), inputs, None, ["padding-leak"]).findings

    assert (found.check, found.where) == ("padding-leak", "output") and "pooling" in found.cause


@pytest.mark.parametrize("masked", ["given", "not given"])
def test_a_mask_of_the_text_beside_an_image(masked):
    """Without the mask it is unknown what it is about; with it, padding is added to the text, not to the image."""

    class Ignoring(Conditioned):
        def forward(self, sample, context, attention_mask=None):
            return super().forward(sample, context)

    inputs = {"sample": torch.randn(1, 4, 6, 6), "context": torch.randn(1, 7, 16)}
    inputs |= {"attention_mask": torch.ones(1, 7)} if masked == "given" else {}
    for kind, said in ((Conditioned, "passed"), (Ignoring, "findings")):
        found = audited(kind(2, 8), inputs, None)

        said = said if masked == "given" else "skipped"
        assert "padding-leak" in checked(getattr(found, said)) and found.healthy == (said != "findings"), str(found)


REAL = torch.arange(12)[None] < 9
# What marks padding, by the name of the argument, and what reads real tokens from it.
KINDS = {
    "attention_mask": (torch.where(REAL, 0.0, -1e9), lambda mask: mask == 0),
    "padding_mask": (~REAL, lambda mask: ~mask),
    "src_mask": (REAL[:, None, None].long(), lambda mask: mask[:, 0, 0] > 0),
    "x_lengths": (REAL.sum(1), lambda lengths: torch.arange(12 + 5)[None] < lengths[:, None]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_padding_masks_of_every_name_and_kind(kind):
    """What a mask means is read from its values, and passed on in the form in which it was given; a model that ignores
    it, or takes that of the first entry for all, is found.
    """
    given, read = KINDS[kind]
    padded = Padded(2, 8, causal=False).eval()

    def found(change, **more):
        def model(x, **masks):
            real = read(masks[kind])[:, : x.shape[1]].float()
            out = padded(x, change(real))
            return out, (out * real[..., None]).sum(1) / real.sum(1, keepdim=True)

        return audit(model, inputs={"x": X, kind: given, **more}, checks=["padding-leak", "batch-dependence"])

    for more in ({}, {"attn_mask": torch.zeros(12, 12)}):  # then it has one length
        healthy(found(lambda real: real, **more), "padding-leak")
        assert checked(found(torch.ones_like, **more).findings) == {"padding-leak"}
    if kind != "x_lengths":
        assert checked(found(lambda real: real[:1].expand_as(real)).findings) == {"batch-dependence"}


def test_outputs_beside_the_one_for_all_tokens():
    """Only outputs without an axis of positions are for all of them; a faulty one beside rows is found."""

    def several(out, mask):
        mean = (out * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return {"mean": mean, "size": out.square().mean(), "turned": out.mT}

    for module in (returning(several)(2, 8, causal=False), returning(several, FixedLength)(2, 8, n=12, causal=False)):
        healthy(audited(module, GIVEN["given"], None, ["padding-leak"]), "padding-leak")

    faulty = returning(lambda out, mask: {"rows": out, "sentence": out.mean(1)})
    (finding,) = audited(faulty(2, 8), GIVEN["given"], None, ["padding-leak"]).findings
    assert finding.where == "sentence"


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_positions_in_a_model_of_one_length(n):
    """Where masking two of the positions leaves no other, nothing is concluded."""

    class Last(FixedLength):
        def forward(self, x, attention_mask=None):
            if x.shape[1] != n:
                raise ValueError("another length")
            return (x + super().forward(x, attention_mask))[:, -1]

    found = audited(Last(2, 8, n=n), X[:, :n], None, ["padding-leak", "determinism"])

    assert found.healthy and ("padding-leak" in checked(found.passed)) == (n == 4), str(found)


@pytest.mark.parametrize("table", [{"bias": torch.ones(1, 2, 12, 12)}, {"table": torch.ones(1, 1, 12, 8)}], ids=list)
def test_tables_beside_the_input(table):
    """They are no inputs of another length: a mask that is not given is about the sequence."""

    class Ignoring(Padded):
        def forward(self, x, bias=None, table=None, attention_mask=None):
            return super().forward(x)

    found = audit(Ignoring(2, 8, causal=False).eval(), inputs={"x": X, **table}, checks=["padding-leak"])

    assert checked(found.findings) == {"padding-leak"}, str(found)
