"""Padding of modules written by hand: of one length, with one output for all tokens, beside images and tables."""

import pytest
import torch

from bench.audit_alarms.written import Conditioned, FixedLength, Padded, Pooled
from regard.audits import audit
from tests.support.small_model import BEHAVIOUR


@pytest.mark.parametrize("masked", ["given", "not given"])
@pytest.mark.parametrize("causal", [True, False])
def test_a_model_of_one_length(causal, masked):
    """No padding can be added to it, so positions of its input are masked; where it ignores them, that is found."""

    class Ignoring(FixedLength):
        def forward(self, x, attention_mask=None):
            return super().forward(x)

    inputs = {"x": torch.randn(1, 12, 16)} | ({"attention_mask": torch.ones(1, 12)} if masked == "given" else {})
    for kind, expected in ((FixedLength, []), (Ignoring, ["padding-leak"])):
        torch.manual_seed(0)

        found = audit(kind(2, 8, n=12, causal=causal).eval(), inputs=inputs, causal=causal, checks=BEHAVIOUR)

        assert [each.check for each in found.findings] == expected, str(found)
        assert ("padding-leak" in {each.check for each in found.passed}) == (not expected)
        assert ("future-leak" in {each.check for each in found.passed}) == causal


@pytest.mark.parametrize("n", [11, 12])
@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
@pytest.mark.parametrize("causal", [True, False])
def test_one_output_for_all_tokens(pooling, causal, n):
    """Padding must not change it. Where a model takes one position for it, padding on that side is not supported. With
    padding, the length may be the width of the output: 11 + 5 positions.
    """
    healthy = Pooled(2, 8, causal=causal).eval()
    healthy.pooling = pooling

    found = audit(healthy, inputs=torch.randn(1, n, 16), causal=causal, checks=["padding-leak", "determinism"])

    assert found.healthy and {each.check for each in found.passed} == {"padding-leak", "determinism"}, str(found)


@pytest.mark.parametrize("pooling", ["mean", "maximum", "divided by all", "both ends"])
@pytest.mark.parametrize("masked", ["given", "not given"])
def test_pooling_over_padding(pooling, masked):
    """A mean or maximum over all positions, or a mean of the real ones divided by the number of all."""

    class OverAll(Padded):
        def forward(self, x, attention_mask=None):
            out = super().forward(x, attention_mask)
            real = torch.ones(out.shape[:2]) if attention_mask is None else attention_mask.to(out)
            return {
                "mean": lambda: out.mean(1),
                "maximum": lambda: out.amax(1),
                "divided by all": lambda: (out * real[..., None]).sum(1) / out.shape[1],
                "both ends": lambda: out[:, 0] + out[:, -1],
            }[pooling]()

    torch.manual_seed(0)
    inputs = {"x": torch.randn(1, 12, 16)} | ({"attention_mask": torch.ones(1, 12)} if masked == "given" else {})

    found = audit(OverAll(2, 8).eval(), inputs=inputs, checks=["padding-leak"])

    assert [each.check for each in found.findings] == ["padding-leak"], str(found)
    assert "pooling" in found.findings[0].cause and found.findings[0].where == "output"


@pytest.mark.parametrize("masked", ["given", "not given"])
def test_a_mask_of_the_text_beside_an_image(masked):
    """Without the mask it is unknown what it is about; with it, padding is added to the text, not to the image."""

    class Ignoring(Conditioned):
        def forward(self, sample, context, attention_mask=None):
            return super().forward(sample, context)

    inputs = {"sample": torch.randn(1, 4, 6, 6), "context": torch.randn(1, 7, 16)}
    inputs |= {"attention_mask": torch.ones(1, 7)} if masked == "given" else {}
    for kind in (Conditioned, Ignoring):
        torch.manual_seed(0)

        found = audit(kind(2, 8).eval(), inputs=inputs, checks=BEHAVIOUR)

        expected = {"given": ("passed", "findings")[kind is Ignoring], "not given": "skipped"}[masked]
        assert "padding-leak" in {each.check for each in getattr(found, expected)}, str(found)
        assert found.healthy == (expected != "findings")


@pytest.mark.parametrize("dtype", [torch.bool, torch.long, torch.float32])
def test_masks_of_every_type_for_one_output(dtype):
    """The mask keeps its type when padding is added, with padding in the given one, too."""

    class First(Padded):
        def forward(self, x, attention_mask):
            assert attention_mask.dtype == dtype
            return super().forward(x, attention_mask)[:, 0]

    torch.manual_seed(0)
    for real in (12, 9):
        mask = (torch.arange(12) < real).to(dtype)[None]
        found = audit(
            First(2, 8).eval(), inputs={"x": torch.randn(1, 12, 16), "attention_mask": mask}, checks=["padding-leak"]
        )

        assert found.healthy and found.passed, str(found)


def test_outputs_beside_the_one_for_all_tokens():
    """Only outputs without an axis of positions are for all of them; a faulty one beside rows is found."""

    class Several(Padded):
        n = 0

        def forward(self, x, attention_mask=None):
            if self.n:
                x = x + torch.linspace(-1, 1, 16 * self.n).view(1, self.n, 16)  # one length only
            out = super().forward(x, attention_mask)
            real = torch.ones(out.shape[:2]) if attention_mask is None else attention_mask.to(out)
            mean = (out * real[..., None]).sum(1) / real.sum(1, keepdim=True)
            return {"mean": mean, "size": out.square().mean(), "turned": out.mT}

    class Faulty(Padded):
        def forward(self, x, attention_mask=None):
            out = super().forward(x, attention_mask)
            return {"rows": out, "sentence": out.mean(1)}

    torch.manual_seed(0)
    inputs = {"x": torch.randn(1, 12, 16), "attention_mask": torch.ones(1, 12)}
    for n in (0, 12):
        module = Several(2, 8, causal=False).eval()
        module.n = n
        found = audit(module, inputs=inputs, checks=["padding-leak"])
        assert found.healthy and found.passed, str(found)

    (finding,) = audit(Faulty(2, 8).eval(), inputs=inputs, checks=["padding-leak"]).findings
    assert finding.where == "sentence"


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_positions_in_a_model_of_one_length(n):
    """Where masking two of the positions leaves no other, nothing is concluded."""

    class Last(FixedLength):
        def forward(self, x, attention_mask=None):
            if x.shape[1] != n:
                raise ValueError("another length")
            return (x + super().forward(x, attention_mask))[:, -1]

    torch.manual_seed(0)
    found = audit(Last(2, 8, n=n).eval(), inputs=torch.randn(1, n, 16), checks=["padding-leak", "determinism"])

    assert found.healthy and ("padding-leak" in {each.check for each in found.passed}) == (n == 4), str(found)


@pytest.mark.parametrize("table", ["a bias of every head", "rotary angles"])
def test_tables_beside_the_input(table):
    """They are no inputs of another length: a mask that is not given is about the sequence."""

    class Ignoring(Padded):
        def forward(self, x, table, attention_mask=None):
            return super().forward(x) + 0 * table.sum()

    tensor = torch.randn(1, 2, 12, 12) if table == "a bias of every head" else torch.randn(1, 1, 12, 8)
    name = "bias" if table == "a bias of every head" else "table"
    torch.manual_seed(0)
    module = Ignoring(2, 8, causal=False).eval()
    if name == "bias":
        module.forward = lambda x, bias, attention_mask=None: Ignoring.forward(module, x, bias, attention_mask)

    found = audit(module, inputs={"x": torch.randn(1, 12, 16), name: tensor}, checks=["padding-leak"])

    assert [each.check for each in found.findings] == ["padding-leak"], str(found)
