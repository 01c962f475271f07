"""Public classes name the package that people import them from."""

import pytest

import regard as rg


def test_public_classes_name_their_package():
    """Tracebacks and pickles name the package that people import from, not a file in it."""
    import regard.audits
    import regard.lens

    assert [rg.Refused.__module__, rg.KVCache.__module__, rg.Explanation.__module__] == ["regard"] * 3
    for package in (rg, regard.lens, regard.audits):
        for name in package.__all__:
            value = getattr(package, name)
            if isinstance(value, type):
                assert value.__module__ in ("regard", "regard.lens", "regard.audits"), name


def test_public_classes_of_torch_name_their_package():
    """The same of layers, positions, models and transformers."""
    pytest.importorskip("transformers")
    import regard.models
    import regard.torch.hf

    for package in (regard.torch.layers, regard.torch.positions, regard.torch.hf, regard.models):
        for name in package.__all__:
            value = getattr(package, name)
            if isinstance(value, type):
                assert value.__module__ == package.__name__, name
