"""Table 1 counted and shown by running, against independent counts, brute force and the layers' equations."""

import itertools
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import typer  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from regard.cli.cost.table1 import table1  # noqa: E402
from regard.common.errors import Refused  # noqa: E402
from regard.ledger.table1.counting import Counter, chain, operations  # noqa: E402
from regard.ledger.table1.crossover import crossover  # noqa: E402
from regard.ledger.table1.layers import Convolution, Projections, Recurrence, RestrictedAttention  # noqa: E402
from regard.ledger.table1.output import lines, summary_lines  # noqa: E402
from regard.ledger.table1.reach import path_length  # noqa: E402
from regard.ledger.table1.rows import KINDS, LENGTHS, exponent, exponents, rows  # noqa: E402

EACH = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@pytest.fixture(scope="module")
def table():
    """The default table."""
    return rows()


@pytest.mark.sweep
def test_formulas_agree_with_counts(table):
    """Operations, steps and path agree as integers for every kind and length."""
    assert len(table) == len(KINDS) * len(LENGTHS) and [row for row in table if row.faults] == []


@pytest.mark.sweep
def test_random_sizes():
    """The same for lengths and widths that are no powers of two."""
    rng = np.random.default_rng(0)
    for _ in range(6):
        lengths = sorted({int(n) for n in rng.integers(8, 150, 3)})

        assert [row for row in rows(lengths, int(rng.integers(1, 40))) if row.faults] == []


def test_exponents_over_the_length(table):
    """Operations have a single term each, so that the slope is the power of n; the paper's orders of steps and path."""
    found = {
        kind: [round(rates[name], 1) for name in ("operations", "steps")] for kind, rates in exponents(table).items()
    }
    paths = {kind: rates["path"] for kind, rates in exponents(table).items()}

    assert found == {
        "self-attention": [2.0, 0.0],
        "recurrent": [1.0, 1.0],
        "convolution": [1.0, 0.0],
        "dilated convolution": [1.0, 0.0],
        "restricted attention": [1.0, 0.0],
    }
    assert paths["self-attention"] == 0 and paths["recurrent"] == pytest.approx(1)
    assert paths["convolution"] == pytest.approx(1, abs=0.1) and paths["restricted attention"] == pytest.approx(
        1, abs=0.1
    )
    assert paths["dilated convolution"] < 0.3


