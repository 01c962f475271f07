"""What the tests of direct calls share: sizes, rules, an observer, and calls from several threads or in a child."""

import os
import threading
from contextlib import contextmanager

import regard as rg
from regard.common import call_hooks
from regard.language.checks.arguments import Arguments

NOTHING = Arguments()
SIZES = {
    "few rows": {},
    "one row": {"Q": 1, "K": 300},
    "one thread": {"B": 1, "H": 1, "G": 1, "Q": 2, "K": 2},
    "several tasks": {"B": 3, "H": 8, "Q": 70, "K": 70, "D": 32, "E": 24},
    "pieces of keys": {"B": 1, "H": 2, "G": 1, "Q": 1, "K": 5000},
}
RULES = {
    "nothing": {},
    "rules": {"mask": rg.causal() & rg.window(40), "score": rg.softcap(3.0)},
    "numbers": {"scale": 0.3, "query_start": 4, "head_start": 1},
}


@contextmanager
def watching():
    """An observer of calls that changes nothing."""
    call_hooks.watchers.append(lambda label, function, args, kwargs: function(*args, **kwargs))
    try:
        yield
    finally:
        call_hooks.watchers.pop()


def wrong_at_once(cases, same, rounds):
    """The inputs of which four threads together get something else than expected. cases: (inputs, expected)."""
    wrong = []

    def work():
        for _ in range(rounds):
            for given, expected in cases:
                if not same(rg.attention(*given), expected):
                    wrong.append(given)

    team = [threading.Thread(target=work) for _ in range(4)]
    for each in team:
        each.start()
    for each in team:
        each.join()
    return wrong


def in_a_child(check):
    """Whether a check is true in a forked process."""
    child = os.fork()
    if not child:
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
