"""Every public name is documented in the form that tools render: sentence, arguments, result, errors, an example."""

import importlib
import inspect
import re

import pytest

torch = pytest.importorskip("torch")
PACKAGES = ["regard", "regard.torch", "regard.torch.layers", "regard.torch.positions", "regard.torch.hf"]
PACKAGES += ["regard.models", "regard.lens", "regard.audits", "regard.parallel"]
SYMBOLS = ["batch", "head", "query", "key", "score", "token"]  # objects that docs/reference/language.md lists


def public() -> dict[str, object]:
    """Every public name, and what it names; packages and symbols apart."""
    modules = [importlib.import_module(package) for package in PACKAGES]
    named = [(f"{module.__name__}.{name}", getattr(module, name)) for module in modules for name in module.__all__]
    first = {id(value): (name, value) for name, value in reversed(named)}
    return {
        name: value
        for name, value in first.values()
        if not inspect.ismodule(value) and name.rpartition(".")[2] not in SYMBOLS
    }


PUBLIC = public()


def sections(docstring: str) -> dict[str, str]:
    """The sections of a Google docstring, by heading."""
    parts = re.split(
        r"^(Args|Attributes|Returns|Yields|Raises|Source|Examples):\n", inspect.cleandoc(docstring), flags=re.M
    )
    return dict(zip(["Summary", *parts[1::2]], [parts[0], *parts[2::2]], strict=True))


def parameters(value) -> dict[str, inspect.Parameter]:
    """The parameters that a caller passes."""
    function = value.__init__ if isinstance(value, type) else value
    return {name: each for name, each in inspect.signature(function).parameters.items() if name != "self"}


def described(value) -> set[str]:
    """The parameters under Args and Attributes of a docstring."""
    found = sections(value.__doc__ or "")
    text = found.get("Args", "") + "\n" + found.get("Attributes", "")
    return set(re.findall(r"^    \*{0,2}(\w+)(?: \(.*?\))?:", text, re.M))


def inherited(value) -> list[type]:
    """The bases of a configuration whose docstring says that it has "the fields of `Config`", and these."""
    return list(value.__mro__[1:]) if "the fields of `Config`" in (value.__doc__ or "") else []


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_is_documented(name):
    """A sentence, every parameter under Args, Returns for functions, types, an example that test_docs runs."""
    value = PUBLIC[name]
    found = sections(value.__doc__ or "")
    first = found["Summary"].strip().split("\n\n")[0].replace("\n", " ")
    named = set().union(*(described(each) for each in [value, *inherited(value)]))

    assert first.endswith((".", ".)")), f"the first sentence: {first!r}"
    assert ">>>" in found.get("Examples", ""), "an example"
    if not (isinstance(value, type) and issubclass(value, BaseException)):
        assert sorted(set(parameters(value)) - named) == [], "every parameter is described"
    for each in parameters(value).values():
        assert each.annotation is not inspect.Parameter.empty, f"the type of {each.name}"
    if inspect.isfunction(value):
        assert found.get("Returns") or found.get("Yields"), "what it returns"
        assert inspect.signature(value).return_annotation is not inspect.Signature.empty, "the type of the result"
