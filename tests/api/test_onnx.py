"""torch.onnx.export writes attention as the standard operator Attention, and says what the operator cannot express."""

import warnings

import onnxruntime as runtime
import onnxscript  # noqa: F401, without which all is skipped
import pytest
import torch

import regard as rg
import regard.torch as rt
from tests.support.refusals import refusing
from tests.support.tensors import Wrapped, qkv

B, H, D = 2, 4, 8
SLOPES, SINKS, DISTANCES = torch.rand(H), torch.randn(H, 2), torch.randn(H, 33)
DOCUMENTS = torch.arange(40) // 4
OPEN = torch.export.Dim.DYNAMIC
NEVER = -float("inf")

# Each rule gets ids (B, K), the documents, a tensor of the program.
RULES = {
    "plain": lambda ids: {},
    "scale below 0": lambda ids: {"scale": -0.4},
    "scale 0": lambda ids: {"scale": 0.0},
    "alibi": lambda ids: {"mask": rg.window(3), "score": rg.alibi(SLOPES)},
    "softcap": lambda ids: {"mask": rg.causal(), "score": rg.softcap(1.5), "scale": 0.7},
    "capped, then biased": lambda ids: {"score": rg.alibi(SLOPES, 2 * rg.softcap(1.5))},
    "captured": lambda ids: {"mask": rg.documents(DOCUMENTS) & rg.causal()},
    "documents": lambda ids: {"mask": rg.documents(ids)},
    "padding": lambda ids: {"mask": rg.padding(ids > 0)},
    "tokenizer's padding": lambda ids: {"mask": rg.padding((ids > 0).long())},
    "lengths": lambda ids: {"mask": rg.lengths(ids.sum(1) % 5 + 1)},
    "callables": lambda ids: {
        "mask": lambda b, h, i, j: ids[b, i] >= ids[b, j],
        "score": lambda s, b, h, i, j: s / 3 - SLOPES[h] * ids[b, j],
    },
    "counted from the end": lambda ids: {
        "mask": lambda b, h, i, j: (ids[b, i] >= ids[b, j - 2]) | torch.isin(j, torch.tensor([1, 3])),
        "score": lambda s, b, h, i, j: s + DISTANCES[h, i - j],
    },
    "booleans": lambda ids: {"mask": (ids > 0)[:, None, None]},
    "numbers": lambda ids: {"score": ids[:, None, None].sin()},
    "relative": lambda ids: {"score": rg.relative(DISTANCES)},
    "masked by the score": lambda ids: {
        "score": rg.where(rg.key <= rg.query, -rg.score, NEVER) + rg.where(rg.key > 0, 0.0, 1.0)
    },
    "sinks": lambda ids: {"sinks": SINKS},
    "sinks of masked rows": lambda ids: {"mask": rg.key < rg.query - 5, "sinks": SINKS[:, 0]},
    "rows without keys": lambda ids: {"mask": rg.key < rg.query - 5, "score": rg.alibi(H)},
    "a start": lambda ids: {"mask": rg.causal(), "query_start": 1},
    "starts": lambda ids: {"mask": rg.causal(), "query_start": ids[:, 1]},
    "a part of a call": lambda ids: {"score": rg.score - rg.head * rg.key, "head_start": 3},
}


def attended(rules):
    """The call with these rules."""
    return lambda q, k, v, ids: rg.attention(q, k, v, **rules(ids))


CALLS = {name: attended(rules) for name, rules in RULES.items()} | {
    "no batch": lambda q, k, v, ids: rg.attention(q[0], k[0], v[0], mask=rg.causal()),
    "square": lambda q, k, v, ids: rg.attention(k, k, v, mask=rg.causal()),
    "sizes": lambda q, k, v, ids: rg.attention(q, k, v, mask=rg.window(k.shape[2] // 2)),
    "a layer": lambda q, k, v, ids: LAYER(q[:, 0], mask=rg.documents(ids[:, : q.shape[2]])),
}
LAYER = rt.Attention(D, heads=H).eval()


def model(*calls):
    """All calls in one model, because an export takes seconds."""
    return Wrapped(lambda *given: [call(*given) for call in calls])


def given(Q: int, K: int, seed: int = 0):
    return *qkv(Q=Q, K=K, D=D, E=3, seed=seed), torch.arange(K).expand(B, K) // torch.tensor([[4], [3]])


def exported(module, *inputs, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.onnx.export(
            module.eval(), inputs, dynamo=True, opset_version=23, optimize=False, verbose=False, **options
        )


def computed(program, *inputs):
    session = runtime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {one.name: tensor.numpy() for one, tensor in zip(session.get_inputs(), inputs)})


@torch.no_grad()
def test_the_exported_operator_computes_attention():
    """Every mask and score that the operator can express, in ONNX Runtime, at other lengths than the recorded ones."""
    rows, keys = {2: OPEN}, {2: OPEN}
    program = exported(model(*CALLS.values()), *given(5, 9), dynamic_shapes=((rows, keys, keys, {1: OPEN}),))
    nodes = [node for node in program.model_proto.graph.node if node.op_type == "Attention"]

    assert len(nodes) == len(CALLS) and {node.domain for node in program.model_proto.graph.node} == {""}
    for sizes in ((7, 20), (7, 7)):
        inputs = given(*sizes, seed=1)
        for (name, call), found in zip(CALLS.items(), computed(program, *inputs), strict=True):
            torch.testing.assert_close(torch.from_numpy(found), call(*inputs), rtol=1e-5, atol=2e-6, msg=name)


REFUSED = {
    "cannot compute this score": attended(lambda ids: {"score": rg.score**2}),
    "score [*] tensor": attended(lambda ids: {"score": rg.gate(ids[:, None, None].float())}),
    "has no lse.*has no dropout.*engine='jit'": lambda q, k, v, ids: rg.attention_with_lse(
        q, k, v, dropout=0.1, seed=1, engine="jit"
    ),
    "needs the numbers of a tensor": attended(lambda ids: {"mask": rg.global_tokens(ids[0])}),
    "not a mask": attended(lambda ids: {"mask": ids.float()[:, None, None]}),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_the_operator_cannot_express(words):
    """The exporter raises an error that names it."""
    with pytest.raises(Exception) as raised:
        exported(model(REFUSED[words]), *given(5, 9))
    refused = raised.value.__cause__

    with refusing(words):
        raise refused


@torch.no_grad()
def test_a_model_of_transformers():
    """Padding and a learned bias become the operator's mask; the model itself cannot be exported on torch's SDPA."""
    import transformers

    from regard.torch.hf import register

    register()
    config = transformers.T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=4, vocab_size=20)
    model = transformers.T5EncoderModel(config).eval()
    model.set_attn_implementation("regard")
    ids = torch.arange(14).reshape(2, 7) + 3
    real = torch.ones_like(ids)
    real[0, 5:] = 0
    shapes = {"input_ids": {1: OPEN}, "attention_mask": {1: OPEN}}
    program = exported(model, kwargs={"input_ids": ids, "attention_mask": real}, dynamic_shapes=shapes)
    longer = torch.cat([ids, ids], 1), torch.cat([real, real], 1)

    (found,) = computed(program, *longer)
    expected = model(*longer).last_hidden_state
    torch.testing.assert_close(torch.from_numpy(found)[longer[1] > 0], expected[longer[1] > 0], rtol=1e-4, atol=1e-5)
