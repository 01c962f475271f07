"""Which architectures of transformers run on regard: each, tiny and random, beside its own attention code.

An architecture matches if its outputs, the gradients of all its parameters and the tokens that it generates are those
of its own (eager) attention: against the same model in float64, regard may err at most four times as far as eager does
in float32, on these weights or on weights that lie one unit in the last place beside them. A row counts only where
attention is seen to matter: with a scale that is off by half, the outputs must leave that budget.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from ...common.errors import Refused, first_line, refuse
from . import attention as hf
from .recorder import NAME
from .tiny_models import families, inputs, model_class, tiny_model

__all__ = ["FIRST", "LAST", "VERDICTS", "Counted", "Doubled", "Row", "compare", "families", "marked", "placed", "table"]

VERDICTS = ("matches", "differs", "refused", "not tried")
FIRST, LAST = "<!-- regard models: from here -->", "<!-- regard models: to here -->"

ALLOWED = 4  # times eager's own error
WRITTEN = 6  # tokens per prompt
ROUGH = 1e-3  # an error of eager beyond this says that its float64 is another computation


@dataclass(frozen=True)
class Row:
    """What became of one architecture.

    verdict: "matches", "refused" (reason says why), "differs" (a defect), or "not tried" (no tiny model could be made
    of it).
    calls: attention calls that reached regard; own: softmaxes over four axes that the model computed itself all the
    same.
    error, usual: of the outputs, regard's and eager's against float64, as shares of the largest; gradient,
    usual_gradient: the same for the worst parameter. tokens: how many generated tokens agree with eager's, or None
    where it does not generate.
    """

    name: str
    family: str
    model: str
    verdict: str
    reason: str = ""
    calls: int = 0
    own: int = 0
    error: float = 0.0
    usual: float = 0.0
    gradient: float = 0.0
    usual_gradient: float = 0.0
    tokens: int | None = None

    def line(self) -> str:
        """One line for a terminal."""
        return f"{self.verdict:9}  {self.name} ({self.model}): {self.reason or self.figures()}"

    def figures(self) -> str:
        """What was measured, in words."""
        written = "" if self.tokens is None else f", {self.tokens} tokens agree"
        inside = f" and {self.own} of its own" if self.own else ""
        return (
            f"{self.calls} calls{inside}, outputs {self.error:.0e} (eager {self.usual:.0e}), "
            f"gradients {self.gradient:.0e} ({self.usual_gradient:.0e}){written}"
        )


class Doubled(TorchFunctionMode):
    """Inside, what a model does in float32 on purpose (rotary angles, norms, the softmax) is done in float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.float:
            return args[0].double()
        wide = [torch.float64 if arg is torch.float32 else arg for arg in args]
        named = {name: torch.float64 if arg is torch.float32 else arg for name, arg in (kwargs or {}).items()}
        return function(*wide, **named)


class Counted(TorchFunctionMode):
    """Inside, every softmax over four axes is counted: attention that a model does itself."""

    found = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        self.found += name in ("softmax", "scaled_dot_product_attention") and args[0].ndim == 4
        return function(*args, **(kwargs or {}))


class Ran(NamedTuple):
    """One forward and backward pass: every tensor of floats that came out, and the gradient of every parameter."""

    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]


