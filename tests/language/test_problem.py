"""Problem: every check of the arguments, with the exact messages."""

import numpy as np
import pytest

import regard as rg
from regard.language.expr import key, query, score
from regard.language.problem import Problem
from tests.support.lanes import by_name
from tests.support.refusals import reasons_of, refusing

B, H, G, Q, K, D, E = 2, 4, 2, 3, 8, 16, 5


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


q, k, v = zeros(B, H, Q, D), zeros(B, G, K, D), zeros(B, G, K, E)


def test_dimensions_by_name():
    """The dimension key is read off the arrays; missing leading axes count as 1."""
    dims = {"B": B, "H": H, "G": G, "Q": Q, "K": K, "D": D, "E": E}
    assert Problem.of(q, k, v).dims == dims
    assert Problem.of(q[0, 0], k[0, 0], v[0, 0]).dims == dims | {"B": 1, "H": 1, "G": 1}


def test_arrays_are_views():
    """Nothing is copied: the problem sees the caller's memory, also where one key/value entry serves the whole
    batch.
    """
    shared = Problem.of(q, k[:1], v[:1])

    assert np.shares_memory(shared.q, q) and np.shares_memory(shared.k, k) and np.shares_memory(shared.v, v)
    assert shared.k.shape == (B, G, K, D) and shared.k.strides[0] == 0


def test_batch_axes_broadcast_one_by_one():
    """The axes before the heads are one batch; they are compared as NumPy does, not as their product."""
    rng = np.random.default_rng(0)
    many = [rng.standard_normal(shape, np.float32) for shape in ((2, 3, H, Q, D), (2, 1, G, K, D), (3, G, K, E))]
    problem = Problem.of(*many)

    assert problem.dims["B"] == 6 and problem.lead == (2, 3, H)
    for found, given in ((problem.k, many[1]), (problem.v, many[2])):
        assert (found.reshape(2, 3, *given.shape[-3:]) == given).all()
    other = zeros(3, 2, 1, 4, 4)
    reasons = reasons_of(Problem.of, zeros(2, 3, 1, 4, 4), other, other)
    assert [reason.what for reason in reasons] == ["q and k differ in batch", "q and v differ in batch"]
    assert reasons[0].expected == "before the heads (2, 3), or 1 in place of any of them"


def test_defaults():
    """scale is 1/√D, the queries are the last rows of the keys, there is no mask, score or sink."""
    problem = Problem.of(q, k, v)

    assert problem.scale == D**-0.5 and problem.query_start.tolist() == [K - Q] * B
    assert problem.mask is None and problem.score is None and problem.sinks is None


def test_bare_arrays_follow_query_start():
    """Row i of a bare array is row i of the call, whatever the positions of the rows."""
    allowed = np.ones((Q, K), bool)
    for rules, shown in (
        ({"mask": allowed}, ["mask[query - 5, key]", "None"]),
        ({"mask": allowed, "query_start": 0}, ["mask[query, key]", "None"]),
        ({"score": zeros(H, Q, 1), "query_start": 2}, ["None", "score + bias[head, query - 2, 0]"]),
        ({"score": 1.5, "mask": np.False_}, ["False", "score + 1.5"]),
        ({"score": lambda s, b, h, q, kv: s, "mask": True}, ["None", "None"]),
        ({"mask": rg.everything()}, ["None", "None"]),
    ):
        problem = Problem.of(q, k, v, **rules)
        assert [repr(problem.mask), repr(problem.score)] == shown


def test_other_arguments_that_are_arrays():
    """(H,) counts as one sink per head; for weights only, the values count as one column of zeros; a batch without
    entries may say where each of them starts.
    """
    assert Problem.of(q, k, v, sinks=zeros(H)).sinks.shape == (H, 1)
    assert Problem.of(q, k, v, sinks=zeros(H, 3)).sinks.shape == (H, 3)
    assert Problem.of(q, k, None).v.shape == (B, G, K, 1)
    assert Problem.of(q[:0], k[:0], v[:0], query_start=[]).query_start.shape == (0,)


def test_torch_tensors_are_read_in_place():
    """A CPU tensor is a view; one that requires gradients is accepted under no_grad only."""
    import torch

    with torch.no_grad():
        assert np.shares_memory(Problem.of(torch.from_numpy(q).requires_grad_(), k, v).q, q)


