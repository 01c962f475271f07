"""OpenVINO: ScaledDotProductAttention, or a graph of basic operators for softcap, compiled for low latency."""

from __future__ import annotations

import numpy as np
import openvino
from openvino import opset13 as op

from ..cases import CAP, Inputs
from ..machine import cores
from . import Form

# The type of the arrays and the internal precision; the CPU plugin has no internal float16 and would use bfloat16.
KINDS = {
    "float32": (openvino.Type.f32, "f32"),
    "float16": (openvino.Type.f16, "f32"),
    "bfloat16": (openvino.Type.bf16, "bf16"),
}


def forms(inputs: Inputs) -> list[Form]:
    case = inputs.case
    causal = case.pattern == "causal" and case.twist is None
    arrays = [inputs.q, inputs.k, inputs.v]
    if not causal and case.pattern != "full":
        arrays.append(inputs.additive.astype(inputs.q.dtype, copy=False))
    kind, hint = KINDS[case.dtype]
    parameters = [op.parameter(array.shape, kind) for array in arrays]
    q, k, v, *mask = parameters
    if case.G != case.H:
        k, v = repeated(k, case), repeated(v, case)
    if case.twist == "softcap":
        s = op.matmul(q, k, False, True)
        s = op.multiply(op.tanh(op.multiply(s, number(case.D**-0.5 / CAP))), number(CAP))
        out, label = op.matmul(op.softmax(op.add(s, *mask), -1), v, False, False), "graph"
    else:
        out, label = op.scaled_dot_product_attention(q, k, v, *mask, causal=causal), "dense mask" if mask else ""
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": cores()}
    request = openvino.Core().compile_model(openvino.Model([out], parameters), "CPU", settings).create_infer_request()
    for place, array in enumerate(arrays):
        bits = array.view(np.int16) if case.dtype == "bfloat16" else array  # OpenVINO does not support NumPy's bfloat16
        request.set_input_tensor(place, openvino.Tensor(bits, array.shape, kind))

    def run(held=arrays):  # a tensor shares the memory of its array, but does not keep it alive
        request.infer()
        return request.get_output_tensor(0)

    return [Form(label, run, lambda tensor: (tensor.data.view(inputs.q.dtype).astype(np.float32),))]


def repeated(node, case):
    """(B, G, K, D) as (B, H, K, D) inside the graph: the operator does not support grouped heads."""
    wide = op.broadcast(
        op.unsqueeze(node, op.constant(2)), op.constant([case.B, case.G, case.H // case.G, case.K, case.D])
    )
    return op.reshape(wide, op.constant([case.B, case.H, case.K, case.D]), False)


def number(value: float):
    return op.constant(np.float32(value))
