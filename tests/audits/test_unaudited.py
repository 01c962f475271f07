"""What cannot be audited is refused with its reason, and what was audited is left as it was."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from regard import Refused
from regard.audits import audit
from regard.torch.hf.tiny_models import tiny_model


class Net(nn.Module):
    """A linear layer whose output is changed."""

    def __init__(self, after=lambda x: x):
        super().__init__()
        self.layer, self.after = nn.Linear(8, 8), after

    def forward(self, x):
        return self.after(self.layer(x))


X = torch.ones(1, 9, 8)
OUTPUTS = {
    "sparse": lambda x: x.to_sparse(),
    "nested": lambda x: torch.nested.nested_tensor(list(x)),
    "jagged": lambda x: torch.nested.nested_tensor(list(x), layout=torch.jagged),
    "float8": lambda x: x.to(torch.float8_e4m3fn),
    "complex": lambda x: x.to(torch.complex64),
    "integers": lambda x: x.argmax(-1),
    "nothing": lambda x: None,
}
MODELS = [5, 5.0, True, b"model", [1], {}, object(), torch.ones(3), nn.Linear, np.ones(3)]


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_that_cannot_be_compared(name):
    """An audit that compares nothing says nothing."""
    with pytest.raises(Refused, match="compared"):
        audit(Net(OUTPUTS[name]).eval(), inputs=X)


@pytest.mark.parametrize("what", MODELS, ids=[type(each).__name__ for each in MODELS])
def test_what_is_not_a_model(what):
    """The message says what was given, not that inputs are missing."""
    with pytest.raises(Refused, match="this is not a model"):
        audit(what)
    with pytest.raises(Refused, match="this is not a model"):
        audit(what, inputs=X)


@pytest.mark.parametrize(
    "compiled", [lambda: torch.jit.trace(Net().eval(), X), lambda: torch.jit.script(nn.Linear(8, 8))]
)
def test_torchscript(compiled):
    """Neither its calls nor its modules can be read."""
    with pytest.raises(Refused, match="TorchScript"):
        audit(compiled(), inputs=X)


@pytest.mark.parametrize("inputs", [X, X.to("meta"), {"x": X.to("meta")}])
def test_meta_devices(inputs):
    """Tensors without values have no differences."""
    model = Net().to("meta" if inputs is X else "cpu").eval()
    with pytest.raises(Refused, match="meta"):
        audit(model, inputs=inputs)


@pytest.mark.parametrize(
    "arguments",
    [{"inputs": X.to_sparse()}, {"inputs": X[:, :0]}, {"inputs": X, "checks": 5}, {"inputs": X, "causal": "yes"}],
    ids=["sparse", "empty", "checks", "causal"],
)
def test_arguments_of_other_kinds(arguments):
    """Refused, not crashed."""
    with pytest.raises(Refused):
        audit(Net().eval(), **arguments)


class Restless(nn.Module):
    """A module that changes everything it has while it runs."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen, self.norms = nn.Linear(8, 8), [], {}
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count += 1
        self.seen.append(len(x))
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


@pytest.mark.parametrize("training", [False, True])
def test_a_module_that_changes_itself_is_restored(training):
    """Attributes, containers, buffers, submodules, dtypes and random numbers are those of before."""
    model = Restless().train(training)
    before = state(model)

    audit(model, inputs=X, checks=["finite"])

    assert state(model) == before


@pytest.mark.parametrize("name", ["big_bird", "longformer", "nllb-moe", "reformer", "switch_transformers"])
def test_models_of_transformers_that_change_themselves_are_restored(name):
    """In training mode and in bfloat16, too."""
    torch.manual_seed(0)
    model = tiny_model(name, **({"axial_pos_embds": False} if name == "reformer" else {}))
    model = model.train() if name == "reformer" else model.to(torch.bfloat16)
    before = state(model)

    audit(model, checks=["finite", "determinism"])

    assert state(model) == before
