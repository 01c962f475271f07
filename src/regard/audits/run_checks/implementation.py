"""The implementation that really ran, and layers of which no call was seen."""

from __future__ import annotations

from collections.abc import Iterator

from ...lens import Run
from ..finding import Finding, Passed, Result, Skipped
from .layer_settings import layer_of
from .wording import concluded, listed, place, shape_of

__all__ = ["arrived", "implementation"]

# What an implementation that transformers is set to looks like when it runs; others are not known by their looks.
KINDS = {"eager": ("written out",), "sdpa": ("sdpa",), "flex_attention": ("flex",), "regard": ("regard",)}


def implementation(run: Run, module=None) -> Iterator[Result]:
    """Who computed the calls, against what the configuration of their layer asks for."""
    read, found = 0, []
    ran: dict[str, int] = {}
    for number, call in enumerate(run.calls):
        asked = getattr(getattr(layer_of(call, module), "config", None), "_attn_implementation", None)
        kind = str(call.notes.get("kind") or call.engine)
        if asked not in KINDS or not kind:
            continue
        read += 1
        ran[kind] = ran.get(kind, 0) + 1
        if not any(word in kind.lower() for word in KINDS[asked]):
            found.append(
                Finding(
                    check="implementation",
                    severity="note",
                    where=place(run, number),
                    measured=f"the layer is set to {asked!r}, and what ran is {kind} (threshold: another name)",
                    cause="the layer computes its attention itself, whatever it is set to",
                    mend="nothing, if its numbers are right; settings such as a faster kernel have no effect here",
                    call=number,
                    numbers={"asked": asked, "ran": kind},
                )
            )
    shown = ", ".join(f"{kind} {count} times" for kind, count in ran.items())
    yield from concluded("implementation", found, read, shown, "no layer says what it is set to")


def arrived(run: Run, module=None) -> Iterator[Result]:
    """Layers like others that made calls, but of which none was seen."""
    if module is None:
        yield Skipped("arrived", "the model is not at hand")
        return
    left_out = run.facts.get("left_out")
    if left_out:
        yield Skipped("arrived", "layers were left out when the run was recorded")
        return
    seen = {call.name for call in run.calls}
    kinds = {(shape_of(name), type(layer_of(call, module))) for call in run.calls for name in [call.name]}
    silent = [
        name
        for name, part in module.named_modules()
        if name and name not in seen and (shape_of(name), type(part)) in kinds
    ]
    if not silent:
        yield Passed("arrived", f"calls of {len(seen)} layers were seen, and there are no others like them")
        return
    yield Finding(
        check="arrived",
        severity="warning",
        where=f"layers {listed(silent)}",
        measured=(
            f"no attention call of these {len(silent)} layers was seen, while {len(seen)} others like "
            "them made some (threshold: 0)"
        ),
        cause=(
            "they were skipped, or computed their attention in a way that cannot be seen (a compiled "
            "graph, a kernel of their own)"
        ),
        mend="run without torch.compile; for a transformers model, set one implementation for all layers",
        numbers={"layers": silent},
    )
