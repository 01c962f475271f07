"""OpenVINO on the CPU: a model of a single node, ScaledDotProductAttention of opset 13, computed in float32."""

import functools

import numpy as np
import openvino
from openvino import opset13 as op

from regard.conformance import adapter

ADAPTER = {
    "arrays": "numpy",
    "parameters": {
        "q": "query",
        "k": "key",
        "v": "value",
        "mask": "attention_mask",
        "bias": "attention_mask",
        "causal": "causal",
        "scale": "scale",
    },
    "mask_shapes": ("BHQK", "B1QK", "1HQK", "11QK", "B11K", "QK"),
    "causal": "top-left",
    "groups": "none",
    "empty_row": "nan",
    "dtypes": ("float32", "float16"),
}


@adapter(**ADAPTER)
def attention(query, key, value, attention_mask=None, scale=None, causal=False):
    arrays = [query, key, value]
    if attention_mask is not None:
        arrays.append(attention_mask)
    kinds = tuple((array.dtype.name, array.shape) for array in arrays)
    run = model(kinds, None if scale is None else float(scale), bool(causal))
    return np.array(run([np.ascontiguousarray(array) for array in arrays])[0])


@functools.lru_cache(64)
def model(kinds, scale, causal):
    """The compiled model for these inputs."""
    inputs = [op.parameter(shape, np.dtype(dtype)) for dtype, shape in kinds]
    q, k, v, *mask = inputs
    dtype = np.dtype(kinds[0][0])
    if scale is not None and not mask:  # the scale is the fifth input, so the fourth must be given
        mask = [op.constant(np.zeros((1, 1), dtype))]
    factor = [] if scale is None else [op.constant(np.array(scale, dtype))]
    out = op.scaled_dot_product_attention(q, k, v, *mask, *factor, causal=causal)
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    return openvino.Core().compile_model(openvino.Model([out], inputs), "CPU", settings)
