"""Transformers models over several ranks: the losses of one process, attention in its bits, and what is refused."""

import pytest
import torch

from regard.torch.hf.divided import mask_for
from tests.parallel.started import results
from tests.support.refusals import refusing
from tests.torch.hf import divided_on_ranks as work

pytestmark = pytest.mark.slow
MODULE = "tests.torch.hf.divided_on_ranks"


def same_losses(found, expected):
    """All ranks have the same losses and weights, which are those of one process."""
    assert all(each == found[0] for each in found)
    (losses, weights), (one, alone) = found[0], expected
    assert one[-1] < one[0]
    assert losses == pytest.approx(one, rel=1e-5) and weights == pytest.approx(alone, abs=1e-5)


def test_two_ranks():
    """Llama with grouped key heads, and packed documents: losses and weights of one process; attention's outputs and
    gradients, also in a window, in its bits; wrong calls on one rank are refused on both.
    """
    found = results(2, MODULE, "on_two")
    same_losses([each["llama"] for each in found], work.train(2, alone=True))
    for name, window in (("attended", None), ("attended in a window", 150)):
        _, expected = work.attended(window, alone=True)
        for positions, tensors in (each[name] for each in found):
            assert all(torch.equal(one, other[:, :, positions]) for one, other in zip(tensors, expected, strict=True))
    documents = [each["documents"] for each in found]
    assert documents[0] == documents[1] and documents[0][0][0] != found[0]["llama"][0][0]
    assert all(each["refusals"] for each in found)


@pytest.mark.sweep
def test_four_ranks():
    """Five steps of Llama on four ranks under a zig-zag placement."""
    same_losses(results(4, MODULE, "train", 5), work.train(5, alone=True))


def test_outside_a_sequence():
    """Without a sequence, masks are those of `lazy_mask`, and padding is no problem."""
    assert "padding" in repr(mask_for(1, 3, 3, attention_mask=torch.tensor([[0, 1, 1]])))
    with refusing("padding has the wrong number of axes"):
        mask_for(1, 3, 3, attention_mask=torch.zeros(3))
