"""The types in public signatures agree with what runs."""

import sys
import typing

import pytest

import regard as rg
from regard.common.public import Engine
from regard.engines import choice


def test_the_type_lists_every_engine():
    """`Engine` names "auto" and the engines of CPUs and GPUs, and nothing else."""
    from regard.engines.gpu.entry import ENGINES

    assert set(typing.get_args(Engine)) == {"auto", *choice.ENGINES, *ENGINES}


def test_public_classes_say_where_users_import_them():
    """Tracebacks, reprs and pickles name regard, not the file of a class."""
    classes = [each for name in rg.__all__ if isinstance(each := getattr(rg, name), type)]
    assert rg.KVCache.__module__ == rg.Refused.__module__ == "regard"
    assert [
        each for each in classes if each.__name__ not in vars(sys.modules[each.__module__]).get("__all__", ())
    ] == []


@pytest.mark.parametrize(
    "function", [rg.attention, rg.attention_backward, rg.attention_stats, rg.explain, rg.merge, rg.KVCache.attend]
)
def test_annotations_resolve(function):
    """Tools that read annotations at run time find every name in them."""
    assert typing.get_type_hints(function)["return"] is not None
