"""Shows that accelerate 1.15.0 (torch 2.13.0) estimates training as four times the weights, whatever the tokens."""

import subject
import torch
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from shown import shown

import regard as rg

size, _ = calculate_maximum_sizes(subject.model())
estimate = max(estimate_training_usage(size, "float32").values())
memory = rg.cost(subject.config(), tokens=subject.TOKENS, phase="train").memory
static = memory.weights.value + memory.gradients + memory.optimizer

model, held = subject.model(), {}
addresses = {each.untyped_storage().data_ptr() for each in model.parameters()}


def keep(tensor):
    """Notes the memory that is kept for the backward pass, each storage one time."""
    if tensor.untyped_storage().data_ptr() not in addresses:
        held[tensor.untyped_storage().data_ptr()] = tensor
    return tensor


with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
    model(subject.ids()).logits.sum()
weight_bytes = sum(each.nbytes for each in model.parameters())
buffer_bytes = sum(each.nbytes for each in model.buffers())
brute = sum(each.untyped_storage().nbytes() for each in held.values())
shown(
    "accelerate torch",
    {
        "accelerate, training": estimate,
        "four times weights and buffers": 4 * (weight_bytes + buffer_bytes),
        "rg.cost, weights, gradients, Adam": static,
        f"rg.cost, activations, {subject.TOKENS} tokens": memory.activations.value,
        "saved tensors": brute,
    },
    wrong=estimate == 4 * (weight_bytes + buffer_bytes),
    exact=static == 4 * weight_bytes and memory.activations.value == brute,
)