@EACH
def test_operations_against_torch(kind):
    """torch's own counter, which counts these products, finds the same number, and the graph the same products."""
    n, d = 24, 10
    layer, x = kind.layer(0, d), torch.randn(n, d)
    with FlopCounterMode(display=False) as theirs:
        layer(x)
    with Counter() as ours:
        out = layer(x.requires_grad_())

    assert ours.operations == theirs.get_total_flops() == kind.operations(n, d)
    nodes, waiting = set(), [out.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            waiting.extend(each for each, _ in node.next_functions)
    named = [node for node in nodes if node.name() in ("MmBackward0", "BmmBackward0", "ConvolutionBackward0")]
    assert len(named) == ours.products


@EACH
@pytest.mark.parametrize("n", [8, 13, 20])
def test_path_against_whole_stacks(kind, n):
    """The derivative of a whole stack: zero with one layer fewer than the path has, not zero with as many."""
    x = torch.randn(n, 8, dtype=torch.float64)
    path = kind.path(n)
    for count in (path - 1, path):
        leaf = x.clone().requires_grad_()
        out = leaf
        for layer in itertools.islice(kind.stack(leaf if kind.name != "recurrent" else x), count):
            out = layer(out)
        (gradient,) = torch.autograd.grad(out[-1].sum(), leaf)

        assert bool(gradient[0].any()) == (count == path)


def test_steps_of_a_recurrence_are_the_recurrence():
    """After n steps for all positions at once, the states are those of the loop."""
    torch.manual_seed(0)
    layer, x = Recurrence(6).double(), torch.randn(9, 6, dtype=torch.float64)
    out = x
    for step in itertools.islice(layer.steps(x), len(x)):
        out = step(out)

    torch.testing.assert_close(out, layer(x), rtol=1e-12, atol=1e-12)


def test_restricted_attention_is_attention_with_a_mask():
    """The gathered windows give what the whole matrix with a mask gives."""
    torch.manual_seed(1)
    for n, window in ((8, 8), (20, 3), (17, 5), (5, 1), (4, 9)):
        x = torch.randn(n, 6, dtype=torch.float64)
        distance = torch.arange(n)[:, None] - torch.arange(n)
        hidden = (distance < 0) | (distance >= window)
        weights = (x @ x.T / 6**0.5).masked_fill(hidden, -torch.inf).softmax(-1)

        torch.testing.assert_close(RestrictedAttention(window)(x), weights @ x, rtol=1e-12, atol=1e-12)


def test_a_convolution_is_its_sum():
    """Position t is the sum of the taps' products with positions t, t − dilation, …"""
    torch.manual_seed(2)
    layer, x = Convolution(4, 3, dilation=2).double(), torch.randn(11, 4, dtype=torch.float64)
    expected = torch.stack(
        [
            sum(layer.weight[:, :, tap] @ x[t - 2 * (2 - tap)] for tap in range(3) if t >= 2 * (2 - tap))
            for t in range(11)
        ]
    )

    torch.testing.assert_close(layer(x), expected.tanh(), rtol=1e-12, atol=1e-12)


def test_chains_of_products():
    """Branches do not add up, products in a row do; views and sums between them do not matter; no graph is no chain."""
    x = torch.randn(3, 3, requires_grad=True)
    y = x
    for _ in range(2000):  # deeper than Python's stack
        y = (y @ x).T + 1

    assert chain(y) == 2000
    assert chain(x @ x + x @ x) == 1 and chain((x @ x) @ (x @ x)) == 2 and chain(x + 1) == 0
    assert chain(torch.ones(2)) == 0


def test_meta_a_stack_that_does_not_reach_is_seen():
    """The check can fail: layers that move nothing have no path."""
    with pytest.raises(AssertionError, match="do not carry"):
        path_length([torch.nn.Tanh()] * 3, torch.randn(4, 2))


def test_crossover_by_counting():
    """Attention has the operations of its projections at twice the width, exactly, and one position less has fewer."""
    widths = [1, 2, 7, 33, 64, 100, 512]
    for found in crossover(widths):
        d, n = found.width, found.counted
        below, at = (torch.empty(each, d, device="meta") for each in (n - 1, n))
        attention, projections = KINDS[0].layer(0, d), Projections(d).to("meta")

        assert n == found.formula == 2 * d and found.operations == 8 * n * d * d
        assert operations(attention, at) == operations(projections, at)
        assert operations(attention, below) < operations(projections, below)


def test_crossover_by_time():
    """A length is found, or none; the ratio is to the formula. How large it is says the machine."""
    (found,) = crossover([64], measure=True)

    assert (found.measured is None) == (found.ratio is None)
    assert found.measured is None or (8 <= found.measured <= 1024 and found.ratio == found.measured / 128)


def test_exponent_of_powers():
    """The slope of c · n^p is p."""
    rng = np.random.default_rng(3)
    for power, factor in zip(rng.uniform(-2, 3, 20), rng.uniform(1e-6, 1e6, 20), strict=True):
        assert exponent([(n, factor * n**power) for n in (8, 11, 30, 500)]) == pytest.approx(power, abs=1e-9)
    assert np.isnan(exponent([(8, 5.0)]))


@pytest.mark.parametrize("lengths", [[], [7], [8, 8], [1.5], [True], [10**9], [-8], ["8"]])
def test_impossible_lengths_are_refused(lengths):
    """Too short for the window, too long, twice, no integers, none."""
    with pytest.raises(Refused, match="lengths"):
        rows(lengths, 4)


@pytest.mark.parametrize("width", [0, -1, 10**6, 2.0])
def test_impossible_widths_are_refused(width):
    """Of the table and of the crossover."""
    with pytest.raises(Refused, match="width"):
        rows([8], width)
    with pytest.raises(Refused, match="widths"):
        crossover([width * 10])


def test_threads_and_seed_are_left_alone():
    """The table sets a seed and one thread for itself only."""
    threads = torch.get_num_threads()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    rows([8], 4)

    assert torch.equal(torch.rand(3), expected) and torch.get_num_threads() == threads


def test_lines_of_text(table):
    """As many cells as the heading has, every kind in the summary, times only where they were measured."""
    timed = rows([8, 16], 8, measure=True)
    for found in (lines(table), summary_lines(table), lines(timed), summary_lines(timed)):
        assert {len(line) for line in found} == {len(found[0])}
    assert [line[0] for line in summary_lines(table)[1:]] == [kind.name for kind in KINDS]
    assert "µs" in lines(timed)[0] and "µs" not in lines(table)[0]


@pytest.mark.sweep
def test_the_command(capsys, tmp_path, monkeypatch):
    """Tables as text, the same as JSON, and a plot."""
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("COLUMNS", "80")
    table1(lengths="8,1024", width=16, plot=tmp_path / "t.png", measure=True)
    shown = capsys.readouterr().out
    table1(lengths="8,1024", width=16, as_json=True)
    data = json.loads(capsys.readouterr().out)

    assert all(kind.name in shown for kind in KINDS) and "…" not in shown
    assert (tmp_path / "t.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and len(list(tmp_path.iterdir())) == 1
    assert len(data["rows"]) == 10 and data["rows"][0]["operations"] == {"formula": 4096, "found": 4096}
    assert [each["counted"] for each in data["crossover"]] == [128, 256, 512, 1024]


def test_a_difference_is_a_fault(monkeypatch, capsys):
    """The check can fail: a wrong formula ends with status 1 and is named."""
    from dataclasses import replace

    from regard.ledger.table1 import rows as module

    halved = replace(KINDS[0], operations=lambda n, d: 2 * n * n * d)
    monkeypatch.setattr(module, "KINDS", (halved, *KINDS[1:]))
    with pytest.raises(typer.Exit) as ended:
        table1(lengths="8", width=4)

    assert ended.value.exit_code == 1
    assert "formula and count differ: self-attention, n = 8: operations" in capsys.readouterr().err


@pytest.mark.parametrize("lengths", ["", "8,", "x", "8;9", "1e3", "²", "9" * 30])
def test_lengths_that_are_no_numbers(lengths):
    """Each is named."""
    with pytest.raises(Refused, match="not a length"):
        table1(lengths=lengths)


@pytest.mark.parametrize(("name", "what"), [("no/such/t.png", "no folder .*no/such"), ("t.pdf", "not a PNG file")])
def test_plots_that_cannot_be_written(tmp_path, name, what):
    """Refused before the work."""
    with pytest.raises(Refused, match=what):
        table1(plot=tmp_path / name)
