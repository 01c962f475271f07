"""--measure NAME=EXPR: the rule that the text says, nothing executed, and refusals that name the column."""

import re

import pytest

from regard.cli.measure_text import EXAMPLE, parse_measures
from regard.language.expr import key, query
from regard.lens import token
from tests.support.refusals import refusal


@pytest.mark.parametrize(
    "text, rule",
    {
        "(key > 0) & (token[query] == token[key - 1])": (key > 0) & (token[query] == token[key - 1]),
        "key > 0 and token[query] == token[key - 1]": (key > 0) & (token[query] == token[key - 1]),
        "0 < key < query": (key > 0) & (key < query),
        "not key == query or ~(key % 2 != 0)": ~(key == query) | ~(key % 2 != 0),
        "(key // 3 == 1) ^ (key / 2 >= 0.5)": (key // 3 == 1) ^ (key / 2 >= 0.5),
        " -key + +2 * query <= 1.5e1 ": -key + 2 * query <= 15.0,
        "(key ==\n query)": key == query,
        "token[token[0]] == token[-1]": token[token[0]] == token[-1],
        "token[key] == token['it']": token[key] == token["it"],
    }.items(),
)
def test_the_text_is_the_rule(text, rule):
    """The same expression as Python's operators build, or as `and`, `or`, `not` and chains mean."""
    assert parse_measures([f"own={text}"]) == {"own": rule}


def test_several_measures():
    """In the order in which they are given; spaces around the name do not count."""
    assert [*parse_measures([" next =key == query + 1", EXAMPLE])] == ["next", "after_same"]


def refused(*texts):
    return refusal(parse_measures, texts)


@pytest.mark.parametrize(
    "text, what, column",
    [
        ("own=foo == 1", "an unknown name\n  given     foo", 5),
        ("own= (key == 1) & (head == 2)", "an unknown name\n  given     head", 20),
        ("own=key > 0 & token[query] == token[key - 1]", "`&` needs conditions", 11),
        ("own=key +", "invalid syntax", 10),
        ("own=key == 1)", "unmatched ')'", 13),
        ("own=key", "a measure that is not a condition\n  given     `key`", 5),
        ("own=token == 1", "token without a position", 5),
        ("own=token[query, key] == 1", "a part that a measure cannot contain\n  given     query, key", 11),
        ("own=token[key / 2] == 1", "a position that is not an integer\n  given     `key / 2`", 11),
        ("own=key[0] == 1", "a part that a measure cannot contain\n  given     key[0]", 5),
        ("own=key == True", "a part that a measure cannot contain\n  given     True", 12),
        ("own=key ** 2 == 4", "a part that a measure cannot contain", 5),
        ("own=-False == key", "a part that a measure cannot contain\n  given     False", 6),
        # Nothing is executed: calls and attributes are refused before anything runs.
        ("own=__import__('os').system('touch harmed')", "a part that a measure cannot contain", 5),
        ("own=().__class__", "a part that a measure cannot contain", 5),
        ("own=key is query", "a part that a measure cannot contain", 5),
        ("own=key == 'é' or nope", "a part that a measure cannot contain\n  given     'é'", 12),
        ("own=key == 9 or é", "an unknown name\n  given     é", 17),
        ("own=key // 0 == 1", "division by zero", 5),
        ("own=key == 99999999999999999999", "an integer has more than 64 bits", 12),
        ("own=" + "(" * 300 + "key", "too many nested parentheses", 205),
        ("own=" + "-" * 900 + "key == 1", "too many nested parts", 55),
        ("own=key == 1 " + "or key == 1 " * 100, "the rule is too long", 5),
    ],
)
def test_what_is_wrong_is_named_with_its_column(text, what, column):
    """Three parts, and the column in the whole argument, counted in characters from 1."""
    said = refused(text)
    assert what in said and "\n  expected  " in said and "\n  fix       " in said
    assert int(re.search(r"at column (\d+) of --measure", said)[1]) == column, said


def test_every_problem_is_listed():
    """Names that are taken or invalid, texts without a rule, a name twice: all reasons at once."""
    said = refused("entropy=key == 1", "a b=key == 1", "x", "y=", "z==key", "u=key == 1", "u=key == 2", "v=foo")
    assert said.count("a measure needs another name") == 2 and said.count("invalid --measure") == 3
    assert "expected  NAME=EXPR" in said and f"for example, --measure '{EXAMPLE}'" in said
    assert "a measure is given twice\n  given     u" in said and "an unknown name\n  given     foo" in said
