"""Expressions: frozen, shared, printable as the Python that builds them, and safe to share between threads."""

import concurrent.futures
import copy
import gc
import operator
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.language.expr import (
    Const,
    Op,
    Read,
    Table,
    batch,
    fold,
    frozen_table,
    head,
    key,
    lift,
    query,
    score,
    table,
    tables_of,
    walk,
)
from regard.language.operators import OPERATORS
from regard.language.tree.vectors import View
from tests.support.lanes import by_name
from tests.support.refusals import reasons_of, refusing

NAMES = {**{name: getattr(rg, name) for name in rg.__all__}, "lift": lift}


def read_again(rule):
    """What the text of a rule builds."""
    return lift(eval(repr(rule), NAMES | tables_of(rule)))


VECTOR = table(np.arange(7), "vector")
MATRIX = table(np.arange(6.0).reshape(2, 3), "matrix")
CONDITION = table(np.array([True, False]), "condition")


def build_trees():
    """Random expressions over every operator, variable, kind of constant, and tables of one and two axes."""
    integers = st.sampled_from([batch, head, query, key]) | st.integers(-(2**40), 2**40).map(Const)
    floats = st.just(score) | st.floats(allow_nan=True, allow_infinity=True).map(Const)
    conditions = st.booleans().map(Const) | st.just(query >= key)

    def whole(x):
        return x if x.kind == "int" else rg.to_int(x) if x.kind == "float" else rg.where(x, 1, 0)

    def build(name, *args):
        row = OPERATORS[name]
        convert = {"b": lambda x: x if x.kind == "bool" else x > 0, "i": whole}
        taken = [convert.get(code, lift)(x) for code, x in zip(row.takes, args, strict=False)]
        divisor_is_zero = name in ("floordiv", "mod") and isinstance(taken[1], Const) and taken[1].value == 0
        if name in ("lshift", "rshift") and isinstance(taken[1], Const) and taken[1].value < 0:
            return taken[0]
        if name == "where":
            return rg.where(*taken)  # of two conditions it is none
        return taken[0] if divisor_is_zero else Op(name, *taken)

    def applied(children):
        places = children.map(whole)
        reads = places.map(VECTOR.__getitem__) | st.tuples(places, places).map(MATRIX.__getitem__)
        flags = places.map(CONDITION.__getitem__)
        return st.builds(build, st.sampled_from(sorted(OPERATORS)), children, children, children) | reads | flags

    return st.recursive(integers | floats | conditions, applied, max_leaves=12)


TREES = build_trees()


@given(TREES)
def test_text_round_trip(tree):
    """eval(repr(e)) is e."""
    assert read_again(tree) is tree


@given(TREES)
def test_pickle_and_copy(tree):
    """Copies are the node itself; a pickle builds an equal tree, which is the same one wherever no table is
    involved.
    """
    again = pickle.loads(pickle.dumps(tree))

    assert copy.copy(tree) is tree and copy.deepcopy(tree) is tree
    assert repr(again) == repr(tree) and again.kind == tree.kind
    assert again is tree or tables_of(tree)


def test_deep_trees_are_pickled():
    """Thousands of nodes, nested in arguments and in indices; shared nodes stay shared."""
    index, deep = query, score
    for number in range(2000):
        index, deep = rg.maximum(index, number), rg.tanh(deep) + deep
    for rule, frozen in ((deep, True), (table(np.arange(7.0))[index] + deep, False)):
        again = pickle.loads(pickle.dumps([rule, rule]))
        assert again[0] is again[1] and (again[0] is rule) == frozen
        assert len(list(walk(again[0]))) == len(list(walk(rule)))


TEXTS = {
    "(key <= query) & (query - key < 256)": (key <= query) & (query - key < 256),
    "(key < 1) | (key < 2) & (key < 3)": (key < 1) | (key < 2) & (key < 3),
    "((key < 1) | (key < 2)) & (key < 3)": ((key < 1) | (key < 2)) & (key < 3),
    "query - (key - 1)": query - (key - 1),
    "query - key - 1": (query - key) - 1,
    "-(query - key)": -(query - key),
    "-query * key": -query * key,
    "query - -2": query - -2,
    "(key < 3) == (query < 3)": (key < 3) == (query < 3),
    "30 * tanh(score / 30)": 30 * rg.tanh(score / 30),
    "abs(query - key)": abs(query - key),
    "key > 3": Op("lt", 3, key),
    "pow(score, 0.5)": score**0.5,
    "where(key < 3, score, float('-inf'))": rg.where(key < 3, score, -np.inf),
    "lift(2) + 3": lift(2) + 3,
}


@pytest.mark.parametrize(("text", "expression"), TEXTS.items(), ids=TEXTS)
def test_text(text, expression):
    """Printing is readable mathematics, with no more parentheses than Python needs."""
    assert repr(expression) == text