def compare(name: str, seed: int = 0) -> Row:
    """One architecture on regard beside its own code; `name` is its model_type. Refused: names that transformers does
    not know.
    """
    if name not in families():
        raise refuse(
            "compare",
            "no such architecture",
            given=name,
            expected="a model_type that transformers knows",
            fix="list them: regard.torch.hf.architectures.families()",
        )
    hf.register()
    torch.manual_seed(seed)
    row = functools.partial(Row, name, families()[name][0], "")
    try:
        kind = model_class(name)
        row = functools.partial(Row, name, _family(name, kind), kind.__name__)
        if not kind._can_set_attn_implementation():
            return row("refused", "does its attention itself, beside transformers' interface")
        model = tiny_model(name)
        given = _taken(model)
        usual, moved = _ran(model, given), _ran(_nudged(model), given)
        with Doubled():
            exact = _ran(copy.deepcopy(model).double(), _doubled(given))
    except Exception as error:  # somebody else's code, on a configuration that it was not written for
        said = re.sub(r"'?/[\w./-]+'?", "…", first_line(error, "nothing said"))  # no path of one machine
        return row("not tried", f"{type(error).__name__}: {said}"[:140])
    if not _apart(usual.outputs, exact.outputs) < ROUGH:
        return row(
            "not tried",
            "its float64 is another computation than its float32 (random numbers, or choices among near equals)",
        )
    try:
        model.set_attn_implementation(NAME)
        hf.check(model)
        with torch.no_grad(), hf.record(model) as calls, Counted() as counted:
            model(**given)
        found = _ran(model, given)
    except Refused as refused:
        return row("refused", refused.reasons[0].what + ": " + refused.reasons[0].given)
    figures = {
        "calls": len(calls),
        "own": counted.found,
        "error": _apart(found.outputs, exact.outputs),
        "usual": max(_apart(each.outputs, exact.outputs) for each in (usual, moved)),
        "gradient": _worst(found.gradients, exact.gradients),
        "usual_gradient": max(_worst(each.gradients, exact.gradients) for each in (usual, moved)),
    }
    if not _bent(model, given, exact) > ALLOWED * figures["usual"]:
        return row("not tried", "its attention does not matter for this input", **figures)
    if found.gradients.keys() != exact.gradients.keys():
        return row("differs", "other parameters have gradients", **figures)
    for part, own in (("error", "usual"), ("gradient", "usual_gradient")):
        if not figures[part] <= ALLOWED * figures[own]:
            return row("differs", f"{part} {figures[part]:.1e} where eager makes {figures[own]:.1e}", **figures)
    try:
        want, got = (_generated(model, given, implementation) for implementation in ("eager", NAME))
    except Refused as refused:
        return row("refused", "to generate: " + refused.reasons[0].what, **figures)
    if want is not None and (got is None or not torch.equal(want, got)):
        return row("differs", "other tokens", **figures)
    return row("matches", **figures, tokens=None if want is None else len(want) * WRITTEN)


def _family(name: str, kind) -> str:
    family = families()[name][0]
    if family != "other":
        return family
    main = kind.main_input_name
    takes = {"pixel_values": "vision", "input_values": "speech", "input_features": "speech"}
    return takes.get(main if isinstance(main, str) else main[0], "other")


def _taken(model) -> dict[str, torch.Tensor]:
    """The first inputs that the model takes on its own code."""
    failed: Exception | None = None
    for given in inputs(model):
        try:
            with torch.no_grad():
                model(**given)
        except Exception as error:  # somebody else's code: it may refuse an input with any error
            failed = failed or error
        else:
            return given
    raise failed or LookupError("no inputs are known for it")


def _ran(model, given) -> Ran:
    torch.manual_seed(1)
    outputs = _outputs(model, given)
    generator = torch.Generator().manual_seed(2)
    loss: Any = 0.0
    for part in outputs:
        weight = torch.randn(part.shape, generator=generator, dtype=torch.float64).to(part.dtype)
        loss = loss + (part * weight).mean() if part.requires_grad else loss
    names, weights = zip(
        *[(name, weight) for name, weight in model.named_parameters() if weight.requires_grad], strict=True
    )
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    gradients = {name: part for name, part in zip(names, found, strict=True) if part is not None}
    return Ran([part.detach() for part in outputs], gradients)


def _outputs(model, given) -> list[torch.Tensor]:
    """Every tensor of floats that the model gives, with zeros on the rows of padding: what they see is nobody's
    business.
    """
    seen = given.get("attention_mask")
    found = list(_floats(model(**given)))
    return [
        part * seen.reshape(*seen.shape, *[1] * (part.ndim - 2))
        if seen is not None and part.shape[:2] == seen.shape
        else part
        for part in found
    ]


def _floats(found: Any) -> Iterator[torch.Tensor]:
    """Every tensor of floats in what a model returns."""
    if isinstance(found, torch.Tensor):
        if found.is_floating_point():
            yield found
    elif isinstance(found, Mapping):
        for part in found.values():
            yield from _floats(part)
    elif isinstance(found, list | tuple):
        for part in found:
            yield from _floats(part)


def _nudged(model):
    """The same model with every weight moved by one unit in its last place: what rounding alone may do."""
    made = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.is_floating_point():
                weight.copy_(torch.nextafter(weight, torch.randn(weight.shape, generator=generator) * torch.inf))
    return made


