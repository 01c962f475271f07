"""`regard plan`: words, JSON, a file, documents, refusals."""

import json

import numpy as np
import pytest

import regard as rg
import regard.parallel as rp
from regard.cli.plan import log_normal, parse_documents
from tests.support.command import done, refused, regard


def test_the_words_are_those_of_explain():
    """Candidates, a line for each rank, and the figure."""
    out = done("plan", "--tokens", "8k", "--ranks", "4", "--mask", "key <= query", "--key-heads", "8")
    found = rp.explain(rp.place(8192, ranks=4, mask=rg.causal(), heads=32, key_heads=8))

    assert out == f"{found}\n\n{found.figure()}\n"


def test_json_and_a_file(tmp_path):
    """Every option arrives; the file holds the placement that is printed."""
    path = tmp_path / "place.json"
    words = ["--tokens", "5000", "--ranks", "3", "--mask", "(key <= query) & (query - key < 700) | (head == 1)"]
    words += ["--heads", "6", "--key-heads", "3", "--depth", "32", "--value-depth", "16", "--dtype", "float32"]
    words += ["--among", "zigzag, contiguous", "--peak", "1e9", "--bandwidth", "1e6", "--documents", "3000,2000"]
    status, out, err = regard("plan", *words, "--json", "--out", str(path))
    mask = (rg.causal() & rg.window(700, None) | (rg.head == 1)) & rg.documents(lengths=[3000, 2000])
    place = rp.place(
        5000, ranks=3, mask=mask, heads=6, key_heads=3, depth=32, value_depth=16, dtype="float32",
        among=["zigzag", "contiguous"], peak=1e9, bandwidth=1e6,
    )  # fmt: skip

    assert (status, err) == (0, f"Placement written to {path}.\n")
    assert json.loads(out) == json.loads(json.dumps(rp.explain(place).to_json()))
    assert rp.Placement.load(path) == place


def test_documents_without_a_mask():
    """They are the mask."""
    assert "mask    document[query] == document[key]" in done(
        "plan", "--tokens", "1000", "--ranks", "2", "--documents", "log-normal:5:3"
    )


def test_random_documents():
    """They add up, none is empty, and the seed decides."""
    lengths = log_normal(188, 1 << 20, seed=0)

    assert lengths.sum() == 1 << 20 and lengths.min() >= 1 and len(lengths) == 188
    assert np.array_equal(parse_documents("log-normal:188", 1 << 20), lengths)
    assert not np.array_equal(parse_documents("log-normal:188:1", 1 << 20), lengths)
    assert log_normal(7, 7, seed=1).tolist() == [1] * 7


@pytest.mark.parametrize(
    "words, message",
    {
        "--tokens 1e6": "the tokens cannot be read",
        "--tokens 0": "no tokens",
        "--tokens 4096M": "too many tokens",
        "--tokens 99 --ranks 0": "ranks is out of range",
        "--tokens 99 --mask causal()": "a part that a mask cannot contain",
        "--tokens 99 --mask token[key]==1": "a part that a mask cannot contain",
        "--tokens 99 --mask key": "a mask that is not a condition",
        "--tokens 99 --mask kex<3": "at column 1 of --mask 'kex<3'",
        "--tokens 99 --documents 40,60": "fix: pass --tokens 100",
        "--tokens 99 --documents 40,x": "the documents cannot be read",
        "--tokens 99 --documents log-normal:0": "no documents",
        "--tokens 99 --documents log-normal:100": "more documents than tokens",
        "--tokens 99 --among ring": "the candidate is unknown",
        "--tokens 99 --out /no/such/place.json": "the file cannot be written",
    }.items(),
)
def test_refusals(words, message):
    """One sentence, status 2."""
    assert message in refused("plan", *words.split(), *([] if "--ranks" in words else ["--ranks", "2"]))
