"""The lazy mask: true where the mask of transformers is, and refused where a tensor would be needed."""

import numpy as np
import pytest
import torch
from transformers import masking_utils

from regard.api.kv_cache.reader import AHEAD
from regard.torch.hf.lazy_mask import lazy_mask
from tests.support.engines import at_every_pair
from tests.support.refusals import refusing

# ------------------------------------------------------------------------------------------------ the mask


@pytest.mark.parametrize("seed", range(28))
def test_the_lazy_mask_is_transformers_mask(seed):
    """For random rules, offsets and padding it is true exactly where transformers' own mask is."""
    draw = np.random.default_rng(seed)
    B, Q, K, first = (int(draw.integers(1, high)) for high in (4, 7, 12, 5))
    first -= 1
    start = first + int(draw.integers(0, K))
    rule = [
        masking_utils.causal_mask_function,
        masking_utils.bidirectional_mask_function,
        masking_utils.sliding_window_causal_mask_function(3),
        masking_utils.sliding_window_bidirectional_mask_function(2),
        masking_utils.chunked_causal_mask_function(4, torch.from_numpy(draw.integers(0, 4, B))),
        masking_utils.or_masks(
            masking_utils.causal_mask_function,
            masking_utils.blockwise_overlay(torch.from_numpy(draw.integers(-1, 2, (B, 40)))),
        ),
        masking_utils.and_masks(
            masking_utils.packed_sequence_mask_function(torch.from_numpy(draw.integers(0, 2, (B, 40)))),
            masking_utils.remap_positions_for_packed_sequence(
                masking_utils.causal_mask_function, torch.from_numpy(draw.integers(0, 9, (B, 40)))
            ),
        ),
    ][seed % 7]
    padding = [None, torch.from_numpy(draw.random((B, int(draw.integers(first + 1, first + K + 3)))) < 0.7)][seed % 2]
    offset = torch.tensor(start) if seed % 3 == 0 else start
    sizes = {"batch_size": B, "q_length": Q, "kv_length": K, "q_offset": offset, "kv_offset": first}
    want = masking_utils.sdpa_mask(**sizes, mask_function=rule, attention_mask=padding, allow_is_causal_skip=False)
    mask = lazy_mask(
        **sizes, mask_function=rule, attention_mask=padding, dtype=torch.float32, config=None, use_vmap=False
    )
    found = at_every_pair(mask.rule, (B, 1, Q, K), mask.query_start)
    assert mask.shape == want.shape and mask.ndim == want.ndim and mask.dtype is want.dtype
    np.testing.assert_array_equal(found, want.numpy())


def test_the_mask_says_only_what_matters():
    """What always holds on the grid is left out, and a padding table is as long as the keys, not their square."""
    window, seen = masking_utils.sliding_window_causal_mask_function(8), torch.ones(2, 5, dtype=torch.bool)

    def said(rows, first, rule):
        return repr(lazy_mask(2, rows, 5, first, mask_function=rule, attention_mask=seen).rule)

    assert said(5, 0, window) == "key <= query"
    assert said(1, 4, window) == "True"
    seen[1, 3:] = False
    assert said(5, 0, masking_utils.bidirectional_mask_function) == "padding[batch, key]"


def test_steps_of_decoding_have_one_rule():
    """So they have one plan, and a cache is prepared once: the padding covers the keys of the steps to come."""
    real = torch.ones(2, 40, dtype=torch.bool)
    real[1, :3] = False
    (rule,) = {lazy_mask(2, 1, K, K - 1, attention_mask=real[:, :K]).rule for K in range(9, 40)}
    assert rule.tables[0].shape[1] >= 39 + AHEAD


def test_a_mask_can_be_cut_but_not_computed_with():
    """Cutting moves the first row; anything that a tensor could do besides is refused."""
    mask = lazy_mask(1, 6, 6, 0, 0, mask_function=masking_utils.causal_mask_function)
    cut = mask[:, :, -2:, :4]
    assert (tuple(cut.shape), cut.query_start) == ((1, 1, 2, 4), 4)
    assert mask[..., 2:5, :].query_start == 2 and tuple(mask[..., 2:5, :].shape) == (1, 1, 3, 6)
    assert mask.contiguous() is mask and mask.to("cpu").rule is mask.rule and mask.to(torch.bool) is mask
    assert not hasattr(mask, "is_nested")
    assert torch.equal(cut[:, 0], torch.ones(1, 2, 4, dtype=torch.bool)) and torch.equal(
        mask[:, 0][0], torch.ones(6, 6).tril() > 0
    )
    scores = torch.zeros(1, 1, 6, 6)
    for use in (
        lambda: scores + mask,
        lambda: mask + scores,
        lambda: 1 - mask,
        lambda: ~mask,
        lambda: bool(mask),
        lambda: mask.float(),
        lambda: mask.to(torch.float32),
        lambda: mask[:, 1],
        lambda: mask[..., 1:],
        lambda: mask[:, :, ::2],
        lambda: mask[scores],
        lambda: np.asarray(mask),
    ):
        with refusing("fix  "):
            use()


def test_a_function_of_the_user_is_read_in_every_call():
    """It may use what changes between calls; transformers' own functions capture nothing."""
    limit = [2]

    def rule(b, h, q, kv):
        return kv < limit[0]

    first = lazy_mask(1, 2, 5, 3, mask_function=rule).rule
    limit[0] = 4
    assert repr(first) == "key < 2" and repr(lazy_mask(1, 2, 5, 3, mask_function=rule).rule) == "key < 4"
