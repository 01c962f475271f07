"""The default model: what is skipped without its package, and the text that it is asked about."""

import importlib.util

import pytest

from regard.common.default_model import PACKAGE

SENTENCE = "The animal didn't cross the street because it was too tired."
with_minilm = pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed")
