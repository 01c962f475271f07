"""Caches of a model, of which this rank holds its share: `spread`."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, SupportsIndex

from ...api.kv_cache import KVCache as Local
from ...common.errors import refuse
from ..exchange.agreement import agreed
from ..exchange.processes import SECONDS, processes
from ..exchange.transport import Transport
from .cache import KVCache, over

NAME = "parallel.spread"


def spread(
    caches: Iterable[Any], *, tokens: SupportsIndex | None = None, group: Any = None, timeout: float = SECONDS
) -> list[KVCache]:
    """Caches like these empty ones, one for each layer of a model, whose positions are spread over ranks.

    Args:
        caches: empty caches of type `regard.KVCache`, such as `model.cache(batch)`.
        tokens: about how long a sequence will be, as for `regard.parallel.KVCache`.
        group: the process group, or a DeviceMesh of one dimension; None is all processes.
        timeout: seconds that a rank waits for the others.

    Returns:
        A `regard.parallel.KVCache` for each of them.

    Raises:
        Refused: caches of another kind, such as those on a GPU, or caches that hold positions already.
        Lost: a rank ended, or did not take part within `timeout`.

    Examples:
        >>> import regard.parallel as rp
        >>> from regard.models import Config, LanguageModel, generate
        >>> model = LanguageModel(Config(vocabulary=256, d_model=32, layers=2, heads=4)).eval()
        >>> # in each process:
        >>> # generate(model, [prompt], tokens=100, greedy=True, cache=rp.spread(model.cache(1), tokens=100_000))
    """
    return spread_over(processes(group, timeout), caches, tokens)


def spread_over(transport: Transport, caches: Iterable[Any], tokens: SupportsIndex | None) -> list[KVCache]:
    """`spread` over any transport."""
    given = agreed(transport, NAME, lambda: _checked(caches))
    return [over(transport, functools.partial(_like, each), tokens) for each in given]


def _checked(caches: Iterable[Any]) -> tuple[list[Local], dict[str, str]]:
    found = list(caches)
    unknown = [type(each).__name__ for each in found if type(each) is not Local]
    if unknown:
        raise refuse(
            NAME,
            "only the caches of layers on the CPU can be spread",
            ", ".join(dict.fromkeys(unknown)),
            "regard.KVCache",
            "pass model.cache(batch) of a language model on the CPU",
        )
    filled = [number for number, each in enumerate(found) if each.lengths.any()]
    if filled:
        raise refuse(
            NAME,
            "a cache holds positions already",
            f"cache {filled[0]} with lengths {found[filled[0]].lengths.tolist()}",
            "empty caches",
            "spread them before the first tokens: rp.spread(model.cache(batch))",
        )
    return found, {"the number of caches": f"{len(found)}"}


def _like(cache: Local) -> Local:
    """A new cache with the arguments of this one."""
    return Local(
        cache.heads,
        cache.depth,
        cache.value_depth,
        batch=len(cache),
        dtype=str(cache.dtype),
        window=cache.window,
        pages=cache.pages,
        storage=cache.storage,
    )