def test_a_problem_prints_as_what_it_asks():
    """One line: the dimensions, the dtype and the rules; never the numbers."""
    problem = Problem.of(q, k, v, mask=key <= query, score=score * 2, sinks=zeros(H))

    assert repr(problem) == (
        "Problem(B=2 H=4 G=2 Q=3 K=8 D=16 E=5 float32, mask: key <= query, score: score * 2, scale: 0.25, "
        "query_start: [5], sinks: 1 per head)"
    )


LAYOUT = "the layout is (batch, heads, rows, depth)"
DTYPES = "float32, float64, float16 or bfloat16"


def shown(**changed):
    return ", ".join(f"{name} {changed.get(name, array.shape)}" for name, array in (("q", q), ("k", k), ("v", v)))


def no_position(given, start):
    words = "an integer, or one per batch entry (2)", "omit it to align the last query with the last key"
    return {"query_start": start}, "query_start is not a position", given, *words


def no_scale(given, scale):
    return {"scale": scale}, "scale is not a number", given, "a finite number", "omit it for 1/√D"


def no_rate(rate):
    words = "a number in [0, 1)", "omit it for no dropout"
    return {"dropout": rate, "seed": 1}, "dropout is not a rate", repr(rate), *words


def no_seed(seed, rate=0.1):
    words = "an integer in [0, 2**64)", "pass seed=0, and a different seed in every training step"
    return {"dropout": rate, "seed": seed}, "seed is not valid", repr(seed), *words


def no_sinks(given, sinks):
    words = "floats (4,) or (4, n)", "pass floats: one logit per query head, or several"
    return {"sinks": sinks}, "sinks do not fit the heads", given, *words


def no_fit(name, given, array):
    words = "something that broadcasts to (B, H, Q, K) = (2, 4, 3, 8)"
    fix = f"index it yourself: table(array)[query, key] in a {name} expression"
    return {name: array}, f"the {name} array does not fit", given, words, fix


