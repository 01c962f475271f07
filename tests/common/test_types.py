"""The types in public signatures agree with what runs."""

import typing

import pytest

import regard as rg
from regard.common.public import Engine
from regard.engines import choice


def test_the_type_lists_every_engine():
    """`Engine` names "auto" and the engines of CPUs and GPUs, and nothing else."""
    from regard.engines.gpu.entry import ENGINES

    assert set(typing.get_args(Engine)) == {"auto", *choice.ENGINES, *ENGINES}


@pytest.mark.parametrize(
    "function", [rg.attention, rg.attention_backward, rg.attention_stats, rg.explain, rg.merge, rg.KVCache.attend]
)
def test_annotations_resolve(function):
    """Tools that read annotations at run time find every name in them."""
    assert typing.get_type_hints(function)["return"] is not None