def _doubled(given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: part.double() if part.is_floating_point() else part for name, part in given.items()}


def _apart(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """The largest difference of an output, as a share of its largest number."""
    return max(
        float((a - b).abs().max() / b.abs().max().clamp(min=1e-6))
        for a, b in zip(found, exact, strict=True)
        if b.numel()
    )


def _worst(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> float:
    """The largest difference of a gradient, as a share of the largest of its parameter, or of a hundredth of the
    largest of all.
    """
    largest = {name: float(part.abs().max()) for name, part in exact.items() if part.numel()}
    floor = max(largest.values()) / 100
    return max(
        float((found[name] - exact[name]).abs().max()) / max(largest[name], floor) for name in largest if name in found
    )


def _bent(model, given, exact: Ran) -> float:
    """How far the outputs move when every attention multiplies its scores by 3/2."""
    from transformers import AttentionInterface

    def attend(module, query, *rest, scaling=None, **kwargs):
        return hf.attend(
            module, query, *rest, scaling=1.5 * (query.shape[-1] ** -0.5 if scaling is None else scaling), **kwargs
        )

    AttentionInterface.register(NAME, attend)
    try:
        with torch.no_grad():
            torch.manual_seed(1)
            return _apart(_outputs(model, given), exact.outputs)
    finally:
        hf.register()


def _generated(model, given, implementation: str) -> torch.Tensor | None:
    """What the model writes greedily, from prompts of which one is padded on the left; None where it does not
    generate.
    """
    if not model.can_generate() or type(model).__name__.endswith("CTC"):  # which write without a prompt
        return None
    prompt = {name: part for name, part in given.items() if not name.startswith("decoder_")}
    if "attention_mask" in prompt:
        prompt["attention_mask"] = prompt["attention_mask"].flip(1)
    model.set_attn_implementation(implementation)
    if model.config.is_encoder_decoder:
        prompt["decoder_start_token_id"] = 0
    try:
        found = model.generate(
            **prompt, max_new_tokens=WRITTEN, min_new_tokens=WRITTEN, do_sample=False, num_beams=1, pad_token_id=0
        )
    except Refused:
        raise
    except Exception:  # somebody else's code: some models generate only with inputs that are not made here
        return None
    return found if isinstance(found, torch.Tensor) else found.sequences


def table(rows: list[Row]) -> str:
    """The rows as text for the docs: what matches, by family, then what does not and why."""
    matching = [row for row in rows if row.verdict == "matches"]
    lines = [
        f"{len(matching)} of {len(rows)} architectures match; "
        + ", ".join(f"{sum(row.verdict == verdict for row in rows)} {verdict}" for verdict in VERDICTS[1:])
        + "."
    ]
    for family in dict.fromkeys(row.family for row in matching):
        heads = ("architecture", "model", "calls", "own", "outputs", "eager", "gradients", "eager", "tokens")
        lines += ["", f"### {family.capitalize()}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for row in matching:
            if row.family == family:
                tokens = "" if row.tokens is None else row.tokens
                lines.append(
                    f"| {row.name} | {row.model} | {row.calls} | {row.own or ''} | {row.error:.0e} | {row.usual:.0e} | "
                    f"{row.gradient:.0e} | {row.usual_gradient:.0e} | {tokens} |"
                )
    for verdict in VERDICTS[1:]:
        reasons: dict[str, list[str]] = {}
        for row in rows:
            if row.verdict == verdict:
                reasons.setdefault(row.reason.replace("|", "/"), []).append(row.name)
        if reasons:
            lines += ["", f"### {verdict.capitalize()}", "", "| why | architectures |", "|---|---|"]
            lines += [f"| {reason} | {', '.join(names)} |" for reason, names in reasons.items()]
    return "\n".join(lines)


def marked(text: str) -> bool:
    """Whether a text has a place for the table."""
    return 0 <= text.find(FIRST) < text.find(LAST)


def placed(text: str, made: str) -> str:
    """The text with the table in its place."""
    before, rest = text.split(FIRST, 1)
    return f"{before}{FIRST}\n\n{made}\n\n{LAST}{rest.split(LAST, 1)[1]}"
