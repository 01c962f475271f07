"""Recorded runs, made by hand or checked: what the tests of audits share."""

from types import SimpleNamespace

import numpy as np
import torch

from regard.audits.checks import RunCheck, selected
from regard.audits.checks import names as names_of_checks
from regard.audits.finding import Finding
from regard.audits.run_checks.audited_run import AuditedRun
from regard.lens import Axis, Call, Run
from regard.lens.runs.figures import measured


def call_of(
    q, k, v, out, *, name="attention", layer=0, mask=None, score=None, scale=None, start=None, sinks=None, **more
):
    """A call as a recording keeps it, from one batch entry's arrays and the rules that it was told."""
    (H, Q, D), K = q.shape, k.shape[1]
    rules = {
        "mask": mask,
        "score": score,
        "scale": D**-0.5 if scale is None else scale,
        "start": K - Q if start is None else start,
    }
    sinks = None if sinks is None else np.asarray(sinks).reshape(H, -1)
    found = measured(q, k, np.zeros(K, bool), **rules, sinks=sinks)
    return Call(name, layer, f"{Q}", f"{K}", q=q, k=k, **rules, sinks=sinks, v=v, out=out, **found, **more)


def run_of(*calls):
    """A run of these calls, on axes of plain positions."""
    sizes = {size for call in calls for size in call.shape[1:]}
    return Run("planted", "", {f"{size}": Axis.of(size) for size in sizes}, calls)


def checks(run, module=None, names=None):
    """What the checks of a run say about it: all of them, or those named."""
    chosen = selected(RunCheck, names_of_checks() if names is None else names)
    audited = AuditedRun(run, SimpleNamespace(model=module))
    return (result for check in chosen for result in check.judge(audited))


def alarms(results):
    """Faults and warnings."""
    return [found for found in results if isinstance(found, Finding) and found.severity != "note"]


def alarms_of(*arrays, **rules):
    """The alarms of a run of this one call."""
    return alarms(checks(run_of(call_of(*arrays, **rules))))


def shifted(allowed, by):
    """Causal, with `by` keys more on the right."""
    return torch.arange(allowed.shape[-1]) <= torch.arange(allowed.shape[-2])[:, None] + by


def softmax(scores, axis=-1):
    weights = np.exp(scores - scores.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


CAUSAL = np.tri(24, dtype=bool)


def sdpa(q, k, v, **rules):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, **rules)