def test_tables_of_one_name_have_two():
    """Two tables called `document` print under two names."""
    first, second = table(np.arange(3), "document"), table(np.arange(3), "document")
    rule = first[query] == second[key]

    assert repr(rule) == "document[query] == document_2[key]" and read_again(rule) is rule


def test_structure_is_identity():
    """The same expression, written twice, is the same object; different ones are not."""
    assert query - key is not key - query and (key <= query) & (query < 9) is (key <= query) & (query < 9)
    assert Const(1) is not Const(1.0) and Const(1) is not Const(True)
    assert Const(0.0) is not Const(-0.0) and Const(float("nan")) is Const(float("nan"))
    assert lift(np.int32(2)) is Const(2) and lift(np.bool_(True)) is Const(True)


def test_every_operator_of_python():
    """Each operator builds the row it is named after, from either side."""
    condition = key < 3
    for name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "and", "or", "xor"):
        x, y = (condition, True) if name in ("and", "or", "xor") else (key, 3)
        apply, row = getattr(operator, f"__{name}__"), name.removeprefix("true")
        assert apply(x, y) is Op(row, x, y) and apply(y, x) is Op(row, y, x)
    for name, mirrored in {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}.items():
        apply = getattr(operator, name)
        assert apply(key, 3) is Op(name, key, 3) and apply(3, key) is Op(mirrored, key, 3)
    assert -key is Op("neg", key) and abs(key) is Op("abs", key) and ~condition is Op("not", condition) and +key is key


def test_powers():
    """Small whole powers are products, so that negative bases stay exact; others are pow."""
    assert key**3 is key * key * key and score**1 is score
    assert score**0.5 is Op("pow", score, 0.5) and 2**key is Op("pow", 2, key) and score**-1 is Op("pow", score, -1)


def test_frozen():
    """No field of a node can be set."""
    with pytest.raises(AttributeError, match="expressions are frozen: 'kind' cannot be set on key"):
        key.kind = "float"


def test_the_store_forgets():
    """Unreferenced nodes are collected, so building expressions in a loop costs no memory."""
    from regard.language.tree import interning as nodes

    gc.collect()
    before = len(nodes._nodes)
    for width in range(1000):
        rg.window(width + 10**9)
    gc.collect()

    assert len(nodes._nodes) <= before + 10


def test_threads_share_nodes():
    """Threads that build one expression at the same time get one object."""
    barrier = threading.Barrier(8)

    def build(_):
        barrier.wait()
        return [(key + shift) * (query - shift) < number for number in range(50) for shift in range(20)]

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        built = list(threads.map(build, range(8)))

    assert all(a is b for other in built[1:] for a, b in zip(built[0], other))


def test_a_table_is_a_view():
    """A table reads the array's own memory; the same array gives the same table; a list is read again."""
    array, numbers = np.arange(4), [1, 2, 3]
    held = table(array)
    array[1] = 9

    assert held.array[1] == 9 and table(array) is held and table(held) is held
    assert table(numbers).array.tolist() == numbers
    numbers.append(4)
    assert table(numbers).array.tolist() == numbers


@pytest.mark.parametrize("name", ["int64", "bfloat16"])
def test_a_table_of_a_tensor_shares_its_memory(name):
    """A torch tensor is read in place; one that was given other memory is a new table."""
    import torch

    tensor = torch.arange(4).to(getattr(torch, name))
    held = table(tensor)
    tensor[1] = 9

    assert held.array.tolist() == [0, 9, 2, 3] and table(tensor) is held
    assert held[key].kind == ("int" if name == "int64" else "float")
    tensor.data = tensor + 10
    assert table(tensor).array.tolist() == [10, 19, 12, 13] and table(tensor) is table(tensor)
    assert held.array.tolist() == [0, 9, 2, 3]


def test_a_frozen_table_stays_frozen():
    """Only a copy that regard owns counts as frozen, also after pickling; a user's read-only array may have a view
    that writes.
    """
    array = np.arange(4)
    held = frozen_table(array, "mine")
    array[0] = 9
    array.flags.writeable = False
    for each in (held, pickle.loads(pickle.dumps(held))):
        assert each.frozen and each.array.tolist() == [0, 1, 2, 3] and not each.array.flags.writeable
    assert not table(array).frozen and not pickle.loads(pickle.dumps(table(array))).frozen


def test_reads():
    """A read has one integer index per axis; a literal index counts from the end as in Python; indices may come one by
    one.
    """
    assert VECTOR[-1] is VECTOR[6] and MATRIX[0, -1] is MATRIX[0, 2]
    assert isinstance(MATRIX[head], View) and MATRIX[head][key] is MATRIX[head, key]
    assert MATRIX[..., key][head] is MATRIX[head, key] and MATRIX[head, 1:][-1] is MATRIX[head, 2]
    assert VECTOR[2:5][key] is VECTOR[np.clip(key, 0, 2) + 2], "beyond a slice stands its last element"
    assert isinstance(VECTOR[key], Read) and VECTOR[key].kind == "int" and MATRIX[0, 0].kind == "float"
    assert isinstance(VECTOR, Table) and len(VECTOR) == 7 and MATRIX.shape == (2, 3)