# Each row: what is changed about a good call, and the whole refusal.
REFUSED = [
    (
        {"q": q.astype(np.int64)},
        "q has an unsupported dtype",
        "int64 (2, 4, 3, 16)",
        DTYPES,
        "convert it: q.astype(np.float32)",
    ),
    (
        {"k": k.astype(">f8")},
        "k has an unsupported dtype",
        ">f8 (2, 2, 8, 16)",
        DTYPES,
        "convert it: k.astype(np.float64)",
    ),
    (
        {"v": zeros(5)},
        "v has too few axes",
        "(5)",
        "(…, heads, rows, depth), at least (rows, depth)",
        "add an axis: v[None, :]",
    ),
    (
        {"k": k.astype(np.float64)},
        "the arrays differ in dtype",
        "float32, float64",
        "one dtype for q, k and v",
        "convert them to the same dtype",
    ),
    (
        {"k": zeros(B, G, K, 7)},
        "q and k differ in depth",
        shown(k=(2, 2, 8, 7)),
        "D = 16 for both",
        f"check the last axis; {LAYOUT}",
    ),
    (
        {"v": zeros(B, G, 9, E)},
        "k and v differ in rows",
        shown(v=(2, 2, 9, 5)),
        "one value row per key row",
        f"check axis -2; {LAYOUT}",
    ),
    (
        {"v": zeros(B, 1, K, E)},
        "k and v differ in heads",
        shown(v=(2, 1, 8, 5)),
        "as many value heads as key heads",
        f"check axis -3; {LAYOUT}",
    ),
    (
        {"k": zeros(B, 3, K, D), "v": zeros(B, 3, K, E)},
        "key heads do not divide query heads",
        shown(k=(2, 3, 8, 16), v=(2, 3, 8, 5)) + ": H=4, G=3",
        "H to be a multiple of G",
        f"repeat k and v to 4 heads, or check that axis -3 is heads: {LAYOUT}",
    ),
    (
        {"v": zeros(3, G, K, E)},
        "q and v differ in batch",
        shown(v=(3, 2, 8, 5)),
        "B = 2, or 1",
        f"check axis 0; {LAYOUT}",
    ),
    (
        {"q": np.broadcast_to(zeros(1), (B, H, 2**31, D))},
        "q has too many rows",
        shown(q=(2, 4, 2**31, 16)),
        "fewer than 2**31 rows",
        "split the call",
    ),
    *(no_position(repr(start), start) for start in (2.0, 1 << 31, True, "4", [1, 2, 3])),
    no_scale("nan", float("nan")),
    no_scale("True", True),
    no_scale(repr(10**400)[:80] + " …", 10**400),
    ({"scale": 1e39}, "scale is beyond float32", "1e+39", "at most 3.4e+38", "omit it for 1/√D"),
    *map(no_rate, (1.0, -0.1, float("nan"), "0.1", True, None)),
    *map(no_seed, (-1, 2**64, 1.5, "1", True, [1])),
    no_seed(0.5, rate=0.0),
    (
        {"dropout": 0.1},
        "dropout needs a seed",
        "dropout=0.1, seed=None",
        "a seed, which determines the dropped weights",
        "pass seed=…, a different one in every training step",
    ),
    no_sinks("float32 (3)", zeros(3)),
    no_sinks("int64 (4)", np.arange(H)),
    no_fit("mask", "(5, 8)", np.ones((5, K), bool)),
    no_fit("score", "(9, 3, 8)", zeros(9, Q, K)),
    (
        {"mask": "causal"},
        "a mask is a rule, not a name",
        "'causal'",
        "an expression, a callable, or an array",
        "write mask=regard.causal()",
    ),
    (
        {"mask": rg.documents(lengths=[3, 4]), "k": zeros(B, G, 40, D), "v": zeros(B, G, 40, E), "query_start": 0},
        "the document table covers 7 of 40 keys",
        "`document[key]` of [7]",
        "40 entries or more along that axis",
        "extend the array, or repeat its last entry explicitly: clip(key, 0, 6)",
    ),
    (
        {"mask": rg.lengths([3, 4, 5])},
        "the keys table has 3 entries for 2 batch entries",
        "`keys[batch]` of [3]",
        "2 along that axis",
        "check the array, or index it with clip(batch, …), or pass batch_start=… if these are 2 of them",
    ),
    (
        {"score": rg.alibi(3)},
        "the slope table has 3 entries for 4 heads",
        "`slope[head]` of [3]",
        "4 along that axis",
        "check the array, or index it with clip(head, …)",
    ),
    (
        {"score": rg.alibi(8), "head_start": 5},
        "the slope table has 8 entries for heads 5 … 8",
        "`slope[head]` of [8], head_start=5",
        "9 or more along that axis: those of the whole",
        "pass the table of all heads, or omit head_start to count those of this call from 0",
    ),
    (
        {"mask": rg.lengths([3, 4, 5]), "batch_start": 2},
        "the keys table has 3 entries for batch entries 2 … 3",
        "`keys[batch]` of [3], batch_start=2",
        "4 or more along that axis: those of the whole",
        "pass the table of all batch entries, or omit batch_start to count those of this call from 0",
    ),
    (
        {"head_start": 2.0},
        "head_start is not the number of a query head",
        "2.0",
        "an integer from 0 to 2147483644: the number of the first query head of this call in the whole",
        "omit it if the call holds all of them",
    ),
    (
        {"batch_start": -1},
        "batch_start is not the number of a batch entry",
        "-1",
        "an integer from 0 to 2147483646: the number of the first batch entry of this call in the whole",
        "omit it if the call holds all of them",
    ),
    (
        {"mask": np.ones((Q, K), bool), "query_start": [0, 5]},
        "a bare mask array cannot follow query_start",
        "query_start [0, 5]",
        "one start for all batch entries",
        "read it in a mask expression, as in table(array)[query - table(query_start)[batch], key]",
    ),
    (
        {"mask": score > 0},
        "a mask cannot depend on the score",
        "`score > 0`",
        "a rule over positions",
        "use score=where(condition, score, float('-inf'))",
    ),
    (
        {"mask": query - key},
        "a mask must be a condition",
        "`query - key`, which is int",
        "true where a query may attend",
        "compare it with something, or add it to the scores: score=score + (query - key)",
    ),
    (
        {"score": key <= query},
        "a score must be a number",
        "`key <= query`, which is a condition",
        "a rule that computes the new logit",
        "pass it as mask=, true where a row may attend",
    ),
    (
        {"mask": zeros(Q, K)},
        "not an array of conditions",
        "float32 [3, 8]",
        "booleans with one to four axes: …, heads, rows, keys",
        "pass score=mask, or mask=mask == 0, which skips keys: its numbers hide a key by being added to its score",
    ),
]


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: f"{refused[1]}, {refused[2]}")
def test_refusals(refused):
    """What is wrong, what was given, what is expected and how to fix it, word for word, and nothing else."""
    changed, *words = refused
    (reason,) = reasons_of(Problem.of, **{"q": q, "k": k, "v": v} | changed)
    assert [reason.what, reason.given, reason.expected, reason.fix] == words


