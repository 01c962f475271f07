"""Formulas in plain text become MathML that says the same; what cannot be read is refused with its line."""

import re
import xml.etree.ElementTree as ET

import pytest

from regard.common.errors import Refused
from regard.learn.pages.formula import checked, formula
from regard.learn.proof import proved
from regard.learn.source import CHAPTERS, read_chapter
from tests.support.browser import chromium  # noqa: F401

from ..chapter_files import HEAD

BLOCK = re.compile(r"^```math\n(.*?)^```$", re.M | re.S)
BLOCKS = [
    (path.stem, 2 + path.read_text().count("\n", 0, match.start()), match[1])
    for path in sorted(CHAPTERS.glob("*.md"))
    for match in BLOCK.finditer(path.read_text())
]


def short(text):
    """The MathML of one formula without attributes, rows and spaces: frac(a, 2)."""
    return _short(ET.fromstring(formula(text)).find("math"))


def _short(node):
    inner = [_short(each) for each in node if each.tag != "mspace"]
    match node.tag:
        case "math" | "mrow" | "mtable":
            return " ".join(inner)
        case "mtr":
            return "[" + " | ".join(inner) + "]"
        case "mtd":
            return "".join(inner) if len(inner) < 2 else " ".join(inner)
        case "mphantom":
            return "~"
    inner = [" ".join(inner)] if node.tag == "msqrt" else inner
    leaf = (node.text or "").replace("\u2061", "@")
    return f"{node.tag[1:]}({', '.join(inner)})" if inner else leaf


@pytest.mark.parametrize(
    ("plain", "wanted"),
    {
        "a / b": "frac(a, b)",
        "(a + b) / 2h": "frac(a + b, 2 h)",
        "x = −a · b / c + 1": "x = − frac(a · b, c) + 1",
        "a / b c": "frac(a, b) c",
        "a / √d V": "frac(a, sqrt(d)) V",
        "1 / 10000^(2i/d)": "frac(1, sup(10000, 2 i / d))",
        "d/2 − 1": "d / 2 − 1",
        "√(a + b)": "sqrt(a + b)",
        "√d_k": "sqrt(sub(d, k))",
        "Kᵀ": "sup(K, T)",
        "K_hᵀ": "subsup(K, h, T)",
        "n² · x^k": "sup(n, 2) · sup(x, k)",
        "h_{t−1}": "sub(h, t − 1)",
        "D₁ + x⁻¹": "sub(D, 1) + sup(x, −1)",
        "w[i, j − 1]": "sub(w, i , j − 1)",
        "PE(p)[2i + 1]": "sub(PE @ ( p ), 2 i + 1)",
        "h_t[0]": "sub(h, t , 0)",
        "W_q(x)": "sub(W, q) @ ( x )",
        "f (x)": "f ( x )",
        "exp(s_j − m)²": "sup(exp @ ( sub(s, j) − m ), 2)",
        "Σ exp(s_j)": "∑ exp @ ( sub(s, j) )",
        "Σ_i w[i]": "under(∑, i) sub(w, i)",
        "Σ_{j=1}^n s_j": "underover(∑, j = 1, n) sub(s, j)",
        "Π_i a": "under(∏, i) a",
        "max_j s_j": "under(max, j) sub(s, j)",
        "∂w[i] / ∂s[j]": "frac(∂ sub(w, i), ∂ sub(s, j))",
        "|a − b|": "| a − b |",
        "(a, |b|)": "( a , | b | )",
        "a × b ∘ c → d @ e": "a × b ∘ c → d @ e",
        "10,000 · 2.5": "10,000 · 2.5",
        "loss of a row = a": "loss of a row = a",
        "log-sum-exp(x)": "log-sum-exp @ ( x )",
        "a_0, … side by side": "sub(a, 0) , … side by side",
        '("one & two")': '( "one & two" )',
        "if i = j": "if i = j",
    }.items(),
)
def test_a_construct(plain, wanted):
    assert short(plain) == wanted


@pytest.mark.parametrize(
    ("plain", "wanted"),
    {
        "a = 1     the first": "[a = 1 | the first]",
        "a = 1\nbb = 2": "[a | = 1][bb | = 2]",
        "a = b\n  = c": "[a | = b][ | = c]",
        "a  =   b\n     + c": "[a | = b][ | ~ + c]",
        "w = a     if b\n    −c    otherwise": "[w | = a | if b][ | ~ − c | otherwise]",
        "head\na = 1": "[head][a | = 1]",
        "(a,   b)": "( a , b )",
    }.items(),
)
def test_lines_and_columns(plain, wanted):
    assert short(plain).replace("] [", "][") == wanted


def test_single_characters_are_italic_and_names_upright():
    made = formula("softmax(Q)")
    assert '<mi class="name">softmax</mi>' in made and '<mi class="italic">Q</mi>' in made


def test_an_empty_line_begins_another_formula():
    made = ET.fromstring(formula("a = 1\n\nlonger = 2"))
    assert [each.get("alttext") for each in made.findall("math")] == ["a = 1", "longer = 2"]


@pytest.mark.parametrize(
    ("plain", "what"),
    {
        "a / ": "lacks one of its sides",
        "= / b": "lacks one of its sides",
        "a / Σ b": "open where the fraction ends",
        "(a": "( is not closed",
        "a)": ") closes nothing",
        "|a": "| is not closed",
        "w[i": "[ is empty, or not closed",
        "w[]": "[ is empty, or not closed",
        "a_": "_ has nothing behind it",
        "a^ b": "^ has nothing behind it",
        "√": "√ has nothing below it",
        "√ + 1": "√ has nothing below it",
        "a - b": "- has no meaning here",
        "a * b": "* has no meaning here",
        r"\frac{a}{b}": "\\ has no meaning here",
        "{a}": "{ has no meaning here",
        "a <script>": "",
    }.items(),
)
def test_what_cannot_be_read_is_refused_with_its_line(plain, what):
    if not what:
        assert "<script" not in formula(plain)
        return
    with pytest.raises(Refused) as refused:
        formula(f"a = 1\n{plain}", first=40)
    (reason,) = refused.value.reasons
    assert what in reason.what and reason.given.startswith("line 41:") and reason.expected and reason.fix
    assert what in checked(f"a = 1\n{plain}")


def test_the_proof_finds_a_wrong_formula(tmp_path):
    path = tmp_path / "03-scores.md"
    path.write_text(HEAD + "\n## Why\n\nText.\n\n```math\na = 1\nb = (2\n```\n")
    line = 1 + path.read_text().split("\n").index("b = (2")
    (found,) = [wrong for _, wrong in proved(read_chapter(path)) if wrong]
    assert "( is not closed" in found and f"line {line}:" in found


def test_the_course_has_formulas_of_all_chapters_with_them():
    assert len(BLOCKS) > 30 and len({name for name, _, _ in BLOCKS}) >= 15


@pytest.mark.parametrize(("name", "line", "text"), BLOCKS, ids=[f"{name}-{line}" for name, line, _ in BLOCKS])
def test_every_formula_of_the_course(name, line, text):
    """It is read, and its alternative text has every character of the plain one."""
    made = ET.fromstring(formula(text, line))
    said = "".join(each.get("alttext") for each in made.findall("math"))
    assert "".join(said.split()) == "".join(text.split())
