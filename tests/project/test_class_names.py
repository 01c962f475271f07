"""Public classes name the package that people import them from."""

import importlib

import pytest

PACKAGES = [
    "regard",
    "regard.lens",
    "regard.audits",
    "regard.torch.layers",
    "regard.torch.positions",
    "regard.torch.hf",
]


@pytest.mark.parametrize("name", [*PACKAGES, "regard.models"])
def test_public_classes_name_their_package(name):
    """Tracebacks and pickles name the package that people import from, not a file in it."""
    if name.startswith(("regard.torch", "regard.models")):
        pytest.importorskip("transformers")
    package = importlib.import_module(name)
    classes = [each for each in (getattr(package, part) for part in package.__all__) if isinstance(each, type)]
    assert classes and {each.__module__ for each in classes} <= {*PACKAGES, "regard.models"}
