"""ONNX Runtime on the CPU: a model of a single node, the standard operator Attention of opset 24."""

import functools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from regard.conformance import adapter

KINDS = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}
ADAPTER = {
    "arrays": "numpy",
    "parameters": {
        "q": "Q",
        "k": "K",
        "v": "V",
        "mask": "attn_mask",
        "bias": "attn_mask",
        "causal": "is_causal",
        "lengths": "nonpad_kv_seqlen",
        "scale": "scale",
        "softcap": "softcap",
    },
    "mask_shapes": ("BHQK", "B1QK", "1HQK", "11QK", "HQK", "QK"),
    "causal": "top-left",
    "dtypes": ("float32", "float16"),
    "returns": ("out", "weights"),
}


@adapter(**ADAPTER)
def attention(Q, K, V, attn_mask=None, nonpad_kv_seqlen=None, is_causal=False, scale=None, softcap=0.0):
    given = {"Q": Q, "K": K, "V": V}
    if attn_mask is not None:
        given["attn_mask"] = attn_mask
    if nonpad_kv_seqlen is not None:
        given["nonpad_kv_seqlen"] = np.asarray(nonpad_kv_seqlen, np.int64)
    kinds = tuple((name, array.dtype.name, array.shape) for name, array in given.items())
    session = model(kinds, int(is_causal), None if scale is None else float(scale), float(softcap or 0))
    out, weights = session.run(None, {name: np.ascontiguousarray(array) for name, array in given.items()})
    return out, weights


@functools.lru_cache(64)
def model(kinds, is_causal, scale, softcap):
    """A session with one node for these inputs."""
    names = [name for name, _, _ in kinds]
    order = ["Q", "K", "V", "attn_mask", "", "", "nonpad_kv_seqlen"]
    node = helper.make_node(
        "Attention",
        [name if name in names else "" for name in order],
        ["Y", "", "", "weights"],
        is_causal=is_causal,
        softcap=softcap,
        qk_matmul_output_mode=3,
        **({} if scale is None else {"scale": scale}),
    )
    kind = KINDS[kinds[0][1]]
    graph = helper.make_graph(
        [node],
        "attention",
        [helper.make_tensor_value_info(name, KINDS[dtype], shape) for name, dtype, shape in kinds],
        [helper.make_tensor_value_info(name, kind, None) for name in ("Y", "weights")],
    )
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(built.SerializeToString(), options, ["CPUExecutionProvider"])
