"""Shows that calflops 0.3.2 (torch 2.13.0) counts no attention: twice the tokens are exactly twice the work."""

import subject
from calflops import calculate_flops
from shown import shown


def macs(tokens):
    """Multiply-adds that calflops counts."""
    given = [subject.ids(tokens)]
    options = {"print_results": False, "output_as_string": False, "forward_mode": "forward"}
    return calculate_flops(subject.model(), args=given, **options)[1]


short, long = macs(subject.TOKENS), macs(2 * subject.TOKENS)
linear, attention = subject.exact()
shown(
    "calflops torch",
    {
        f"calflops, twice, {subject.TOKENS} tokens": 2 * short,
        f"calflops, twice, {2 * subject.TOKENS} tokens": 2 * long,
        f"rg.cost, {subject.TOKENS} tokens": linear + attention,
        f"rg.cost, {2 * subject.TOKENS} tokens": sum(subject.exact(2 * subject.TOKENS)),
        f"brute force, {subject.TOKENS} tokens": sum(subject.brute()),
        f"brute force, {2 * subject.TOKENS} tokens": sum(subject.brute(2 * subject.TOKENS)),
    },
    wrong=long == 2 * short and 2 * short == linear,
    exact=subject.exact(2 * subject.TOKENS) == subject.brute(2 * subject.TOKENS),
)
