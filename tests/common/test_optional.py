"""A missing optional package: the error says which extra brings it; other missing packages are the user's own."""

import pytest

from regard.common.optional import requires_extra


@pytest.mark.parametrize("name", ["timm", "numpy.nothing", None])
def test_other_missing_modules_stay_what_they_are(name):
    """A package that a user's model imports, or a part of an installed package."""
    with pytest.raises(ModuleNotFoundError), requires_extra("look", "look"):
        raise ModuleNotFoundError("No module", name=name)
