"""Numbers as people type them: 8,5 · 40 000 · 40,000 · 4·10^10 · 1e-3 · 1/√2 · 50% · −2 · ∞."""

from __future__ import annotations

import math
import re

SIGNS = {"−": "-", "–": "-", "**": "^", "·": "*", "×": "*", " x ": "*", "∞": "inf", "infinity": "inf", "π": "pi"}
NAMED = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e}
GROUPED = re.compile(r"[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
GROUPED_BY_POINTS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+,\d+")
PLAIN = re.compile(r"(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")
FACTOR = re.compile(r"(?P<sign>[-+]?)(?P<root>√?)(?P<base>[^\^√%]+)(\^(?P<power>[^\^%]+))?(?P<percent>%?)")


def typed_number(text: str) -> float:
    """The number that a text means: one, or a product, power or quotient. Raises ValueError.

    >>> typed_number("4·10^10"), typed_number("8,5"), typed_number("1/4")
    (40000000000.0, 8.5, 0.25)
    """
    plain = text.strip().lower().lstrip("~≈=")
    for sign, instead in SIGNS.items():
        plain = plain.replace(sign, instead)
    plain = "".join(plain.split())
    plain = re.sub(r"(?<=\d)[_'](?=\d)", "", plain)
    plain = re.sub(r"sqrt\(([^()]*)\)", r"√\1", plain)
    above, slash, below = plain.partition("/")
    try:
        number = _product(above) / (_product(below) if slash else 1.0)
    except (ZeroDivisionError, OverflowError) as error:
        raise ValueError(str(error)) from error
    if math.isinf(number) and "inf" not in plain:
        raise ValueError("too large")
    return number


def _product(text: str) -> float:
    return math.prod(_factor(each) for each in text.split("*"))


def _factor(text: str) -> float:
    match = FACTOR.fullmatch(text)
    if match is None:
        raise ValueError(text)
    number = _single(match["base"])
    if match["root"]:
        number = math.sqrt(number)
    if match["power"]:
        power = match["power"]
        number = number ** (-_single(power[1:]) if power.startswith("-") else _single(power))
    return (-number if match["sign"] == "-" else number) / (100 if match["percent"] else 1)


def _single(text: str) -> float:
    if text in NAMED:
        return NAMED[text]
    if GROUPED.fullmatch(text):
        text = text.replace(",", "")
    elif GROUPED_BY_POINTS.fullmatch(text):
        text = text.replace(".", "")
    text = text.replace(",", ".")
    if not PLAIN.fullmatch(text):
        raise ValueError(text)
    return float(text)
