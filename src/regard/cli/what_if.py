"""`regard what-if`: what a model does without an edge, a head or a layer of its attention."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import refuse
from ..common.optional import requires_extra
from .arguments import Inputs, is_own, model_of, option, read_text
from .terminal import emit

if TYPE_CHECKING:
    from ..lens.interventions.subject import Subject


def what_if(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] TEXT | FILE | -",
            show_default=False,
            help="Model folder, Hugging Face model id or FILE.py:CLASS (default: MiniLM), then a text.",
        ),
    ] = None,
    *,
    cut: Annotated[
        list[str] | None,
        option("Cut the edge from a token to one that it attends to: 'it->animal', '10->2'.", metavar="<ROW->KEY>"),
    ] = None,
    effects: Annotated[
        str | None, option("Rank what matters: heads, layers, tokens, edges or stream.", metavar="<OF>")
    ] = None,
    source: Annotated[
        str | None, option("With --effects: a text of as many tokens, of whose run parts take their place.", "0")
    ] = None,
    layer: Annotated[list[str] | None, option("Number or name of a layer. Can be repeated.", "all")] = None,
    head: Annotated[list[int] | None, option("Number of a head. Can be repeated.", "all")] = None,
    measure: Annotated[str | None, option("With --effects: loss, logit, kl or cosine.", "automatic")] = None,
    token: Annotated[str | None, option("With --effects: the token whose logit is measured.", "likeliest")] = None,
    target: Annotated[str | None, option("Target text, for encoder-decoder models.")] = None,
    inputs: Inputs = None,
    save: Annotated[Path | None, option("With --effects: write the arrays to this .npz file.")] = None,
) -> None:
    """Print what a model does without a part of its attention.

    With --cut without these edges, otherwise without the heads and layers that are named; with --effects, which of them
    matter most.
    """
    with requires_extra("what-if", "look"):
        from ..lens.interventions.effects import effects as ranked
        from ..lens.interventions.measures import difference
        from ..lens.interventions.subject import Subject

    unused = (
        {"--measure": measure, "--token": token, "--save": save, "--source": source}
        if effects is None
        else {"--cut": cut or None}
    )
    if passed := [name for name, value in unused.items() if value is not None]:
        needed = "--effects" if effects is None else "the options of --effects"
        raise refuse("what-if", f"{passed[0]} has no effect", " ".join(passed), needed, f"omit {passed[0]}")
    if effects is None and not (cut or layer or head):
        raise refuse("what-if", "nothing is changed", "no option", "--cut, --layer, --head or --effects", "add one")
    name, text = _model_and_text(words or [])
    model, example = model_of("what-if", name, inputs)
    layers = None if not layer else [int(each) if each.isdigit() else each for each in layer]
    if effects is not None:
        given: Any = {"of": effects, "measure": measure, "token": token, "layer": layers, "head": head or None}
        found = ranked(model, text, source=source, target=target, inputs=example, **given)
        emit(str(found))
        if save is not None:
            found.save(save)
        return
    subject = Subject.of(model, text, target, example, None)
    rules = {"mask": _without(subject, cut)} if cut else {"output": 0}
    emit("\n".join(difference(subject, layer=layers, head=head or None, **rules)))


def _model_and_text(words: list[str]) -> tuple[str | None, str | None]:
    if len(words) > 2:
        given = f"{len(words)} arguments"
        raise refuse("what-if", "too many arguments", given, "a model and a text", "put the text in quotes")
    if len(words) == 1 and is_own(words[0]):
        return words[0], None
    return (words[0] if len(words) == 2 else None), read_text("what-if", words[-1] if words else None)


def _without(subject: Subject, cut: list[str]):
    """The mask without these edges."""
    from ..language.expr import key, query

    mask: Any = True
    for edge in cut:
        row, arrow, column = edge.partition("->")
        if not arrow:
            raise refuse("what-if", "not an edge", f"--cut {edge}", "ROW->KEY", "pass, for example, 'it->animal'")
        mask = mask & ~((query == subject.position(row)) & (key == subject.position(column)))
    return mask
