"""Models with their own attention code: what a layer declares against the arguments of its recorded call."""

import pytest

import regard as rg
from bench.audit_faults.of_transformers import FAULTS, ROTATIONS, host

CALLS = ["scale missing", "scale doubled", "scale inverted", "no causal mask"]
WINDOWS = ["window dropped", "window one longer"]
DECLARED = [("mistral", fault) for fault in (None, *WINDOWS)]
DECLARED += [("llama", fault) for fault in (None, "rotary base", "scale declared twice", *CALLS, *ROTATIONS)]


@pytest.mark.parametrize(("name", "fault"), DECLARED)
def test_what_a_configuration_says_against_what_its_layers_do(name, fault):
    """Scales, masks, windows, and queries or keys that are rotated otherwise than the configuration or another layer
    says are named; the healthy model is silent.
    """
    with host(name, fault) as (model, _):
        found = rg.audit(model, checks=["positions", "scale", "mask"]).findings

    causes = [each.cause for each in found if each.severity == "fault"] or ["healthy"]
    assert any(word in causes[0] for word in FAULTS.get(fault, [["healthy"]])[0])
