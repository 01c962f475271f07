"""Compares every architecture of transformers, as a tiny random model, on regard with its own (eager) attention.

An architecture matches if its outputs, the gradients of all its parameters and its generated tokens agree with its own
attention: relative to the same model in float64, regard's error may be at most four times the error of eager in
float32, for these weights or for weights perturbed by one unit in the last place. A row counts only if attention
matters: with a scale that is wrong by half, the error of the outputs must exceed that limit.
"""

from __future__ import annotations

import argparse
import copy
import functools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from bench.model_errors import ALLOWED, Doubled, difference, doubled, floats, perturbed, worst
from regard.common.errors import Reason, Refused, did_you_mean, first_line
from regard.observe.recorder import NAME, record
from regard.torch.hf import attention as hf
from regard.torch.hf.readiness import assigned, check
from regard.torch.hf.tiny_models import FAMILIES, accepted, mappings, model_class, tiny_model

RESULTS = ("matches", "differs", "refused", "not tried")
FIRST, LAST = "<!-- bench.architectures: from here -->", "<!-- bench.architectures: to here -->"

WRITTEN = 6  # tokens per prompt
ROUGH = 1e-3  # if eager's error exceeds this, its float64 and float32 results are not comparable


@dataclass(frozen=True)
class Row:
    """The result of one architecture.

    result: "matches", "refused" (for `reason`), "differs" (a defect), or "not tried" (no tiny model can be built).
    calls: the number of attention calls on regard; own: the number of softmaxes over four axes that the model computed
    itself.
    error, usual: the errors of the outputs of regard and of eager against float64, relative to the largest value;
    gradient, usual_gradient: the same for the worst parameter. tokens: how many generated tokens agree with eager's,
    or None if the model does not generate.
    """

    name: str
    family: str
    model: str
    result: str
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
        return f"{self.result:9}  {self.name} ({self.model}): {self.reason or self.figures()}"

    def figures(self) -> str:
        """The measurements as text."""
        written = "" if self.tokens is None else f", {self.tokens} tokens agree"
        inside = f" and {self.own} of its own" if self.own else ""
        return (
            f"{self.calls} calls{inside}, outputs {self.error:.0e} (eager {self.usual:.0e}), "
            f"gradients {self.gradient:.0e} ({self.usual_gradient:.0e}){written}"
        )


class Counted(TorchFunctionMode):
    """Inside the mode, counts softmaxes over four axes: attention that a model computes itself."""

    found = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        self.found += name in ("softmax", "scaled_dot_product_attention") and args[0].ndim == 4
        return function(*args, **(kwargs or {}))


class Ran(NamedTuple):
    """One forward and backward pass: every output tensor of floats, and the gradient of every parameter."""

    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]


def check_names(names: Iterable[str]) -> None:
    """Raises `Refused` for names that transformers does not know, all of them at once."""
    reasons = [
        Reason(
            "no such architecture",
            name,
            "a model_type that transformers knows",
            did_you_mean(name, mappings(), "docs/reference/architectures.md"),
        )
        for name in names
        if name not in mappings()
    ]
    if reasons:
        raise Refused("architectures", reasons)


