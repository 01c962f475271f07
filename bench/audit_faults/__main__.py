"""How many planted faults `audit` finds and names: of caches, of transformers' models and of attention written by hand.

`python -m bench.audit_faults`, or with the names of some of them. A third of the kinds of faults and of the hosts are
held back: no change to the audits was made for them, except that all kinds of rotary faults were known.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from regard.audits import audit

from . import blocks, decoders, layouts, of_transformers, styles, written

CHECKS = ["finite", "determinism", "future-leak", "batch-dependence", "cache", "position-offset"]
HOSTS = {
    "caches": decoders,
    "transformers": of_transformers,
    "written": written,
    "styles": styles,
    "layouts": layouts,
    "blocks": blocks,
}


def judged(where: tuple[str, str, str], fault: str | None) -> str:
    """What an audit makes of a decoder: "silent", "found", "cause" (its first finding names it), or "misleading"."""
    findings = planted_alarms(decoders, where, fault, CHECKS)
    if findings and findings[0].check != "cache":
        return "misleading"
    return _named(decoders, findings, fault)


def planted_alarms(source: Any, where: Any, fault: str | None, checks: list[str] | None = None) -> list[Any]:
    """The faults and warnings of the audit of a host."""
    torch.manual_seed(0)
    made = source.host(*where, fault) if source is decoders else source.host(where, fault)
    with made if hasattr(made, "__enter__") else contextlib.nullcontext(made) as (model, arguments):
        return [each for each in audit(model, **arguments, checks=checks).findings if each.severity != "note"]


def judged_in(source: Any, where: Any, fault: str | None) -> str:
    """What an audit makes of a fault in a host, or of the healthy host."""
    return judged(where, fault) if source is decoders else _named(source, planted_alarms(source, where, fault), fault)


def _named(source: Any, findings: list[Any], fault: str | None) -> str:
    """Whether there are findings, and the first one names the cause."""
    if not findings:
        return "silent"
    return "cause" if fault and any(word in findings[0].cause for word in source.FAULTS[fault][0]) else "found"


def evidence(source: Any, where: Any, fault: str) -> tuple[float, float]:
    """The largest number that the script of a finding prints: for the host with the fault, and for the healthy one."""
    torch.manual_seed(0)
    model, arguments = source.host(where, fault)
    script = next(each.evidence for each in audit(model, **arguments).findings if each.evidence)
    assert "regard" not in script
    printed = []
    for planted in (fault, None):
        torch.manual_seed(0)
        model, arguments = source.host(where, planted)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), torch.no_grad():
            exec(script.replace("torch.set_grad_enabled(False)", ""), {"model": model, "inputs": arguments["inputs"]})
        printed.append(max(map(float, re.findall(r"tensor\(([^,)]*)", out.getvalue()))))
    return printed[0], printed[1]


def _groups(source: Any) -> Iterator[tuple[str, list[Any], list[str]]]:
    built = [fault for fault in source.FAULTS if fault not in source.HELD_BACK]
    yield "built with", source.HOSTS, built
    yield "faults held back", source.HOSTS, source.HELD_BACK
    yield "hosts held back", source.HOSTS_HELD_BACK, built
    yield "both held back", source.HOSTS_HELD_BACK, source.HELD_BACK


def main() -> None:
    """Prints what is not named, and a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.audit_faults", description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="*", choices=[[], *HOSTS], help="which hosts; all by default")
    parser.add_argument("--built", action="store_true", help="without what is held back, while the audits are changed")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| faults | planted | found | first finding names the cause | misleading | alarms in healthy hosts |\n"
        + "|---" * 6
        + "|"
    )
    for source in chosen.sources or HOSTS:
        hosts = HOSTS[source]
        for name, places, faults in list(_groups(hosts))[: 1 if chosen.built else 4]:
            results = Counter()
            for where in places:
                results["alarms"] += judged_in(hosts, where, None) != "silent"
                for fault in faults:
                    if hosts.fits(fault, where):
                        result = judged_in(hosts, where, fault)
                        results[result] += 1
                        if result != "cause" and name == "built with":
                            print(f"{fault} in {where}: {result}", flush=True)
            planted = sum(results.values()) - results["alarms"]
            row = [planted, planted - results["silent"], results["cause"], results["misleading"], results["alarms"]]
            print(f"| {source}, {name} | {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
