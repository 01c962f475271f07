"""Placements as text and files: every bit returns, damaged files are refused; explanations as words and figures."""

import json

import numpy as np
import pytest

import regard as rg
import regard.parallel as rp
from regard.parallel.placement import ARRAYS
from tests.parallel.placements import random_mask
from tests.support.refusals import refusing

CAUSAL = rg.causal()


@pytest.fixture
def place():
    """A small placement with rows that moved."""
    return rp.place(3000, ranks=3, mask=CAUSAL, heads=4, key_heads=2, depth=16, among=["excess"])


@pytest.mark.parametrize("seed", range(10))
def test_json_returns_every_bit(seed, tmp_path):
    """Arrays with their dtypes, floats, names; written again, it is the same text."""
    rng = np.random.default_rng(seed)
    tokens = int(rng.integers(1, 4000))
    place = rp.place(tokens, ranks=int(rng.integers(1, 12)), mask=random_mask(rng, tokens), heads=2)
    text = place.to_json()
    again = rp.Placement.from_json(text)
    place.save(tmp_path / "place.json")

    assert again == place == rp.Placement.load(tmp_path / "place.json") and again.to_json() == text
    assert all(getattr(again, name).dtype == getattr(place, name).dtype for name in ARRAYS)
    assert vars(again.chosen) == vars(place.chosen)
    assert str(rp.explain(again)) == str(rp.explain(place))


def test_damaged_files_are_refused(place, tmp_path):
    """No JSON, other JSON, missing parts, ranks that do not exist, pages from a rank that does not hold them."""
    text = place.to_json()
    data = json.loads(text)
    other = json.loads(rp.place(3000, ranks=3, mask=CAUSAL, heads=4, among=["striped"]).to_json())
    changes = [
        {"regard_placement": 2},
        {"chosen": "striped"},
        {"ranks": 2},
        {"ranks": 0},
        {"extra": 1},
        {"owner": other["owner"]},
        {"owner": data["owner"] | {"deflated": "AAAA"}},
        {"owner": data["owner"] | {"deflated": "é"}},
        {"owner": data["owner"] | {"length": 1 << 40}},
        {"owner": data["owner"] | {"dtype": "<i8"}},
        {"pages": data["owner"]},
        {"sizes": data["sizes"] | {"tokens": 2000}},
        {"sizes": data["sizes"] | {"dtype": "int8"}},
    ]
    for wrong in ["", "[]", "{}", text[:-10], *(json.dumps(data | each) for each in changes)]:
        with refusing("this is not a placement"):
            rp.Placement.from_json(wrong)
    (tmp_path / "place.json").write_bytes(b"\xff\xfe")
    with refusing("not a text"):
        rp.Placement.load(tmp_path / "place.json")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda place: place.positions(3), "the rank does not exist"),
        (lambda place: place.travel(-1, 0), "the rank does not exist"),
        (lambda place: rp.explain("zigzag"), "not a placement"),
        (lambda place: rp.explain(place).figure(width=0), "no width"),
        (lambda place: rp.explain(place).plot("place.txt"), "the form is unknown"),
    ],
)
def test_refusals(place, call, words):
    """Ranks that do not exist, and what cannot be explained or drawn."""
    with refusing(words):
        call(place)


def test_the_words(place):
    """The candidates with the chosen one marked, a line for each rank, and the sum."""
    found = rp.explain(place)
    lines = str(found).split("\n")

    assert lines[0] == "place   3,000 tokens over 3 ranks: 4 heads, 2 key heads, depth 16, bfloat16"
    assert lines[1] == "mask    key <= query" and "→  excess" in str(found)
    assert [line.split()[0] for line in lines[7:11]] == ["rank", "0", "1", "2"]
    assert lines[-1].startswith("balance 1.12 · received 292 kB on average")


def test_of_many_ranks_the_busiest_are_listed():
    """Eight lines of forty ranks, those with the most time first."""
    found = rp.explain(rp.place(40 * 256, ranks=40, mask=CAUSAL, among=["contiguous"], peak=1e9))
    lines = str(found).split("\n")

    assert "the 8 ranks of 40 with the most time; all are in the data" in lines
    assert lines[lines.index(next(line for line in lines if line.startswith("rank"))) + 1].split()[0] == "39"
    assert len(found.to_json()["per_rank"]["pairs"]) == 40


def test_the_figure(place):
    """Who holds and who computes, and bars as long as the pairs."""
    lines = rp.explain(place).figure(width=24).split("\n")

    assert lines[0] == "holds    " + "0" * 8 + "1" * 8 + "2" * 8
    assert lines[1].startswith("computes 00000000111") and lines[1] != lines[0].replace("holds   ", "computes")
    assert max(line.count("█") for line in lines) == 40


def test_the_data_are_json(place):
    """Lists of numbers for each rank, and the numbers of the candidates."""
    found = json.loads(json.dumps(rp.explain(place).to_json()))

    assert found["chosen"] == "excess" and len(found["per_rank"]["memory"]) == 3
    assert found["candidates"][0]["moved"] == int((place.owner != place.worker).sum()) > 0


def test_memory():
    """By hand: own q, k and v, and the most of three moments: queries of others travel; a stripe of half the key heads
    is computed, and the next one travels; results return.
    """
    place = rp.place(3072, ranks=3, mask=CAUSAL, heads=4, key_heads=2, depth=16, among=["excess"])
    found = rp.explain(place)
    keys, query, result = 2 * 32 * 2, 4 * 16 * 2, 4 * (16 * 2 + 4)  # bytes of a token
    travel = np.array([[128 * len(place.travel(source, target)) for target in range(3)] for source in range(3)])
    moves = place.owner != place.worker
    for rank in range(3):
        coming, going = travel[:, rank].sum(), travel[rank].sum()
        moved = 128 * (moves & ((place.owner == rank) | (place.worker == rank))).sum()
        tokens, rows = len(place.positions(rank)), 128 * (place.worker == rank).sum()
        stripe = keys // 2 * (tokens + coming)
        first, last = rows * result // 2 + stripe + keys // 2 * (coming + going), rows * result + stripe
        returning = (rows + tokens + moved) * result
        most = max((rows + moved) * query, rows * query + max(first, last), returning)
        assert found.memory[rank] == tokens * (query + keys) + most
    assert found.pages.tolist() == (8 + travel.sum(0) // 128).tolist()


def test_a_placement_as_an_image(place, tmp_path):
    """An old file is replaced; tests/cli/test_output_files.py has the other forms."""
    path = tmp_path / "place.pdf"
    path.write_bytes(b"old")
    rp.explain(place).plot(path)
    assert path.read_bytes().startswith(b"%PDF") and [*tmp_path.iterdir()] == [path]