def compare(name: str, seed: int = 0) -> Row:
    """Compares one architecture on regard with its own code; `name` is its model_type.

    Raises `Refused` for a name that transformers does not know.
    """
    check_names([name])
    hf.register()
    torch.manual_seed(seed)
    row = functools.partial(Row, name, FAMILIES[mappings()[name]], "")
    try:
        kind = model_class(name)
        row = functools.partial(Row, name, _family(name, kind), kind.__name__)
        if not kind._can_set_attn_implementation():
            return row("refused", "computes its attention itself, outside transformers' interface")
        model = tiny_model(name)
        given = accepted(model)
        usual, moved = _ran(model, given), _ran(perturbed(model), given)
        with Doubled():
            exact = _ran(copy.deepcopy(model).double(), doubled(given))
    except Exception as error:  # third-party code, on a configuration that it was not written for
        message = re.sub(r"'?/[\w./-]+'?", "…", first_line(error, "no message"))  # without local paths
        return row("not tried", f"{type(error).__name__}: {message}"[:140])
    if not difference(usual.outputs, exact.outputs) < ROUGH:
        return row(
            "not tried",
            "its float64 and float32 results are not comparable (random numbers, or choices between near-equal values)",
        )
    model.set_attn_implementation(NAME)
    if reasons := assigned(model):
        return row("refused", _title(reasons[0]))
    said = _error(lambda: check(model))
    calls: list = []
    counted = Counted()
    happened = _error(lambda: _recorded(model, given, calls, counted))
    if said is None and happened is not None:
        return row("differs", f"check is silent, but the forward raises {first_line(happened)}")
    if isinstance(said, Refused):
        return row(*("refused", _title(said.reasons[0])) if happened else ("differs", "check refuses what runs"))
    ours = _ran(model, given)
    figures: dict[str, Any] = {
        "calls": len(calls),
        "own": counted.found,
        "error": difference(ours.outputs, exact.outputs),
        "usual": max(difference(each.outputs, exact.outputs) for each in (usual, moved)),
        "gradient": worst(ours.gradients, exact.gradients),
        "usual_gradient": max(worst(each.gradients, exact.gradients) for each in (usual, moved)),
    }
    if not _wrong_scale(model, given, exact) > ALLOWED * figures["usual"]:
        return row("not tried", "its attention does not matter for this input", **figures)
    if ours.gradients.keys() != exact.gradients.keys():
        return row("differs", "different parameters have gradients", **figures)
    for part, own in (("error", "usual"), ("gradient", "usual_gradient")):
        if not figures[part] <= ALLOWED * figures[own]:
            return row("differs", f"{part} {figures[part]:.1e}, eager {figures[own]:.1e}", **figures)
    for how in ("argument", "configuration"):
        weights = [_collected(model, given, implementation, how) for implementation in ("eager", NAME)]
        if weights[0] != weights[1]:
            return row("differs", f"output_attentions as {how} gives other weights", **figures)
    try:
        expected, tokens = (_generated(model, given, implementation) for implementation in ("eager", NAME))
    except Refused as refused:
        return row("refused", "to generate: " + refused.reasons[0].what, **figures)
    if expected is not None and (tokens is None or not torch.equal(expected, tokens)):
        return row("differs", "different tokens", **figures)
    return row("matches", **figures, tokens=None if expected is None else len(expected) * WRITTEN)


def _title(reason: Reason) -> str:
    return f"{reason.what}: {reason.given}"


def _error(run: Callable[[], None]) -> Exception | None:
    """What stops `run`, if anything: what regard refuses, or any error of third-party code."""
    try:
        run()
    except Exception as error:  # third-party code may raise anything
        return error
    return None


def _recorded(model, given, calls: list, counted: Counted) -> None:
    """Runs the model and adds to `calls` and `counted`."""
    with torch.no_grad(), record(model) as found, counted:
        model(**given)
    calls += found


def _collected(model, given, implementation: str, how: str) -> list[tuple[str, list]] | None:
    """The shapes of the weights that the model returns; None if it cannot return them.

    how: whether they are wanted by the argument `output_attentions`, or by the configurations of all parts.
    """
    model.set_attn_implementation(implementation)
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}.values()
    requested = {"output_attentions": True} if how == "argument" else {}
    try:
        for config in configs:
            config._output_attentions = how == "configuration"  # transformers allows to set it on eager only
        with torch.no_grad():
            output = model(**given, **requested)
    except Refused:
        raise
    except Exception:  # third-party code: some models do not take the argument
        return None
    finally:
        for config in configs:
            config._output_attentions = False
    return [
        (name, [list(part.shape) for part in floats(output[name])])
        for name in (output if isinstance(output, Mapping) else ())
        if "attentions" in name
    ]


def _family(name: str, kind) -> str:
    family = FAMILIES[mappings()[name]]
    if family != "other":
        return family
    main = kind.main_input_name
    takes = {"pixel_values": "vision", "input_values": "speech", "input_features": "speech"}
    return takes.get(main if isinstance(main, str) else main[0], "other")


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
    parts = torch.autograd.grad(loss, weights, allow_unused=True)
    gradients = {name: part for name, part in zip(names, parts, strict=True) if part is not None}
    return Ran([part.detach() for part in outputs], gradients)


