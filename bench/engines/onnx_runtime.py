"""ONNX Runtime: models of a single node: the standard Attention, and two contrib operators where they apply."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from ..cases import CAP, Inputs
from ..machine import cores
from . import Form, unsupported

KINDS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "int32": TensorProto.INT32}


def forms(inputs: Inputs) -> list[Form]:
    case = inputs.case
    if case.dtype == "bfloat16":
        raise unsupported("ONNX Runtime", "bfloat16", "float32 and float16 on the CPU", "convert the model")
    if case.task == "decode":
        return [attention(inputs), decoding(inputs)]
    found = [attention(inputs)]
    if case.G == case.H and case.twist != "softcap" and case.dtype == "float32":
        found.append(multi_head(inputs))
    if case.pattern in ("causal", "window", "documents"):
        found.append(grouped_query(inputs))
    return found


def attention(inputs: Inputs) -> Form:
    """ai.onnx Attention, opset 24."""
    case = inputs.case
    causal = case.pattern == "causal" and case.twist != "alibi"
    feeds = {"q": inputs.q, "k": inputs.k, "v": inputs.v}
    if not causal and case.pattern != "full":
        feeds["mask"] = inputs.additive.astype(inputs.q.dtype)
    softcap = CAP if case.twist == "softcap" else 0.0
    return model("Attention", "", feeds, ["out"], lambda out: out, is_causal=int(causal), softcap=softcap)


def multi_head(inputs: Inputs) -> Form:
    """com.microsoft MultiHeadAttention: as many key heads as query heads."""
    case = inputs.case
    causal = case.pattern == "causal" and case.twist is None
    feeds: dict[str, Any] = {
        "q": flat(inputs.q),
        "k": flat(inputs.k),
        "v": flat(inputs.v),
        "bias": None,
        "padding": None,
    }
    if not causal and case.pattern != "full":
        feeds["mask"] = inputs.additive
    return model(
        "MultiHeadAttention",
        "com.microsoft",
        feeds,
        ["out"],
        unflat(case),
        num_heads=case.H,
        unidirectional=int(causal),
    )


def grouped_query(inputs: Inputs) -> Form:
    """com.microsoft GroupQueryAttention: always causal, with optional window, softcap and additive mask."""
    case = inputs.case
    nothing = np.zeros((case.B, case.G, 0, case.D), inputs.q.dtype)
    feeds: dict[str, Any] = {
        "q": flat(inputs.q),
        "k": flat(inputs.k),
        "v": flat(inputs.v),
        "past_k": nothing,
        "past_v": nothing,
        "last": np.full(case.B, case.Q - 1, np.int32),
        "total": np.array([case.Q], np.int32),
    }
    if case.pattern == "documents" or case.twist == "alibi":
        feeds |= {"cos": None, "sin": None, "positions": None, "mask": inputs.additive.astype(inputs.q.dtype)}
    return model(
        "GroupQueryAttention",
        "com.microsoft",
        feeds,
        ["out", "present_k", "present_v"],
        unflat(case),
        num_heads=case.H,
        kv_num_heads=case.G,
        local_window_size=case.reach if case.pattern == "window" else -1,
        softcap=CAP if case.twist == "softcap" else 0.0,
    )


def decoding(inputs: Inputs) -> Form:
    """GroupQueryAttention with all keys except the last in a buffer shared by past and present, without copies."""
    case = inputs.case
    feeds: dict[str, Any] = {
        "q": flat(inputs.q),
        "k": flat(inputs.k[:, :, -1:]),
        "v": flat(inputs.v[:, :, -1:]),
        "past_k": inputs.k,
        "past_v": inputs.v,
        "last": np.full(case.B, case.K - 1, np.int32),
        "total": np.array([case.K], np.int32),
    }
    return model(
        "GroupQueryAttention",
        "com.microsoft",
        feeds,
        ["out", "present_k", "present_v"],
        unflat(case),
        num_heads=case.H,
        kv_num_heads=case.G,
        shared={"past_k": "present_k", "past_v": "present_v"},
    )


def model(node: str, domain: str, feeds: dict[str, Any], outputs: list[str], read, shared=None, **attributes) -> Form:
    """A model of one node with bound inputs and outputs, so that a call copies nothing; None omits an input.

    shared: inputs that share their memory with an output.
    """
    shared = shared or {}
    given = {name: array for name, array in feeds.items() if array is not None}
    graph = helper.make_graph(
        [
            helper.make_node(
                node, [name if name in given else "" for name in feeds], outputs, domain=domain, **attributes
            )
        ],
        node,
        [helper.make_tensor_value_info(name, KINDS[array.dtype.name], array.shape) for name, array in given.items()],
        [helper.make_tensor_value_info(name, KINDS[feeds["q"].dtype.name], None) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    session = onnxruntime.InferenceSession(
        helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(),
        options,
        ["CPUExecutionProvider"],
    )
    binding, memory = session.io_binding(), {}
    for name, array in given.items():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
        binding.bind_ortvalue_input(name, value)
        memory[shared.get(name)] = value
    for name in outputs:
        if name in memory:
            binding.bind_ortvalue_output(name, memory[name])
        else:
            binding.bind_output(name, "cpu")
    return Form(
        node.removesuffix("Attention") or "standard",
        lambda: session.run_with_iobinding(binding),
        lambda _: (read(binding.copy_outputs_to_cpu()[0]).astype(np.float32),),
    )


def flat(array: np.ndarray) -> np.ndarray:
    """(B, heads, rows, depth) as (B, rows, heads · depth), the layout of ONNX Runtime's contrib operators."""
    B, heads, rows, depth = array.shape
    return np.ascontiguousarray(array.swapaxes(1, 2)).reshape(B, rows, heads * depth)


def unflat(case):
    """The inverse of `flat` for outputs."""
    return lambda out: out.reshape(case.B, case.Q, case.H, case.D).swapaxes(1, 2)
