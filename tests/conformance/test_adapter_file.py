"""Adapters as JSON and as a decorator: what is written is read back, and every problem is named with its fix."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from regard.conformance.conventions.adapter_file import adapter, from_json, read_adapter, schema, to_json
from regard.conformance.conventions.fields import CHOICES, ROLES, Adapter
from regard.conformance.conventions.parameters import NAMES, Parameter, completed, parameters_of
from tests import ROOT
from tests.conformance.implementations import right
from tests.support.refusals import reasons_of, refusing, whats

PAGE = ROOT / "docs/reference/adapters.md"


def accepts(data):
    """Whether the published schema accepts the content of a file."""
    jsonschema = pytest.importorskip("jsonschema")
    return jsonschema.Draft202012Validator(schema()).is_valid(data)


def test_what_is_written_is_read_back(tmp_path):
    """Adapters of any convention survive their file, and the schema accepts it."""
    for seed in range(60):
        _, given = right(np.random.default_rng([seed, 4]))
        (tmp_path / "it.json").write_text(json.dumps(to_json(given)))

        assert read_adapter(tmp_path / "it.json") == given
        assert accepts(to_json(given))


def test_what_the_written_file_says():
    """The lse's fields only of a function that returns one, and of rows without keys only where there can be some."""
    names = {"q": "q", "k": "k", "v": "v"}
    for returns in (("out",), ("out", "lse")):
        for mask in ({}, {"mask": "mask"}):
            written = to_json(Adapter(returns=returns, parameters=names | mask))
            assert ("lse" in written, "empty_lse" in written) == ("lse" in returns, "lse" in returns and bool(mask))


# One wrong value for each kind of problem, and what the message says of it.
WRONG = [
    ({"layuot": "BHSD"}, "layuot is not a field", "did you mean 'layout'?"),
    ({"layout": "BHDS"}, "layout has no such value", "did you mean"),
    ({"mask": True}, "mask has no such value", "choose one of 'true-attends'"),
    ({"causal": ["top-left"]}, "causal has no such value", "choose one of 'bottom-right'"),
    ({"parameters": {"querry": "x"}}, "parameters has no entry querry", "the page “Adapters”"),
    ({"parameters": {"q": 1}}, "q has the wrong type", "omit parameters"),
    ({"parameters": ["q"]}, "parameters has the wrong type", "omit parameters"),
    ({"parameters": {"q": "x", "k": "x"}}, "a parameter has two roles", "keep one of them"),
    ({"parameters": {"scale": "x"}, "fixed": {"x": 1}}, "a role and a fixed value", "remove one of them"),
    ({"heads": 0}, "heads is too small", "omit heads"),
    ({"heads": True}, "heads has the wrong type", "omit heads"),
    ({"scale": "half"}, "scale has the wrong type", "omit scale"),
    ({"dtypes": []}, "dtypes is empty", "omit dtypes"),
    ({"dtypes": ["float31"]}, "dtypes has no such value", "did you mean 'float"),
    ({"mask_shapes": ["QK", "QK"]}, "mask_shapes has a value twice", "remove the second"),
    ({"returns": ["lse"]}, "returns has no out", 'add "out"'),
    ({"returns": ["out", "ls"]}, "returns has no such value", "did you mean 'lse'?"),
    ({"returns": {"out": 1}}, "returns: out has the wrong type", "omit returns"),
    ({"returns": 3}, "returns has the wrong type", "omit returns"),
    ({"expected": {"law-01": {}}}, "law-01 has no reason", 'add "reason"'),
    ({"expected": {"law-01": {"reason": "x", "url": "y"}}}, "law-01 has no entry url", "choose one of 'reason'"),
    ({"confirmed": ["layou"]}, "layou is not a field", "did you mean 'layout'?"),
    ({"confirmed": 1}, "confirmed has the wrong type", "omit confirmed"),
    ({"name": None}, "name has the wrong type", "omit name"),
]


@pytest.mark.parametrize(("data", "what", "fix"), WRONG, ids=lambda each: str(each)[:40])
def test_a_wrong_field_is_named_with_its_fix(data, what, fix):
    """One message for each problem; the schema does not accept it either, if it is about one field alone."""
    (reason,) = reasons_of(from_json, {"schema": 1} | data)
    assert what in reason.what and fix in reason.fix
    if what not in ("a parameter has two roles", "a role and a fixed value", "layou is not a field"):
        assert not accepts({"schema": 1} | data)


