"""What cannot be audited is refused with its reason, and what was audited is left as it was."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from regard.audits import audit
from regard.lens.look import look
from tests.support.refusals import refusing
from tests.support.small_model import tiny


class Net(nn.Module):
    """A linear layer whose output is changed."""

    def __init__(self, after=lambda x: x):
        super().__init__()
        self.layer, self.after = nn.Linear(8, 8), after

    def forward(self, x):
        return self.after(self.layer(x))


def raises(x):
    raise ValueError("never")


def of_net(after):
    return lambda: audit(Net(after).eval(), inputs=X)


def inputs(**given):
    return lambda: audit(Net().eval(), **{"inputs": X} | given)


X, ONES, IDS = torch.ones(1, 9, 8), np.ones((1, 2, 4)), {"input_ids": torch.ones(2, 4).long()}
# What cannot be audited, and how the message begins.
REFUSED = [
    (inputs(checks=["future-leek"]), "no such check: 'future-leek'"),
    (inputs(checks=5), "checks is not a list of names: int"),
    (inputs(causal="yes"), "causal is neither true nor false: str 'yes'"),
    (inputs(inputs=X.to_sparse()), "an input is sparse, nested or empty: "),
    (inputs(inputs=X[:, :0]), "an input is sparse, nested or empty: "),
    (inputs(inputs={"x": X.to("meta")}), "tensors on the meta device have no values: the input x"),
    (lambda: audit(Net().to("meta"), inputs=X), "tensors on the meta device have no values: a weight"),
    (inputs(inputs=None), "no inputs: NoneType for Net"),
    (inputs(inputs=X.repeat(2, 1, 1)), "several batch entries: "),
    (lambda: audit(tiny("bert"), inputs=IDS), "several batch entries: input_ids of shape (2, 4)"),
    (inputs(text="a text"), "text= has no effect for a torch module: text=str"),
    (lambda: audit(tiny("llama"), "a text"), "a text without a tokenizer: 'a text' for LlamaForCausalLM"),
    (lambda: audit(raises, inputs=X), "the model does not run: raises: ValueError: never"),
    (lambda: audit(tiny("llama"), inputs=X), "the model does not run: LlamaForCausalLM"),
    (lambda: audit("no/such/folder"), "no such model: 'no/such/folder'"),
    (lambda: audit(look(ONES, k=ONES), causal=True), "causal= has no effect for a recorded run: causal=bool"),
    (of_net(lambda x: x.to_sparse()), "an output cannot be compared: "),
    (of_net(lambda x: x.to(torch.float8_e4m3fn)), "an output cannot be compared: "),
    (of_net(lambda x: x.to("meta")), "an output cannot be compared: "),
    (of_net(lambda x: x[:0]), "no output can be compared: "),
    (of_net(lambda x: x.to(torch.complex64)), "no output can be compared: "),
    (of_net(lambda x: None), "no output can be compared: "),
    (lambda: audit(5), "this is not a model: int 5"),
    (lambda: audit(nn.Linear), "this is not a model: the class Linear"),
    (lambda: audit(torch.jit.trace(Net().eval(), X), inputs=X), "TorchScript cannot be audited: "),
    (of_net(torch.jit.script(nn.Linear(8, 8))), "TorchScript cannot be audited: RecursiveScriptModule"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_cannot_be_audited(call, words):
    """Every message names what was given, what is expected and a fix."""
    with refusing() as caught:
        call()

    (reason,) = caught.value.reasons
    assert f"{reason.what}: {reason.given}".startswith(words)


class Restless(nn.Module):
    """A module that changes everything it has while it runs."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen, self.norms = nn.Linear(8, 8), [], {}
        self.config, self.cache = SimpleNamespace(kind="sparse"), SimpleNamespace(keys=[torch.zeros(2)], n=np.zeros(2))
        self.table = nn.Embedding(9, 8, max_norm=0.1)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count += 1
        self.cache.keys[0].add_(1)
        self.cache.n += 1
        x += self.table(torch.ones(1, 9).long())
        self.seen.append(len(x))
        self.config.kind = "full"
        self.norms["last"] = x.norm()
        self.drawn = random.random() + np.random.random()
        self.layer.to(torch.float64)
        out = self.layer(x.double()).float()
        self.layer.register_buffer("cache", out)
        self.other = nn.Linear(2, 2)
        return out


def state(model):
    """All that a model holds, by module: attributes, names of submodules and buffers, values, settings."""
    held = {}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key in ("_parameters", "_buffers", "_modules"):
                value = {each: (id(part), getattr(part, "dtype", None)) for each, part in value.items()}
            held[name, key] = repr(value)
        held[name, "settings"] = repr(vars(module.config)) if hasattr(module, "config") else ""
    held |= {("", name): repr(part) for name, part in model.state_dict().items()}
    held["drawn"] = random.getstate(), repr(np.random.get_state()), repr(torch.get_rng_state().tolist())
    return held


def test_a_model_is_restored():
    """By all checks, each module in its own mode."""
    model = tiny("llama").train()
    model.model.layers[0].eval()
    before = state(model)

    audit(model)

    assert state(model) == before


@pytest.mark.parametrize("training", [False, True])
def test_a_module_that_changes_itself_is_restored(training):
    """Attributes, containers, settings, tensors, submodules, dtypes, random numbers and inputs are those of before."""
    model, x = Restless().train(training), X.clone()
    before = state(model)

    audit(model, inputs=x, checks=["finite", "determinism"])

    assert state(model) == before and torch.equal(x, X)
