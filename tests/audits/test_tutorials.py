"""Attention as tutorials write it: however the scale is called and applied, a healthy module is silent, and a wrong
scale is found with advice that mends it.
"""

import math

import pytest
import torch
from torch import nn

import regard as rg
from tests.support.runs import sdpa

WIDTH, HEADS = 64, 4
DEPTH = WIDTH // HEADS
ROOT = math.sqrt(DEPTH)


class Module(nn.Module):
    """Three projections and a mask; `scale` or another attribute is set by each tutorial."""

    def __init__(self, **attributes):
        super().__init__()
        self.to_q, self.to_k, self.to_v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        for name, value in attributes.items():
            setattr(self, name, value)

    def heads(self, x):
        return tuple(
            part(x).view(len(x), -1, HEADS, DEPTH).transpose(1, 2) for part in (self.to_q, self.to_k, self.to_v)
        )

    def forward(self, x):
        q, k, v = self.heads(x)
        mask = torch.ones(x.shape[1], x.shape[1]).tril()
        return self.attend(q, k, v, mask).transpose(1, 2).flatten(2)


class Annotated(Module):
    """scores / math.sqrt(d_k), masked_fill(mask == 0, -1e9)."""

    def attend(self, q, k, v, mask):
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        return torch.matmul(scores.masked_fill(mask == 0, -1e9).softmax(dim=-1), v)


class Divided(Module):
    """energy / self.scale, with a number or a tensor."""

    def attend(self, q, k, v, mask):
        energy = torch.matmul(q, k.permute(0, 1, 3, 2)) / self.scale
        return torch.matmul(torch.softmax(energy.masked_fill(mask == 0, -1e10), dim=-1), v)


class Multiplied(Module):
    """einsum · self.scale."""

    def attend(self, q, k, v, mask):
        dots = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale
        dots = dots.masked_fill(mask == 0, -torch.finfo(dots.dtype).max)
        return torch.einsum("bhij,bhjd->bhid", dots.softmax(dim=-1), v)


class MinGPT(Module):
    """A factor of 1.0 / √d, and a buffer of ones."""

    def attend(self, q, k, v, mask):
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        return nn.functional.softmax(att.masked_fill(mask == 0, float("-inf")), dim=-1) @ v


class NanoGPT(Module):
    """scaled_dot_product_attention."""

    def attend(self, q, k, v, mask):
        return sdpa(q, k, v, is_causal=True)


class Tempered(Module):
    """q / temperature before the product."""

    def attend(self, q, k, v, mask):
        attn = torch.matmul(q / self.temperature, k.transpose(2, 3))
        return torch.matmul(nn.functional.softmax(attn.masked_fill(mask == 0, -1e9), dim=-1), v)


class Learned(Module):
    """Normalized q and k, divided by a learned temperature."""

    def attend(self, q, k, v, mask):
        q, k = nn.functional.normalize(q, dim=-1), nn.functional.normalize(k, dim=-1)
        attn = (q @ k.transpose(-2, -1)) / self.scale
        return attn.masked_fill(mask == 0, -1e9).softmax(-1) @ v


class Prescaled(Module):
    """q · self.scale before the product."""

    def attend(self, q, k, v, mask):
        q = q * self.scale
        return (q @ k.transpose(-2, -1)).masked_fill(mask == 0, float("-inf")).softmax(-1) @ v


class Aside(Module):
    """An attribute called scale or scaling that has nothing to do with q·k, such as that of LoRA."""

    def attend(self, q, k, v, mask):
        att = (q @ k.transpose(-2, -1)) / math.sqrt(DEPTH)
        return self.scaling * (att.masked_fill(mask == 0, float("-inf")).softmax(-1) @ v)


HEALTHY = {
    "annotated transformer": lambda: Annotated(),
    "divisor": lambda: Divided(scale=ROOT),
    "divisor that is a tensor": lambda: Divided(scale=torch.sqrt(torch.FloatTensor([DEPTH]))),
    "divisor in a module with a configuration": lambda: Divided(scale=ROOT, config={"heads": HEADS}),
    "factor": lambda: Multiplied(scale=DEPTH**-0.5),
    "factor that is a tensor": lambda: Multiplied(scale=torch.tensor(DEPTH**-0.5)),
    "minGPT": lambda: MinGPT(),
    "nanoGPT": lambda: NanoGPT(),
    "temperature": lambda: Tempered(temperature=DEPTH**0.5),
    "learned temperature": lambda: Learned(scale=nn.Parameter(torch.tensor(0.07))),
    "small divisor of normalized vectors": lambda: Learned(scale=0.07),
    "learned divisor": lambda: Divided(scale=nn.Parameter(torch.tensor(0.9 * ROOT))),
    "q scaled": lambda: Prescaled(scale=DEPTH**-0.5),
    "q divided": lambda: Tempered(temperature=ROOT, scale=ROOT),
    "the scale of something else": lambda: Aside(scaling=2.0),
    "a divisor of all features": lambda: Divided(scale=math.sqrt(WIDTH + 36)),
}
WRONG = {
    "multiplied by the divisor": (lambda: Multiplied(scale=ROOT), "inverted"),
    "divided by the factor": (lambda: Divided(scale=DEPTH**-0.5), "inverted"),
    "divided by d": (lambda: Divided(scale=float(DEPTH)), "1/D instead of 1/√D"),
    "divided by d as a tensor": (lambda: Divided(scale=torch.tensor(float(DEPTH))), "1/D instead of 1/√D"),
    "multiplied by 1/d": (lambda: Multiplied(scale=1 / DEPTH), "1/D instead of 1/√D"),
    "not scaled": (lambda: Divided(scale=1.0), "missing"),
    "not scaled, a tensor": (lambda: Divided(scale=torch.ones(1)), "missing"),
    "half": (lambda: Divided(scale=2 * ROOT), "halved"),
}


class Unused(Module):
    """A declared √d that the scores do not see, or see `times` times."""

    def attend(self, q, k, v, mask):
        att = q @ k.transpose(-2, -1)
        for _ in range(self.times):
            att = att / self.scale
        return att.masked_fill(mask == 0, float("-inf")).softmax(-1) @ v


WRONG |= {
    "a divisor that is not used": (lambda: Unused(scale=ROOT, times=0), "missing"),
    "a divisor that is used twice": (lambda: Unused(scale=ROOT, times=2), "twice"),
    "a factor that is not used": (lambda: Unused(scale=DEPTH**-0.5, times=0), "missing"),
}


def audited(make):
    torch.manual_seed(0)
    module = make().eval()
    return rg.audit(module, inputs=torch.randn(1, 24, WIDTH), checks=["scale"])


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_module_is_silent(name):
    """No finding about the scale, whatever its attribute is called and however it is applied."""
    found = audited(HEALTHY[name])

    assert found.findings == (), str(found)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_scale_is_found_and_the_advice_is_right(name):
    """The finding names the mistake, and says to multiply q·k by 1/√d."""
    make, words = WRONG[name]
    (found,) = audited(make).findings

    assert found.check == "scale" and found.severity in ("fault", "warning"), str(found)
    assert words in found.cause and found.fix.startswith(f"multiply q·k by {DEPTH**-0.5:.6g}, once"), str(found)
