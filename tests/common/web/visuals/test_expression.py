"""The language of masks in the page means what regard's language means, or refuses a text."""

import random
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


def in_page(shown, texts) -> list[dict]:
    """What the script of the mask, whose names are its own in a page, reads from the texts."""
    view = shown("mask", expression="key <= query")
    script = visuals.script(["mask"], also=("maskExpression",)).replace("visuals,", "visuals: again,", 1)
    view.tab.add_script_tag(content=script)
    return view.tab.evaluate(SCRIPT, [list(texts), {"tables": TABLES, "numbers": NUMBERS}, list(QUERIES), list(KEYS)])


def in_regard(text):
    """The dense mask, or None if Python or regard refuses the text as a mask."""
    names = {name: rg.table(values, name) for name, values in TABLES.items()} | NUMBERS
    names |= {"query": rg.query, "key": rg.key, "abs": abs, "rg": rg, "__builtins__": {}}
    names |= {name: getattr(rg, name) for name in ("minimum", "maximum", "where")}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            rule = lift(eval(text, names))
    except (Refused, SyntaxError, TypeError, NameError, ZeroDivisionError, AttributeError):
        return None
    if rule.kind != "bool":
        return None
    found = evaluate(rule, {"query": np.array(QUERIES)[:, None], "key": np.array(KEYS)})
    return np.broadcast_to(found, (len(QUERIES), len(KEYS)))


class Random:
    """Random expressions of both kinds, as texts; parentheses are sometimes left out, so that precedence decides."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def number(self, depth):
        pick = self.random.choice
        if depth == 0:
            atoms = ["query", "key", "length", "w", "zero", "document[key]", "rg.key", "(key - query)", "-w"]
            return pick([*atoms, str(self.random.randrange(9))])
        a, b = self.number(depth - 1), self.number(depth - 1)
        form = pick(["{a} {op} {b}", "({a}) {op} ({b})", "({a} {op} {b})", "-{a}", "abs({a})", "minimum({a}, {b})",
                     "maximum({a}, {b})", "where({c}, {a}, {b})", "document[{a}]", "grid[{a}, {b}]", "grid[{a}][{b}]",
                     "+({a})", "({c}) * {a}"])  # fmt: skip
        c = self.condition(depth - 1) if "{c}" in form else ""
        return form.format(a=a, b=b, c=c, op=pick(["+", "-", "*", "//", "%"]))

    def condition(self, depth):
        pick = self.random.choice
        a, b = self.number(min(depth, 2)), self.number(min(depth, 2))
        if depth == 0:
            return pick([f"{a} <= {b}", f"{a} < {b}", "real[key]", "True", f"({a} == {b})"])
        form = pick(["({c}) {logic} ({d})", "{c} {logic} {d}", "~({c})", "({a}) {compare} ({b})", "{a} {compare} {b}",
                     "({c}) == ({d})", "real[{a}]", "({c}) != ({d})"])  # fmt: skip
        c, d = self.condition(depth - 1), self.condition(depth - 1)
        compare = pick(["<", "<=", ">", ">=", "==", "!="])
        return form.format(a=a, b=b, c=c, d=d, logic=pick("&|^"), compare=compare)

    def broken(self, text):
        """The text with one piece left out, doubled, or exchanged."""
        at = self.random.randrange(len(text))
        return (
            text[:at] + self.random.choice(["", text[at] * 2, "&", "(", ")", "<", " ", "or", "-", "7"]) + text[at + 1 :]
        )


@pytest.mark.parametrize("seed", [0, *sweep(1, 2, 3)])
def test_random_expressions_mean_the_same_as_in_regard(shown, seed):
    """Or are refused; none means something else."""
    make = Random(seed)
    texts = [make.condition(make.random.randrange(4)) for _ in range(250)]
    texts += [make.broken(text) for text in texts]
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
