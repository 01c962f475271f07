"""What each real process computes in test_processes.py: text from a model whose cache is larger than a rank's share."""

import torch
import torch.distributed as dist

import regard as rg
import regard.parallel as rp
from regard.models import Config, LanguageModel, generate
from tests.support.refusals import refusal

PAGES = 8  # of 128 positions on each rank: half of what the long prompt needs
PROMPTS = [2000, 300]  # tokens
SIZES = {"heads": 2, "depth": 8, "pages": PAGES}


def model_and_prompts():
    """The same on every rank."""
    torch.manual_seed(0)
    config = Config(vocabulary=64, d_model=32, layers=2, heads=4, kv_heads=2)
    return LanguageModel(config).eval(), [torch.randint(64, (count,)).tolist() for count in PROMPTS]


def texts(tokens):
    """Greedy text of the long prompt: over ranks, in one process, and with the storage of one rank. Text of both
    prompts that is drawn, and ends early in one of them: over ranks, and in one process. What ranks with different
    seeds refuse, and with different calls. The caches of the first in words.
    """
    model, prompts = model_and_prompts()
    spread, own = (
        [kind(**SIZES, **more) for _ in range(2)] for kind, more in ((rp.KVCache, {"tokens": 2048}), (rg.KVCache, {}))
    )
    greedy = [generate(model, prompts[:1], tokens=tokens, greedy=True, cache=each) for each in (spread, None)]
    full = refusal(lambda: generate(model, prompts[:1], tokens=tokens, greedy=True, cache=own))
    free = generate(model, prompts, tokens=tokens, seed=5)
    rules = {"tokens": tokens, "seed": 5, "stop": [free[0][2:4]]}
    drawn = [generate(model, prompts, **rules, cache=each) for each in (rp.spread(model.cache(2)), None)]
    seeds = {"seed": dist.get_rank(), "cache": rp.spread(model.cache(2))}
    differ = refusal(lambda: generate(model, prompts, tokens=tokens, **seeds))
    one = spread[0]
    methods = refusal(lambda: one.add(1) if dist.get_rank() else one.drop(0))
    return greedy, full, drawn, differ, methods, [repr(each) for each in spread]