def _outputs(model, given) -> list[torch.Tensor]:
    """Every output tensor of floats, with zeros on the rows of padding, whose values are unspecified."""
    mask = given.get("attention_mask")
    return [
        part * mask.reshape(*mask.shape, *[1] * (part.ndim - 2))
        if mask is not None and part.shape[:2] == mask.shape
        else part
        for part in floats(model(**given))
    ]


def _wrong_scale(model, given, exact: Ran) -> float:
    """The difference of the outputs when every attention multiplies its scores by 3/2."""
    from transformers import AttentionInterface

    def attend(module, query, *rest, scaling=None, **kwargs):
        return hf.attend(
            module, query, *rest, scaling=1.5 * (query.shape[-1] ** -0.5 if scaling is None else scaling), **kwargs
        )

    AttentionInterface.register(NAME, attend)
    try:
        with torch.no_grad():
            torch.manual_seed(1)
            return difference(_outputs(model, given), exact.outputs)
    finally:
        hf.register()


def _generated(model, given, implementation: str) -> torch.Tensor | None:
    """Greedily generated tokens, for prompts of which one is padded on the left; None if the model cannot generate."""
    if not model.can_generate() or type(model).__name__.endswith("CTC"):  # CTC models take no prompt
        return None
    prompt = {name: part for name, part in given.items() if not name.startswith("decoder_")}
    if "attention_mask" in prompt:
        prompt["attention_mask"] = prompt["attention_mask"].flip(1)
    model.set_attn_implementation(implementation)
    if model.config.is_encoder_decoder:
        prompt["decoder_start_token_id"] = 0
    try:
        output = model.generate(
            **prompt, max_new_tokens=WRITTEN, min_new_tokens=WRITTEN, do_sample=False, num_beams=1, pad_token_id=0
        )
    except Refused:
        raise
    except Exception:  # third-party code: some models generate only with inputs that are not built here
        return None
    return output if isinstance(output, torch.Tensor) else output.sequences


def table(rows: list[Row]) -> str:
    """The rows as Markdown tables for the docs: matching architectures by family, then the others by reason."""
    matching = [row for row in rows if row.result == "matches"]
    lines = [
        f"{len(matching)} of {len(rows)} architectures match; "
        + ", ".join(f"{sum(row.result == result for row in rows)} {result}" for result in RESULTS[1:])
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
    for result in RESULTS[1:]:
        reasons: dict[str, list[str]] = {}
        for row in rows:
            if row.result == result:
                reasons.setdefault(_escaped(row.reason), []).append(row.name)
        if reasons:
            lines += ["", f"### {result.capitalize()}", "", "| why | architectures |", "|---|---|"]
            lines += [f"| {reason} | {', '.join(names)} |" for reason, names in reasons.items()]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """A message as the text of a table's cell: brackets in it are not links."""
    return re.sub(r"([\[\]])", r"\\\1", text.replace("|", "/"))


def marked(text: str) -> bool:
    """Whether a text has the two marker lines of the table."""
    return 0 <= text.find(FIRST) < text.find(LAST)


def placed(text: str, made: str) -> str:
    """The text with the table between its two marker lines."""
    before, rest = text.split(FIRST, 1)
    return f"{before}{FIRST}\n\n{made}\n\n{LAST}{rest.split(LAST, 1)[1]}"


def main(words: list[str] | None = None) -> int:
    """Prints a line for each architecture. Returns 1 if one differs."""
    import transformers

    parser = argparse.ArgumentParser(prog="python -m bench.architectures", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="architectures (model_type), such as llama; all if none is named")
    parser.add_argument("--save", type=Path, help="write the table between the two marker lines of this page")
    options = parser.parse_args(words)
    check_names(options.names)
    if options.save and not marked(options.save.read_text(encoding="utf-8")):
        parser.error(f"{options.save} has no lines {FIRST} and {LAST}: add them where the table belongs")
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    rows = []
    for name in options.names or sorted(mappings()):
        rows.append(compare(name))
        print(rows[-1].line(), flush=True)
    counts = {result: sum(row.result == result for row in rows) for result in RESULTS}
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    if options.save:
        options.save.write_text(placed(options.save.read_text(encoding="utf-8"), table(rows)), encoding="utf-8")
    return int(counts["differs"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
