"""The language of masks in the page means what regard's language means, or refuses a text."""

import random
import re
import warnings

import numpy as np
import pytest

import regard as rg
from regard.common.errors import Refused
from regard.common.web import visuals
from regard.language.analysis import evaluate
from regard.language.expr import lift
from tests.support.lanes import sweep

QUERIES, KEYS = range(3, 9), range(9)
TABLES = {
    "document": [0, 0, 1, 1, 1, 2, 2],  # shorter than the text: later positions read its last element
    "real": [True, True, False, True, True, True, False, True, True],
    "grid": [[1, 0, 2], [3, -1, 1], [0, 0, 5]],
}
NUMBERS = {"length": 7, "w": 3, "zero": 0}
SCRIPT = """([texts, given, queries, keys]) => texts.map((text) => {
    try {
        const { at, kind } = maskExpression(text, given);
        return { kind, values: queries.map((query) => keys.map((key) => at(query, key))) };
    } catch (error) {
        if (error.what === undefined) throw error;
        const { what, given, expected, fix, from, to } = error;
        return { what, given, expected, fix, from, to };
    }
})"""


def in_page(shown, texts):
    """What the script of the mask, whose names are its own in a page, reads from the texts."""
    view = shown("mask", expression="key <= query")
    script = visuals.script(["mask"], also=("maskExpression",)).replace("visuals,", "visuals: again,", 1)
    view.tab.add_script_tag(content=script)
    return view.tab.evaluate(SCRIPT, [list(texts), {"tables": TABLES, "numbers": NUMBERS}, list(QUERIES), list(KEYS)])


def in_regard(text):
    """The dense mask, or None if Python or regard refuses the text as a mask."""
    names = {name: rg.table(values, name) for name, values in TABLES.items()} | NUMBERS
    names |= {"query": rg.query, "key": rg.key, "abs": abs, "rg": rg}
    names["__builtins__"] = {"__import__": __import__}  # which Python needs to warn of ~True
    names |= {name: getattr(rg, name) for name in ("minimum", "maximum", "where")}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rule = lift(eval(text, names))
    except (Refused, SyntaxError, TypeError, NameError, ZeroDivisionError, AttributeError):
        return None
    if rule.kind != "bool":
        return None
    found = evaluate(rule, {"query": np.array(QUERIES)[:, None], "key": np.array(KEYS)})
    return np.broadcast_to(found, (len(QUERIES), len(KEYS)))


# Parentheses are sometimes left out, so that precedence decides.
FORMS = {
    "number": ["{number} {op} {number}", "({number}) {op} ({number})", "({number} {op} {number})", "-{number}",
               "abs({number})", "minimum({number}, {number})", "maximum({number}, {number})",
               "where({condition}, {number}, {number})", "document[{number}]", "grid[{number}, {number}]",
               "grid[{number}][{number}]", "+({number})", "({condition}) * {number}"],
    "condition": ["({condition}) {logic} ({condition})", "{condition} {logic} {condition}", "~({condition})",
                  "({number}) {compare} ({number})", "{number} {compare} {number}", "({condition}) == ({condition})",
                  "real[{number}]", "({condition}) != ({condition})"],
    "op": ["+", "-", "*", "//", "%"], "logic": ["&", "|", "^"], "compare": ["<", "<=", ">", ">=", "==", "!="],
    "digit": "012345678",
}  # fmt: skip
LEAVES = {
    "number": ["query", "key", "length", "w", "zero", "document[key]", "rg.key", "(key - query)", "-w", "{digit}"],
    "condition": ["{number} <= {number}", "{number} < {number}", "real[key]", "True", "({number} == {number})"],
}


def written(draw, kind, depth):
    """A random expression of a kind."""
    form = draw.choice((FORMS if depth > 0 else FORMS | LEAVES)[kind])
    return re.sub(r"\{(\w+)\}", lambda part: written(draw, part[1], depth - 1), form)


def broken(draw, text):
    """The text with one piece left out, doubled, or exchanged."""
    at = draw.randrange(len(text))
    return text[:at] + draw.choice(["", text[at] * 2, "&", "(", ")", "<", " ", "or", "-", "7"]) + text[at + 1 :]


@pytest.mark.parametrize("seed", [0, *sweep(1, 2, 3)])
def test_random_expressions_mean_the_same_as_in_regard(shown, seed):
    """Or are refused; none means something else."""
    draw = random.Random(seed)
    texts = [written(draw, "condition", draw.randrange(4)) for _ in range(250)]
    texts += [broken(draw, text) for text in texts]
    texts = [text for text in texts if len(text) <= 500]
    accepted = refused = 0
    for text, found in zip(texts, in_page(shown, texts), strict=True):
        expected = in_regard(text)
        if "values" in found:
            assert expected is not None, f"regard refuses {text}"
            assert np.array_equal(np.array(found["values"], bool), expected), text
            accepted += 1
        else:
            refused += 1
            assert all(found[beat] for beat in ("what", "given", "expected", "fix")), text
            assert 0 <= found["from"] <= found["to"] <= len(text), text
    assert accepted > 150 and refused > 50


WRONG = (  # a text, what is wrong with it, and part of the fix
    ("key <= query & query - key < 4", "& needs conditions", "parentheses around comparisons"),
    ("0 <= query - key < 4", "comparisons cannot be chained", "(0 <= query - key) & (query - key < …)"),
    ("key <= query and key > 0", "and has no meaning", "write &"),
    ("not key <= query", "not has no meaning", "write ~"),
    ("key = query", "an operator of another language", "write =="),
    ("key <= query && key > 0", "an operator of another language", "write &"),
    ("key ≤ query", "an operator of another language", "write <="),
    ("key <= querry", "an unknown name", "did you mean query?"),
    ("key <= min(query, 4)", "min has no meaning", "minimum(a, b)"),
    ("key / 2 < query", "an operator that masks do not need", "use //"),
    ("key < 2.5", "positions are whole numbers", "//"),
    ("(key <= query", ") is missing", "close it"),
    ("key <=", "the expression ends too early", "complete it"),
    ("", "the expression ends too early", "complete it"),
    ("key - query", "a mask is a condition", "compare it"),
    ("document == 1", "wrong number of indices", "document[query]"),
    ("grid[query] > 0", "wrong number of indices", "grid[query, key]"),
    ("key // 0 == 1", "division by zero", "check the number"),
    ("~key", "~ needs a condition", "parentheses"),
    ("key @ query", "this character has no meaning", "leave it out"),
    ("document[key < 3] == 0", "an index is not a whole number", "where"),
    ("key <= query key", "this cannot follow here", "leave it out"),
    ("key <= 9007199254740993", "the number is too large", "smaller"),
    ("key * 9007199254740991 * 3 > 0", "a number is too large", "smaller"),
)


def test_a_wrong_text_is_explained(shown):
    """Every refusal of the language has its four parts."""
    for (text, what, fix), found in zip(WRONG, in_page(shown, [text for text, _, _ in WRONG]), strict=True):
        assert what in found["what"] and fix in found["fix"], text
        assert found["given"] and found["expected"], text


def test_a_deep_or_long_text_is_refused_and_nothing_breaks(shown):
    """Parentheses, sums, signs and brackets by the hundred."""
    texts = ["(" * 300 + "key" + ")" * 300, "key" + " + key" * 200, "-" * 400 + "key < 0", "[" * 200]
    for found in in_page(shown, texts):
        assert found["what"]
