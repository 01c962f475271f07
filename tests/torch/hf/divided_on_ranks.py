"""What each real process computes in test_divided.py."""

import contextlib

import torch
import torch.distributed as dist
import transformers as T
from transformers.masking_utils import causal_mask_function, sliding_window_causal_mask_function

import regard as rg
import regard.parallel as rp
from regard.torch.hf import attend, record, register
from regard.torch.hf.divided import mask_for
from tests.support.refusals import refusing

TOKENS = 700
T.logging.set_verbosity_error()


def model_of():
    """A small model with grouped key heads."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024}  # fmt: skip
    return T.LlamaForCausalLM(T.LlamaConfig(**sizes, attn_implementation="regard"))


def train(steps, alone=False, placement=None, mask=None):
    """The losses of training on random tokens, and the first numbers of a weight after it."""
    register()
    model = model_of().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    tokens, targets = torch.randint(0, 64, (2, 2, TOKENS), generator=torch.Generator().manual_seed(1))
    ranks, rank = (1, 0) if alone else (dist.get_world_size(), dist.get_rank())
    place = rp.place(TOKENS, ranks=ranks, mask=rg.causal(), among=placement)
    mine, wanted = (place.shard(each, axis=1, rank=rank) for each in (tokens, targets))
    positions = torch.from_numpy(place.positions(rank))[None]
    losses = []
    for _ in range(steps):
        with contextlib.nullcontext() if alone else rp.sequence(place, mask=mask):
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
    with contextlib.nullcontext() if alone else rp.sequence(place):
        mask = mask_for(2, n, n, mask_function=function)
        out, _ = attend(torch.nn.Module(), *leaves, mask, position_ids=positions[None])
    (out.sin() * (positions[None, :, None, None] + 1)).sum().backward()
    return positions, [out.detach().transpose(1, 2), *(each.grad for each in leaves)]


def refusals():
    """Wrong calls, which one rank makes, are refused on every rank; whether a right one after them is well."""
    register()
    rank, model = dist.get_rank(), model_of().eval()
    place = rp.place(TOKENS, ranks=dist.get_world_size(), mask=rg.causal(), among="contiguous")
    positions = torch.from_numpy(place.positions(rank))[None]
    tokens, padding = torch.zeros_like(positions), torch.ones_like(positions)
    padding[:, :3] = 0

    def call(**more):
        with rp.sequence(place), torch.no_grad():
            return model(tokens, **{"position_ids": positions, "use_cache": False, **more})

    for wording, arguments in (
        ("position_ids are not those of the tokens of this rank", {"position_ids": positions - 1}),
        ("position_ids are not those of the tokens of this rank", {"position_ids": None}),
        ("the model's mask depends on the tokens of one rank", {"position_ids": positions % 100}),
        ("padding of a divided sequence", {"attention_mask": padding}),
        ("output_attentions of a divided sequence", {"output_attentions": True}),
        ("the mask was not made for a divided sequence", {"attention_mask": torch.zeros(1, 1, *2 * tokens.shape[1:])}),
    ):
        with refusing(wording):
            call(**(arguments if rank == 1 else {}))
    kept = call(use_cache=True).past_key_values
    with refusing("a cache holds a part of a divided sequence"):
        call(past_key_values=kept)
    with refusing("the placement is for another number of ranks"), rp.sequence(rp.place(TOKENS, ranks=3)):
        pass
    with refusing("the ranks disagree about the mask"), rp.sequence(place, mask=rg.window(30 + rank)):
        pass
    with refusing("recording of a divided sequence"), record(model):
        call()
    right = bool(call().logits.isfinite().all())
    # The backward pass computes a part of the model again, outside of the sequence.
    model.train().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    with rp.sequence(place):
        loss = model(tokens, position_ids=positions, use_cache=False).logits.sum()
    with refusing("a part of a divided sequence outside rp.sequence"):
        loss.backward()
    return right


def on_two():
    """All that is tested on two ranks, in one start."""
    return {
        "llama": train(2, placement="contiguous"),
        "documents": train(1, placement="zigzag", mask=rg.documents(lengths=[300, 400])),
        "attended": attended(),
        "attended in a window": attended(150),
        "refusals": refusals(),
    }