def test_all_reasons_at_once():
    """A call with seven mistakes lists seven reasons."""
    wrong = {"mask": query, "score": key <= query, "scale": "x", "query_start": "y", "sinks": zeros(3)}
    reasons = reasons_of(Problem.of, q, k, v, **wrong, dropout=2, seed="x")

    assert [reason.what for reason in reasons] == [
        "query_start is not a position",
        "scale is not a number",
        "sinks do not fit the heads",
        "dropout is not a rate",
        "seed is not valid",
        "a mask must be a condition",
        "a score must be a number",
    ]


def test_tensors_that_cannot_be_read_are_refused():
    """Gradients, other dtypes and other devices: each tensor is named with its fault."""
    import torch

    reasons = reasons_of(
        Problem.of,
        torch.zeros(B, H, Q, D, requires_grad=True),
        torch.zeros(B, G, K, D, dtype=torch.float8_e4m3fn),
        torch.zeros(B, G, K, E, device="meta"),
    )
    assert [(reason.what, reason.given) for reason in reasons] == [
        ("q requires gradients", "q.requires_grad is True"),
        (
            "k cannot be read; the same is true of v",
            "k torch.float8_e4m3fn on cpu; v torch.float32 on meta",
        ),
    ]
    with refusing("sinks do not fit the heads"):
        Problem.of(q, k, v, sinks=torch.zeros(H, dtype=torch.float8_e4m3fn))
    assert Problem.of(q, k, v, sinks=torch.zeros(H).bfloat16()).sinks.shape == (H, 1)


UNREADABLE = {
    "ragged": [[1.0], [1.0, 2.0]],
    "masked": np.ma.masked_array(q, q == 0),
    "words": "q",
    "objects": [[object()]],
}


@by_name("given", UNREADABLE)
@pytest.mark.parametrize("name", ["q", "k", "v", "mask", "score", "sinks", "query_start"])
def test_what_is_no_array_is_refused(name, given):
    """Whatever NumPy cannot read, or would misread, is a refusal; never another error."""
    assert reasons_of(Problem.of, **{"q": q, "k": k, "v": v} | {name: given})
    assert reasons_of(rg.table, given)


def test_tensors_of_every_layout_are_read_or_refused():
    """Sparse and fake tensors cannot be read; those of a user's own class can."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    plain = torch.zeros(B, H, Q, D)
    with FakeTensorMode():
        fake = torch.zeros(B, H, Q, D)
    for tensor in (plain.to_sparse(), plain.to_mkldnn(), fake):
        assert reasons_of(Problem.of, tensor, k, v)
    with refusing("scale is not a number"):
        Problem.of(q, k, v, scale=torch.tensor(0.5, device="meta"))
    own = plain.as_subclass(type("Own", (torch.Tensor,), {}))
    assert isinstance(rg.attention(own, k, v, engine="reference"), torch.Tensor)


def test_longer_tables_and_computed_indices_fit():
    """An array may go on beyond the keys, rows beyond the keys read its end, and a computed index may clamp."""
    for rule, start in (
        (rg.documents(lengths=[3, 4, 9]), 0),
        (rg.global_tokens([1, 3]), 0),
        (rg.table([1, 0])[rg.clip(key, 0, 1)] > 0, 0),
        (rg.dense(np.ones((Q, K), bool), 0), 0),
        (rg.documents(lengths=[8]), 20),
    ):
        assert Problem.of(q, k, v, mask=rule, query_start=start).mask is rule


def test_arguments_of_the_calls():
    """rows and keys choose along one axis, engine is a name."""
    for rows in (True, [[1, 2], [0, 1]], "a", 2.5):
        with refusing("rows outside the matrix"):
            rg.attention_weights(q, k, rows=rows)
    with refusing("no such engine"):
        rg.attention(q, k, v, engine=np.array(["jit", "reference"]))


def test_gradients_are_not_lost_in_silence():
    """A table, a sink or a scale that requires gradients is rejected under autograd, because it would get none."""
    import torch

    bias, sinks = torch.zeros(K, requires_grad=True), torch.zeros(H, requires_grad=True)
    scale = torch.tensor(0.5, requires_grad=True)
    call = {"score": lambda s, b, h, q, kv: s + bias[kv], "sinks": sinks, "scale": scale}
    assert [reason.what for reason in reasons_of(Problem.of, q, k, v, **call)] == [
        "scale requires gradients",
        "sinks requires gradients",
        "table 'table' requires gradients",
    ]
    with torch.no_grad():
        assert Problem.of(q, k, v, **call).scale == 0.5
    with refusing("table 'number' requires gradients"):
        Problem.of(q, k, v, score=score * scale)


def test_frozen():
    """A problem is immutable."""
    with pytest.raises(AttributeError):
        Problem.of(q, k, v).scale = 2.0
