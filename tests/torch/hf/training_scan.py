"""Trains every architecture of transformers for one step, on regard and on the attention that the model brings along.

`python -m tests.torch.hf.training_scan [names]` prints one line for each architecture that differs, and how often each
word is said. A step is a forward with labels, where the model takes them, and a backward. The kinds of steps are those
that treat the tensors kept for the backward differently.

A step on regard is worse if the same step on SDPA (eager, where the model has no SDPA) runs and that on regard does
not, if other parameters have gradients, or if the error of a gradient, against eager in float64, is more than four
times the largest that the model's own attention makes.
"""

import contextlib
import copy
import sys
import warnings
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
import transformers

from bench.model_errors import ALLOWED, Doubled, doubled, floats, perturbed, worst
from regard.common.errors import first_line
from regard.observe.recorder import NAME
from regard.torch.hf import record, register
from regard.torch.hf.readiness import assigned
from regard.torch.hf.tiny_models import accepted, mappings, tiny_model

KINDS = ("plain", "checkpoints", "re-entrant checkpoints", "saved on the CPU")


class Step(NamedTuple):
    """The gradients of one step, or what stopped it."""

    gradients: dict[str, torch.Tensor]
    error: str = ""


def scanned(name: str) -> dict[str, str]:
    """What is said of each kind of step of one architecture."""
    register()
    torch.manual_seed(0)
    try:
        model = steady(tiny_model(name))
        given = accepted(model)
    except Exception as error:  # third-party code, on a configuration that it was not written for
        return dict.fromkeys(KINDS, f"left out: {first_line(error)[:80]}")
    if reason := cannot(model, given):
        return dict.fromkeys(KINDS, f"left out: {reason}")
    model.set_attn_implementation("eager")
    given = labelled(model, given)
    own = "sdpa" if all(part._supports_sdpa for part in parts(model)) else "eager"
    with Doubled():
        exact = step(copy.deepcopy(model).double(), doubled(given), "eager", "plain")
    theirs, ours = ({kind: step(model, given, way, kind) for kind in KINDS} for way in (own, NAME))
    moved = [step(model, given, "eager", "plain"), step(perturbed(model), given, "eager", "plain")]
    usual = [run.gradients for run in (*moved, *theirs.values()) if not run.error]
    limit = None if exact.error or not usual else ALLOWED * max(worst(each, exact.gradients) for each in usual)
    return {kind: verdict(theirs[kind], ours[kind], exact, limit) for kind in KINDS}


def parts(model):
    """The model and the models inside it."""
    return [part for part in model.modules() if isinstance(part, transformers.PreTrainedModel)]


def steady(model):
    """The model in training mode without randomness: no dropout, no dropped layers, no masked features."""
    for part in model.modules():
        for holder in (part, getattr(part, "config", None)):
            for name, value in list(getattr(holder, "__dict__", {}).items()):
                if isinstance(value, float) and ("drop" in name or name.endswith("_prob")):
                    setattr(holder, name, 0.0)
                elif name == "apply_spec_augment":
                    setattr(holder, name, False)
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.p = 0.0
    return model.train()


def labelled(model, given) -> dict[str, torch.Tensor]:
    """The inputs, with the first labels for which the model has a loss."""
    ids = given.get("decoder_input_ids", given.get("input_ids"))
    tried = [] if ids is None else [ids.masked_fill(ids > 64, 5), ids[:, :1], ids[:, 0] * 0]
    for labels in (*tried, torch.zeros(2, dtype=torch.long)):
        with contextlib.suppress(Exception), torch.no_grad():  # third-party code may reject labels with any error
            if getattr(run(model, {**given, "labels": labels}), "loss", None) is not None:
                return {**given, "labels": labels}
    return given


def cannot(model, given) -> str:
    """Why the model does not run on regard at all, or makes no attention call there, or nothing."""
    try:
        model.set_attn_implementation(NAME)
        if reasons := assigned(model):
            return f"refused: {reasons[0].what}"
        with torch.no_grad(), record(model):
            run(model, {name: part for name, part in given.items() if name != "labels"})
    except Exception as error:  # what it raises is the subject of bench.architectures
        return f"refused: {first_line(error)}"
    return ""


def run(model, given):
    """One forward; models that draw random numbers draw the same ones each time."""
    torch.manual_seed(1)
    np.random.seed(1)
    return model(**given)


def step(model, given, way: str, kind: str) -> Step:
    """One step of training: the gradient of every parameter."""
    try:
        model.set_attn_implementation(way)
        if "checkpoints" in kind:
            model.gradient_checkpointing_enable({"use_reentrant": kind.startswith("re-entrant")})
        model.zero_grad()
        with torch.autograd.graph.save_on_cpu() if kind == "saved on the CPU" else contextlib.nullcontext():
            loss_of(run(model, given)).backward()
        return Step({name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None})
    except Exception as error:  # what stops it is the result
        return Step({}, f"{type(error).__name__}: {first_line(error, 'no message')}")
    finally:
        if "checkpoints" in kind:
            with contextlib.suppress(Exception):
                model.gradient_checkpointing_disable()


def loss_of(output) -> torch.Tensor:
    """The model's loss; without one, a random sum of its outputs."""
    if getattr(output, "loss", None) is not None:
        return output.loss
    generator, made = torch.Generator().manual_seed(2), [part for part in floats(output) if part.requires_grad]
    return sum((part * torch.randn(part.shape, generator=generator, dtype=torch.float64)).mean() for part in made)


def verdict(own: Step, ours: Step, exact: Step, limit: float | None) -> str:
    """What is said of one kind of step: the gradients are the "same", or "worse", and why; where its own attention
    fails, regard "fails" too or is "better"; "noise", if there is no exact result.
    """
    if own.error:
        return f"{'fails' if ours.error else 'better'}: {own.error}"
    if ours.error:
        return f"worse: {ours.error}"
    if own.gradients.keys() != ours.gradients.keys():
        return f"worse: gradients of others: {sorted(own.gradients.keys() ^ ours.gradients.keys())[:3]}"
    if limit is None:
        return f"noise: {exact.error}"
    error = worst(ours.gradients, exact.gradients)
    return "same" if error <= limit else f"worse: gradients are off by {error:.1e}, allowed {limit:.1e}"


def main(names) -> int:
    """Scans and prints; the exit status is 1 if a step is worse."""
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    words = Counter()
    for name in names or sorted(mappings()):
        for kind, said in scanned(name).items():
            words[kind, said.partition(":")[0]] += 1
            if said != "same":
                print(f"{name}, {kind}: {said[:160]}", flush=True)
    for (kind, word), count in sorted(words.items()):
        print(f"{kind:24} {word:8} {count}")
    return int(any(word == "worse" for _, word in words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
