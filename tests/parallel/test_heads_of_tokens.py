"""Ranks that divide the heads of tokens, alone and on a mesh of rows × heads: the bits of one process."""

import numpy as np
import pytest

import regard as rg
import regard.parallel as rp
from regard.common.errors import Refused
from regard.language.checks.arguments import Arguments
from regard.parallel.context.attention import over_heads
from regard.parallel.exchange.alone import Alone
from tests.parallel.ranks import on_mesh, on_ranks

torch = pytest.importorskip("torch")


def call(transport, others, tensors, place, rules):
    """out, lse and gradients of this rank's tokens."""
    q, k, v, dout = (
        place.shard(each, axis=1, rank=transport.rank, part=others.rank, parts=others.ranks) for each in tensors
    )
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    sinks = None if rules.sinks is None else rules.sinks.detach().clone().requires_grad_()
    out, lse = over_heads(transport, others, tuple(leaves), place, rules._replace(sinks=sinks))
    (out * dout).sum().backward()
    return out.detach(), lse.detach(), *(each.grad for each in leaves), None if sinks is None else sinks.grad


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("rows", "heads"), [(1, 2), (1, 3), (2, 2), (3, 1)])
def test_the_bits_of_one_process(rows, heads):
    """Uneven groups (five over two or three ranks), documents, scores by head, dropout and sinks."""
    torch.manual_seed(0)
    q, dout = torch.randn(2, 10, 1500, 16)
    k, v = torch.randn(2, 5, 1500, 16)
    mask = rg.causal() & rg.documents(lengths=[600, 900])
    sinks = torch.linspace(-1, 1, 10)
    rules = Arguments(mask, rg.alibi(10), sinks=sinks, dropout=0.1, seed=4)
    leaves = [each.clone().requires_grad_() for each in (q, k, v, sinks)]
    given = {name: value for name, value in rules._replace(sinks=leaves[3])._asdict().items() if name != "query_start"}
    out, lse = rg.attention_with_lse(*leaves[:3], **given)
    (out * dout).sum().backward()
    expected = [out.detach(), lse.detach(), *(each.grad for each in leaves[:3])]
    place = rp.place(1500, ranks=rows, mask=mask, among=("zigzag",))
    found = on_mesh(rows, heads, lambda *both: call(*both, (q, k, v, dout), place, rules))
    for (row, part), (*arrays, dsinks) in found.items():
        for name, one, other in zip(("out", "lse", "dq", "dk", "dv"), arrays, expected, strict=True):
            mine = place.shard(other, axis=1, rank=row, part=part, parts=heads)
            assert torch.equal(one, mine), (row, part, name)
        assert torch.equal(dsinks, leaves[3].grad)


def test_more_ranks_than_key_heads():
    """A key head goes to two ranks, and its gradient is the sum of theirs: equal to a rounding."""
    torch.manual_seed(1)
    q, dout = torch.randn(2, 4, 700, 8)
    k, v = torch.randn(2, 1, 700, 8)
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    out = rg.attention(*leaves, mask=rg.causal())
    (out * dout).sum().backward()
    place = rp.place(700, ranks=1, mask=rg.causal())
    rules = Arguments(rg.causal())
    found = on_ranks(3, lambda others: call(Alone(), others, (q, k, v, dout), place, rules))
    for part, (one, _, *gradients, _) in enumerate(found):
        mine = [
            place.shard(each, axis=1, rank=0, part=part, parts=3) for each in (out.detach(), *(x.grad for x in leaves))
        ]
        assert torch.equal(one, mine[0]) and torch.equal(gradients[0], mine[1])
        for a, b in zip(gradients[1:], mine[2:], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_refused_on_all():
    """Too many ranks, other tokens, and tables that are learned."""
    place = rp.place(600, ranks=1)
    table = torch.zeros(4, requires_grad=True)

    def work(others):
        q = torch.zeros(2, 200, 8)
        with pytest.raises(Refused, match="more ranks than query heads"):
            over_heads(Alone(), others, (q, q, q), place, Arguments())
        with pytest.raises(Refused, match="does not have the tokens of this rank"):
            over_heads(Alone(), others, (torch.zeros(3, 200 - others.rank, 8),) * 3, place, Arguments())
        four = torch.zeros(4, 200, 8, requires_grad=True)
        with pytest.raises(Refused, match="tables are not learned where ranks divide the heads"):
            over_heads(Alone(), others, (four,) * 3, place, Arguments(score=rg.score + rg.table(table)[rg.head]))

    on_ranks(3, work)
    assert np.isfinite(table.detach().numpy()).all()
