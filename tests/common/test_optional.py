"""A missing optional package: the error says which extra brings it; other missing packages are the user's own."""

import importlib.util

import pytest

import regard as rg
from regard.common.optional import requires_extra


def test_a_missing_package_of_an_extra(monkeypatch):
    """What is missing, which extra brings it, and the command."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(rg.Refused) as refused, requires_extra("audit", "look"):
        raise ModuleNotFoundError("No module named 'transformers.models'", name="transformers.models")

    (reason,) = refused.value.reasons
    assert refused.value.where == "audit"
    assert (reason.what, reason.fix) == ("transformers is not installed", "pip install 'regard[look]'")


@pytest.mark.parametrize("name", ["timm", "numpy.nothing", None])
def test_other_missing_modules_stay_what_they_are(name):
    """A package that a user's model imports, or a part of an installed package."""
    with pytest.raises(ModuleNotFoundError), requires_extra("look", "look"):
        raise ModuleNotFoundError("No module", name=name)