def test_walk_visits_each_node_once_children_first():
    """Shared parts are visited once, so a tree that shares much is read in the time of its nodes, not of its paths."""
    tree = doubled(key + 1)

    nodes = list(walk(tree))
    assert len(nodes) == 63 and nodes[-1] is tree
    assert fold(tree, lambda c: 1, lambda v: 1, lambda r: 1, lambda op, *args: 1 + max(args)) == 62


def doubled(tree):
    """A tree of 2**60 times as many leaves."""
    for _ in range(60):
        tree = tree + tree
    return tree


REFUSED_BY_NAME = {
    "bool": lambda tree: bool(tree < 3),
    "index": lambda tree: VECTOR[tree, tree],
    "and": lambda tree: tree & True,
    "mod": lambda tree: tree % 0,
    "float": float,
}


@by_name("call", REFUSED_BY_NAME)
def test_what_shares_its_parts_is_built_and_refused_in_the_time_of_its_nodes(call):
    """A tree whose text has 2**60 characters is built, read from a table, and named in messages by the beginning of its
    text.
    """
    tree = doubled(key)

    assert VECTOR[tree].kind == "int" and not hasattr(tree, "unknown")
    assert str(tree).startswith("key + key + (key + key) + (") and str(tree).endswith("…") and len(str(tree)) < 5000
    assert len(str(reasons_of(call, tree))) < 20_000


def test_a_refusal_prints_what_was_written():
    """The expression in a message has the parentheses it needs."""
    for divided in (lambda: (query - key) % 0, lambda: (query - key) // 0):
        with refusing(r"\(query - key\) (%|//) 0"):
            divided()


# ---- what would take forever -----------------------------------------------------------------------------------------


STARTS = [list, iter, set, sorted, max, sum, lambda x: 3 in x, dict]


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.__name__)
def test_a_table_is_not_iterated(start):
    """Indices are clamped, so that no index is the end: iteration refuses at once, whatever starts it."""
    for each in (VECTOR, VECTOR[key], MATRIX, MATRIX[key, key]):
        with pytest.raises(TypeError):
            start(each)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float16])
def test_a_table_is_an_array(dtype):
    """NumPy reads it in place, and converts it where that is requested; a copy is one."""
    array = np.arange(6).reshape(2, 3).astype(dtype)
    made = table(array)
    for found, shared in ((np.asarray(made), True), (np.array(made), False), (np.asarray(made, np.complex64), False)):
        np.testing.assert_array_equal(found, array.astype(found.dtype), strict=True)
        assert np.shares_memory(found, array) == shared
    assert np.asarray(made).dtype == dtype and np.asarray(made, np.complex64).dtype == np.complex64


@pytest.mark.spread
@pytest.mark.parametrize("operator", [operator.add, operator.mul, rg.maximum, lambda a, b: rg.where(key > 3, a, b)])
@pytest.mark.parametrize("start", [key, score, VECTOR[key], table(np.arange(3.0), "n0")[query]])
@pytest.mark.parametrize("depth", [3, 60, 700])
def test_the_text_of_shared_nodes_is_as_long_as_the_rule(start, operator, depth):
    """A rule that uses itself twice, 60 times over, has 2⁶⁰ leaves as a tree; its text names what it shares."""
    rule = start
    for _ in range(depth):
        rule = operator(rule, rule + 1)
    assert len(repr(rule)) < 300 * len(list(walk(rule)))
    assert read_again(rule) is rule


@pytest.mark.parametrize("depth", [150, 3000])
def test_the_text_of_a_deep_rule_can_be_read(depth):
    """A chain of functions, deeper than Python's parser reads parentheses."""
    rule = score
    for number in range(depth):
        rule = rg.tanh(rule) if number % 3 else -rule
    assert read_again(rule) is rule


@pytest.mark.parametrize("number", [0.1, float("inf")])
@pytest.mark.parametrize("kind", [np.longdouble, np.float64, np.float32, np.float16])
def test_numbers_of_numpy_are_constants(kind, number):
    """Every float of NumPy, also as an array without axes, is the nearest constant."""
    value = kind(number)
    assert lift(value) is lift(np.array(value)) is Const(float(value))
    assert score * value is score * float(value)


@pytest.mark.parametrize("value", [np.clongdouble(1), np.complex64(1), np.datetime64(5, "ns"), np.timedelta64(5, "ns")])
def test_other_numbers_of_numpy_are_refused(value):
    """They are no real numbers."""
    for number in (value, np.array(value)):
        with refusing("not a number"):
            lift(number)
