"""What each real process computes in test_divided.py."""

import pytest
import torch
import torch.distributed as dist
import transformers as T
from transformers.masking_utils import causal_mask_function, sliding_window_causal_mask_function

import regard as rg
import regard.parallel as rp
from regard.torch.hf import attend, record, register
from regard.torch.hf.divided import mask_for

__all__ = ["TOKENS", "attended", "on_two", "refusals", "train"]

TOKENS = 700
T.logging.set_verbosity_error()


def model_of(kind="llama"):
    """A small model with grouped key heads; "mistral" has a window."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024}  # fmt: skip
    if kind == "mistral":
        return T.MistralForCausalLM(T.MistralConfig(**sizes, sliding_window=150, attn_implementation="regard"))
    return T.LlamaForCausalLM(T.LlamaConfig(**sizes, attn_implementation="regard"))


def train(steps, kind="llama", alone=False, placement=None, mask=None):
    """The losses of training on random tokens, and the first numbers of a weight after it."""
    register()
    model = model_of(kind).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    tokens, targets = torch.randint(0, 64, (2, 2, TOKENS), generator=torch.Generator().manual_seed(1))
    ranks, rank = (1, 0) if alone else (dist.get_world_size(), dist.get_rank())
    place = rp.place(TOKENS, ranks=ranks, mask=rg.causal(), among=placement)
    mine, wanted = (place.shard(each, axis=1, rank=rank) for each in (tokens, targets))
    losses = []
    for _ in range(steps):
        if alone:
            logits = model(mine, use_cache=False).logits
        else:
            positions = torch.from_numpy(place.positions(rank))[None]
            with rp.sequence(place, mask=mask):
                logits = model(mine, position_ids=positions, use_cache=False).logits
        total = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum")
        loss = total / targets.numel()
        loss.backward()
        summed = loss.detach().clone()
        if not alone:
            rp.sum_over_ranks([summed, *(each.grad for each in model.parameters())])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(summed))
    return losses, next(model.parameters()).flatten()[:50].tolist()


def attended(window=None, alone=False):
    """(out, gradients of q, k and v) of a call of attention, with the mask that transformers builds, for the tokens of
    this rank; their positions.
    """
    torch.manual_seed(2)
    q, k, v = torch.randn(2, 4, TOKENS, 8), *torch.randn(2, 2, 2, TOKENS, 8)
    place = rp.place(TOKENS, ranks=1 if alone else dist.get_world_size(), mask=rg.causal(), among="zigzag")
    positions = torch.from_numpy(place.positions(0 if alone else dist.get_rank()))
    leaves = [each[:, :, positions].requires_grad_() for each in (q, k, v)]
    function = causal_mask_function if window is None else sliding_window_causal_mask_function(window)
    n = len(positions)
    module = torch.nn.Module()
    if alone:
        out, _ = attend(module, *leaves, mask_for(2, n, n, mask_function=function))
    else:
        with rp.sequence(place):
            mask = mask_for(2, n, n, mask_function=function)
            out, _ = attend(module, *leaves, mask, position_ids=positions[None])
    (out.sin() * (positions[None, :, None, None] + 1)).sum().backward()
    return positions, [out.detach().transpose(1, 2), *(each.grad for each in leaves)]


def refusals():
    """The error of each wrong call, which one rank makes; then a right one."""
    register()
    rank, model = dist.get_rank(), model_of().eval()
    place = rp.place(TOKENS, ranks=dist.get_world_size(), mask=rg.causal(), among="contiguous")
    positions = torch.from_numpy(place.positions(rank))[None]
    tokens, padding = torch.zeros_like(positions), torch.ones_like(positions)
    padding[:, :3] = 0
    found = {}

    def call(**more):
        with rp.sequence(place), torch.no_grad():
            return model(tokens, **{"position_ids": positions, "use_cache": False, **more})

    for name, arguments in {
        "positions": {"position_ids": positions - 1},
        "no positions": {"position_ids": None},
        "packed": {"position_ids": positions % 100},
        "padding": {"attention_mask": padding},
        "weights": {"output_attentions": True},
        "finished mask": {"attention_mask": torch.zeros(1, 1, *tokens.shape[1:], tokens.shape[1])},
    }.items():
        found[name] = text_of(lambda arguments=arguments: call(**(arguments if rank == 1 else {})))
    kept = call(use_cache=True).past_key_values
    found["cache"] = text_of(lambda: call(past_key_values=kept))
    found["placement"] = text_of(lambda: rp.sequence(rp.place(TOKENS, ranks=3)).__enter__())
    found["mask"] = text_of(lambda: rp.sequence(place, mask=rg.window(30 + rank)).__enter__())
    found["recording"] = text_of(lambda: recorded(model, call))
    found["recomputed outside"] = text_of(lambda: checkpointed(place, tokens, positions))
    return found, bool(call().logits.isfinite().all())


def recorded(model, call):
    """A call that is recorded."""
    with record(model):
        call()


def checkpointed(place, tokens, positions):
    """A step whose backward pass computes the model again, outside of the sequence."""
    model = model_of().train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    with rp.sequence(place):
        loss = model(tokens, position_ids=positions, use_cache=False).logits.sum()
    loss.backward()


def text_of(call):
    """The text of the refusal that a call ends with."""
    with pytest.raises(rg.Refused) as caught:
        call()
    return str(caught.value)


def on_two():
    """All that is tested on two ranks, in one start."""
    return {
        "llama": train(2, placement="contiguous"),
        "mistral": train(2, "mistral", placement="zigzag"),
        "documents": train(1, placement="zigzag", mask=rg.documents(lengths=[300, 400])),
        "attended": attended(),
        "attended in a window": attended(150),
        "refusals": refusals(),
    }
