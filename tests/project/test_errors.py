"""How a refusal reads: what was given, what was expected, how to fix it; the words are pinned."""

import ast
import pickle
import re

import numpy as np
import pytest

import regard as rg
from regard.common.errors import Reason, Refused, did_you_mean, page
from regard.language.expr import key, query, score, table
from tests import ROOT
from tests.support.import_graph import modules, parsed
from tests.support.refusals import word_for_word


def test_all_reasons_at_once():
    """A refusal names the call and each fault, then given, expected and fix, one line each; each reason is at hand as
    data, also where a refusal arrives from another process.
    """
    reasons = [Reason(what, given="green", expected="blue", fix="look up") for what in ("the sky is green", "two")]
    refused = Refused("attention", reasons)
    again = pickle.loads(pickle.dumps(refused))

    assert str(refused).startswith(
        "attention: the sky is green\n  given     green\n  expected  blue\n  fix       look up"
    )
    assert str(refused).count("attention: ") == 2 and isinstance(refused, ValueError)
    assert (str(again), again.reasons, again.where) == (str(refused), tuple(reasons), "attention")


def test_did_you_mean():
    """A misspelt name is answered with the closest known one. Without a page that lists the names they are all written;
    with one it is named, for no other kind of name.
    """
    names = [f"name{number}" for number in range(20)]

    assert did_you_mean("jti", ("jit", "sdpa")) == "did you mean 'jit'? choose one of 'jit', 'sdpa'"
    assert did_you_mean("zzz", ("jit", "sdpa")) == "choose one of 'jit', 'sdpa'"
    assert did_you_mean("zzz", names).count("name") == 20
    assert did_you_mean("zzz", names, page("Adapters")) == f"{page('Adapters')} lists them all"


def test_pages_of_the_documentation_that_errors_name_exist():
    """Each `page(…)` in the source is a page of docs/."""
    source = "\n".join(path.read_text() for path in modules().values())
    named = re.findall(r"\bpage\(\"([^\"]+)\"\)", source)
    pages = "\n".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))

    assert len(named) >= 4
    assert set(named) - set(re.findall(r"^# (.+)$", pages, re.M)) == set()


def test_no_error_names_a_file_that_a_wheel_does_not_hold():
    """Strings of the source outside docstrings have no path of docs/, but those of pages that are generated."""
    found = set()
    for path in modules().values():
        for node in ast.walk(parsed(path) if "docs/" in path.read_text() else ast.Module([], [])):
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            parts = [] if docstring else ast.iter_child_nodes(node)
            texts = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            found |= {(path.name, text[:15]) for text in texts if "docs/" in text and "<!--" not in text}

    assert found <= {("architectures.py", "# Cost of every")}


WORDS = [
    (lambda: bool(key <= query), """\
expression: a rule over positions has no truth value
  given     `if`, `and`, `or`, `not` or a chained comparison on `key <= query`
  expected  the operators that build expressions
  fix       use & | ~ with parentheses around comparisons, and where(condition, a, b) instead of if"""),
    (lambda: 0 <= key <= query, """\
expression: a rule over positions has no truth value
  given     `if`, `and`, `or`, `not` or a chained comparison on `key >= 0`
  expected  the operators that build expressions
  fix       use & | ~ with parentheses around comparisons, and where(condition, a, b) instead of if"""),
    (lambda: [1, 2, 3][key], """\
expression: an array cannot be indexed by an expression directly
  given     array[key]
  expected  an array that regard can read inside the kernel
  fix       wrap it: table(array)[…]"""),
    (lambda: float(score), """\
expression: a rule over positions is not one number
  given     a function of one number, called on `score`
  expected  a function that builds expressions
  fix       use regard.tanh, regard.exp, regard.to_int … (NumPy's and torch's functions work too)"""),
    (lambda: key & 0.5, """\
expression: `&` needs conditions
  given     `key`, which is int
  expected  a condition, such as key <= query
  fix       compare it with something, or put parentheses around comparisons: (a < b) & (c < d)"""),
    (lambda: key // 0, """\
expression: division by zero
  given     key // 0
  expected  a divisor other than 0
  fix       check the constant"""),
    (lambda: key < np.zeros, """\
expression: not a number
  given     builtin_function_or_method
  expected  an expression, a number, or a truth value
  fix       to read an array, wrap and index it: table(array)[query, key]"""),
    (lambda: key < 2**63, """\
expression: an integer has more than 64 bits
  given     9223372036854775808
  expected  -2**63 … 2**63 - 1
  fix       write it as a float"""),
    (lambda: table(np.zeros((2, 2)), "t")[1, 2, 3], """\
table: wrong number of indices
  given     <table t: float64 [2, 2]>[1, 2, 3]
  expected  2 indices
  fix       give one index per axis, or fewer for a vector of the others, with ... for the axes between"""),
    (lambda: table(np.zeros(2), "t")[score], """\
table: an index is not an integer
  given     <table t: float64 [2]>[score]
  expected  integer expressions
  fix       use // for integer division, to_int(x) to truncate, where(condition, 1, 0) for a condition"""),
    (lambda: table(np.zeros(0)), """\
table: the array cannot be read
  given     float64 [0]
  expected  booleans, integers up to int64, or floats up to float64, and at least one element
  fix       convert it with .astype(…), or leave out a table that has no element"""),
    (lambda: rg.documents(), """\
documents: either ids or lengths is required
  given     neither
  expected  ids=… or lengths=…
  fix       pass one of them"""),
    (lambda: rg.dense(np.ones((3, 1), bool)), """\
mask: an array with one column needs query_start
  given     shape (3, 1)
  expected  query_start=…, the position of row 0
  fix       query_start=0 if row i is at position i"""),
    (lambda: rg.dense(np.full((3, 3), 0.5)), """\
mask: not an array of conditions
  given     float64 [3, 3]
  expected  booleans with one to four axes: …, heads, rows, keys
  fix       pass score=mask if its numbers are added to scores; a condition is a comparison, such as mask > 0.5"""),
    (lambda: rg.relative(np.zeros(4)), """\
relative: the last axis must have odd length 2R + 1
  given     4 distances
  expected  an odd number: -R … R
  fix       pass 2R + 1 entries"""),
    (lambda: rg.softcap(0), """\
softcap: the cap is not a positive finite number
  given     0
  expected  a finite number above 0
  fix       omit softcap for no limit"""),
]  # fmt: skip


test_wording = word_for_word(WORDS)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        # np.tahn does not exist, but np.arctanh does, and the language lacks it.
        (lambda: np.arctanh(score), Refused, "did you mean 'arctan'"),
        # Unpacking requests an iterator, for which Python expects TypeError; hasattr and copy rely on AttributeError.
        (lambda: tuple(key), TypeError, "one number per position and cannot be iterated: key"),
        (
            lambda: key.shape,
            AttributeError,
            "expressions have no 'shape'",
        ),
    ],
)
def test_errors_of_expressions_have_the_kinds_of_python(call, error, words):
    """What is unknown is answered with what is known, and with the type that callers expect."""
    with pytest.raises(error, match=words):
        call()