def test_all_problems_are_listed_together():
    """Every wrong field; a file without a schema has that of this version."""
    assert whats(from_json, {"layout": "x", "mask": "y", "z": 1}) == [
        "layout has no such value",
        "mask has no such value",
        "z is not a field",
    ]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "the file does not exist"),
        ("{", "the file is not JSON"),
        ('{"schema": 1, "heads": 1, "heads": 2}', "the file is not JSON"),
        ("[]", "it is not an object"),
        ('{"schema": 2}', "schema is not known"),
        ('{"schema": true}', "schema is not known"),
        (b"\xff\xfe", "the file cannot be read"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, content, what):
    """Missing, not JSON, not an object, of another schema, not text."""
    file = tmp_path / "it.json"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    with refusing(what):
        read_adapter(file)


def test_the_decorator_keeps_the_function_and_reads_words():
    """Lists may be words in one string, and the usual scale may be called by its name."""

    @adapter(name="mine 1.2", layout="BSHD", scale="argument", dtypes="float32 bfloat16", always="causal")
    def attention(q, k, v): ...

    read = attention.__regard_adapter__
    assert read == Adapter(name="mine 1.2", layout="BSHD", dtypes=("float32", "bfloat16"), always=("causal",))
    assert attention.__name__ == "attention"
    assert set(read.declared) == {"name", "layout", "scale", "dtypes", "always"}


def test_the_decorator_refuses_when_it_runs():
    """Wrong fields at once; names that the function lacks when it decorates."""
    with refusing("layuot is not a field"):
        adapter(layuot="BSHD")
    with refusing("no parameter attn_maks"):

        @adapter(parameters={"mask": "attn_maks"})
        def attention(q, k, v, attn_mask=None): ...

    @adapter(parameters={"mask": "anything"})
    def open_ended(q, k, v, **others): ...


def test_names_of_the_field_have_roles():
    """Every known name has one role, and gets it."""
    names = [name for listed in NAMES.values() for name in listed.split()]
    assert set(NAMES) == set(ROLES)
    assert len(names) == len(set(names))
    for role, listed in NAMES.items():
        for name in listed.split():
            others = [Parameter(name=each, required=True) for each in "qkv" if each != role]
            assert completed(Adapter(), [*others, Parameter(name=name)]).parameters[role] == name


def test_the_first_parameters_are_queries_keys_and_values():
    """If their names say nothing; positional ones too."""

    def attention(a, b, c, /, mask=None): ...

    assert completed(Adapter(), parameters_of(attention)).parameters == {"q": "a", "k": "b", "v": "c", "mask": "mask"}


def test_a_parameter_without_a_role_is_refused_by_name():
    """It must be passed, and nothing says what."""

    def attention(q, k, v, temperature, mode): ...

    (reason,) = reasons_of(completed, Adapter(), parameters_of(attention))
    assert "temperature, mode" in reason.given and 'fixed={"temperature": …}' in reason.fix

    fixed = Adapter(parameters={"scale": "temperature"}, fixed={"mode": "x"})
    assert completed(fixed, parameters_of(attention)).parameters["scale"] == "temperature"


def test_the_page_lists_every_field_and_value():
    """docs/reference/adapters.md has each field, each value, each role, and its examples run."""
    page = PAGE.read_text(encoding="utf-8")

    for each in fields(Adapter):
        if each.name != "declared":
            assert f"| `{each.name}` |" in page, each.name
    for name, values in CHOICES.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        for value in values:
            assert f"`{value}`" in row, (name, value)
        assert f"**`{values[0]}`**" in row or name == "mask_shapes", name
    for role in ROLES:
        assert f"`{role}`" in page, role


def test_the_schema_of_the_page_is_the_schema():
    """The page has the schema in a file beside it."""
    assert json.loads(Path(ROOT, "docs/reference/adapter.schema.json").read_text(encoding="utf-8")) == schema()
    assert to_json(Adapter())["schema"] == schema()["properties"]["schema"]["const"]
