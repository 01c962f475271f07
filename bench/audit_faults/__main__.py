"""How many planted faults of key/value caches `audit` finds and names: `python -m bench.audit_faults`.

A third of the faults and half of the hosts are held back: no change to the audits was made for them.
"""

from __future__ import annotations

import argparse
from collections import Counter

import torch

from regard.audits import audit

from .decoders import FAULTS, HELD_BACK, HOSTS, HOSTS_HELD_BACK, fits, host

CHECKS = ["finite", "determinism", "future-leak", "batch-dependence", "cache", "position-offset"]


def judged(where: tuple[str, str, str], fault: str | None) -> str:
    """What an audit makes of a host: "silent", "found", "cause" (its first finding names it), or "misleading"."""
    torch.manual_seed(0)
    model, arguments = host(*where, fault)
    findings = [each for each in audit(model, **arguments, checks=CHECKS).findings if each.severity != "note"]
    if not findings:
        return "silent"
    if findings[0].check != "cache":
        return "misleading"
    return "cause" if fault and any(word in findings[0].cause for word in FAULTS[fault][0]) else "found"


def main() -> None:
    """Prints what is not named, and a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.audit_faults", description=__doc__.split("\n")[0])
    parser.parse_args()
    torch.set_num_threads(1)
    built = [fault for fault in FAULTS if fault not in HELD_BACK]
    groups = {
        "built with": (HOSTS, built),
        "faults held back": (HOSTS, HELD_BACK),
        "hosts held back": (HOSTS_HELD_BACK, built),
        "both held back": (HOSTS_HELD_BACK, HELD_BACK),
    }
    print(
        "| faults | planted | found | first finding names the cause | misleading | alarms in healthy hosts |\n"
        + "|---" * 6
        + "|"
    )
    for name, (hosts, faults) in groups.items():
        results = Counter()
        for where in hosts:
            results["alarms"] += judged(where, None) != "silent"
            for fault in faults:
                if fits(fault, where):
                    result = judged(where, fault)
                    results[result] += 1
                    if result != "cause":
                        print(f"{fault} in {where}: {result}", flush=True)
        planted = sum(results.values()) - results["alarms"]
        row = [planted, planted - results["silent"], results["cause"], results["misleading"], results["alarms"]]
        print(f"| {name} | {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
