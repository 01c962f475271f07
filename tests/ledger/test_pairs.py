"""Pairs of a rule: the closed form, the plan and the rule written out agree."""

import random

import numpy as np
import pytest

import regard as rg
from regard.ledger.counting.pairs import Band, band, counted, pairs
from tests.support.engines import at_every_pair
from tests.support.refusals import refusing

RULES = {
    "everything": rg.everything(),
    "causal": rg.causal(),
    "window": rg.causal() & rg.window(7),
    "both sides": rg.window(3, 5),
    "no left": rg.window(None, 2),
    "distance": abs(rg.query - rg.key) <= 4,
    "strict": abs(rg.query - rg.key) < 4,
    "mirrored": rg.query >= rg.key,
    "moved": rg.key + 3 < rg.query,
    "the diagonal": rg.key == rg.query,
    "chunks": (rg.key // 8 == rg.query // 8) & rg.causal(),
    "documents": rg.documents(lengths=[5, 9, 16]),
    "dilated": rg.dilated(3) & rg.causal(),
    "heads": (rg.key <= rg.query) & (rg.key > rg.query - 2 - rg.head),
    "either": rg.window(2) | (rg.key == 0),
}
KNOWN = list(RULES)[:11]


@pytest.mark.parametrize("name", RULES)
def test_closed_form_plan_and_rule_agree(name):
    """For rows at any position, and any number of keys."""
    rule, choose = RULES[name], random.Random(name)

    for _ in range(40):
        longest = 30 if name == "documents" else 70
        start, keys = choose.choice([0, 0, choose.randrange(20)]), choose.randint(1, longest)
        rows = choose.randint(1, max(1, (30 if name == "documents" else 60) - start))
        sizes = (choose.randint(1, 2), choose.randint(1, 3), rows, keys, start)
        assert pairs(rule, *sizes) == counted(rule, *sizes) == at_every_pair(rule, sizes[:4], sizes[4]).sum(), sizes


@pytest.mark.parametrize("name", KNOWN)
def test_rules_of_distance_and_chunks_have_a_closed_form(name):
    """So they are counted at any length, which no plan reaches."""
    assert band(RULES[name]) is not None
    assert counted(RULES[name], 1, 1, 10**9, 10**9) is None
    assert pairs(RULES[name], 1, 1, 10**12, 10**12) > 0


def test_the_plan_counts_what_is_too_much_to_write_out():
    """Above the size at which pairs are tried one by one."""
    for rule in (rg.causal(), rg.causal() & rg.window(300), RULES["chunks"]):
        assert counted(rule, 1, 1, 3000, 3000) == pairs(rule, 1, 1, 3000, 3000)


def test_random_bands():
    """Every combination of limits, chunk, start and sizes."""
    choose = np.random.default_rng(0)
    for _ in range(3000):
        low, high = (None if choose.random() < 0.5 else int(choose.integers(*limits)) for limits in ((-9, 5), (-4, 10)))
        chunk, (rows, keys) = int(choose.choice([0, 0, 1, 2, 3, 5, 8])), choose.integers(0, 21, 2).tolist()
        start = int(choose.choice([0, choose.integers(16)]))
        query, key = np.ogrid[start : start + rows, :keys]
        allowed = (key - query >= (-99 if low is None else low)) & (key - query <= (99 if high is None else high))
        allowed &= key // max(chunk, 1) == query // max(chunk, 1) if chunk else True
        assert Band(low, high, chunk).count(rows, keys, start) == allowed.sum(), (low, high, chunk, rows, keys, start)


def test_a_rule_that_is_too_long_is_refused():
    """Documents of a million tokens and more have no closed form."""
    with refusing("too long to be counted"):
        pairs(RULES["dilated"], 1, 1, 1 << 21, 1 << 21)
