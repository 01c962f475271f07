"""Trains a two-layer model until induction heads form, names them, and cuts them.

Every text is a row of random tokens that repeats after 8 to 24 tokens: the rest can be predicted by copying only. Heads
of the first layer learn to look at the previous token, heads of the second at the token that followed the same token
before: induction heads. `rg.effects` ranks the heads by what copying loses without them, and `rg.what_if` takes others
away, and the attention to the first token. After this short training several heads share the work. The circuit is from
Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", and Olsson et al. 2022, "In-context Learning
and Induction Heads".

    python examples/induction.py
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import torch
from torch import nn

import regard as rg
from regard import key, query
from regard.models import Config, LanguageModel
from regard.models.training.loop import Recipe, Training

VOCABULARY, LENGTH = 64, 48
UNSEEN = 1 << 40  # the number of texts that are not trained on


def texts(number: int, count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """(count, LENGTH) random tokens that repeat after 8 to 24 tokens, and which of them repeat others."""
    generator = torch.Generator().manual_seed(number)
    periods = torch.randint(8, LENGTH // 2 + 1, (count, 1), generator=generator)
    tokens = torch.randint(VOCABULARY, (count, LENGTH), generator=generator)
    places = torch.arange(LENGTH)
    return tokens.gather(1, places % periods), places >= periods


def losses(logits: torch.Tensor, ids: torch.Tensor, copies: torch.Tensor) -> torch.Tensor:
    """The nats per copied token, (count,)."""
    each = nn.functional.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")
    return (each * copies[:, 1:]).sum(1) / copies[:, 1:].sum(1)


def loss(model: nn.Module, number: int) -> torch.Tensor:
    ids, copies = texts(number)
    return losses(model(ids), ids, copies).mean()


def main(*arguments: str) -> dict[str, float]:
    """Prints what happens, and returns the nats per copied token with and without parts of the attention."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    steps = parser.parse_args(arguments).steps
    torch.manual_seed(0)
    model = LanguageModel(Config(vocabulary=VOCABULARY, context=LENGTH, d_model=64, layers=2, heads=4))
    recipe = Recipe(steps=steps, learning_rate=3e-3, warmup=steps // 10, weight_decay=0.01)
    for step, _ in enumerate(Training(model, recipe, partial(loss, model)), 1):
        if step % max(1, steps // 8) == 0:
            with torch.no_grad():
                print(f"{step:>6} steps: {loss(model, UNSEEN).item():.3f} nats per copied token", flush=True)

    model.eval()
    ids, copies = texts(UNSEEN, 1)
    run = rg.look(model, inputs=ids, tokens=[f"t{number}" for number in ids[0].tolist()])
    induction, previous = ((call.figures["induction"], call.figures["previous"]) for call in run.calls[::-1])
    print(f"\nattention to the previous token, heads of layer 0: {previous[1].round(2).tolist()}")
    print(f"attention to what followed the same token before, heads of layer 1: {induction[0].round(2).tolist()}\n")

    def copying(logits: torch.Tensor) -> torch.Tensor:
        return losses(logits, ids.expand(len(logits), -1), copies)

    effects = rg.effects(model, inputs=ids, measure=copying)
    print(effects)
    found = {"whole": effects.clean, "without the best head": effects.ranked(1)[0][1] + effects.clean}
    inducing = [head for head, share in enumerate(induction[0]) if share > 1 / 3]
    changes = {
        "without the induction heads": {"layer": 1, "head": inducing},
        "without the first token": {"mask": (key > 0) | (query == 0)},
    }
    for name, change in changes.items():
        given = change if "mask" in change else change | {"output": 0}
        with torch.no_grad(), rg.what_if(model, **given):
            found[name] = float(copying(model(ids)))
    print("\n" + "\n".join(f"{value:8.3f} nats per copied token {name}" for name, value in found.items()))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
