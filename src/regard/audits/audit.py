"""`audit` runs every check that applies to a model or a recorded run, and returns an `Audit` with the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.errors import Reason, Refused, refuse
from ..common.module_settings import is_transformers_model
from ..common.optional import requires_extra
from ..common.text.keywords import known_keywords
from ..common.text.terminal_text import printable
from ..common.text.units import counted
from ..lens import Call, Run
from ..lens.look import look
from ..lens.storage.reader import is_run
from .checks import ModelCheck, RunCheck, chosen_names, selected
from .finding import SEVERITIES, Finding, NotApplicable, Passed, Result, Skipped, found
from .run_checks.audited_run import AuditedRun
from .subject import BY_CALLER, Raised, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from transformers import PreTrainedTokenizerBase


@printable
@dataclass(frozen=True)
class Audit:
    """The results of an audit. `print` shows them as text.

    Args:
        model: name of the model or of the run.
        findings: the problems, sorted by severity, faults first.
        passed: the checks that ran and detected nothing, each with what it measured.
        skipped: the checks that did not apply, each with the reason.

    Examples:
        >>> import numpy as np, regard as rg
        >>> q, k = np.random.default_rng(0).standard_normal((2, 2, 9, 8))
        >>> result = rg.audit(rg.look(q, k=k, mask=rg.causal()), checks=["numbers"])
        >>> result.healthy, result.passed[0].check
        (True, 'numbers')
    """

    model: str
    findings: tuple[Finding, ...]
    passed: tuple[Passed, ...]
    skipped: tuple[Skipped, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is neither a fault nor a warning."""
        return all(finding.severity == "note" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The results as plain data.

        Returns:
            A dict that `json.dumps` accepts: model, healthy, findings, passed, skipped.

        Examples:
            >>> from regard.audits import Audit
            >>> Audit("model", (), (), ()).to_json()
            {'model': 'model', 'healthy': True, 'findings': [], 'passed': [], 'skipped': []}
        """
        return {
            "model": self.model,
            "healthy": self.healthy,
            "findings": [finding.to_json() for finding in self.findings],
            "passed": [dict(vars(each)) for each in self.passed],
            "skipped": [dict(vars(each)) for each in self.skipped],
        }

    def __str__(self) -> str:
        counts = Counter(finding.severity for finding in self.findings)
        shown = ", ".join(counted(counts[name], name) for name in SEVERITIES if counts[name])
        lines = [f"{self.model}: {shown or 'healthy'}"]
        lines += [f"  follows   {each.title}: {each.measured}" if each.follows else str(each) for each in self.findings]
        lines += [f"passed: {each.check}: {each.measured}" for each in self.passed]
        lines += [f"did not apply: {each.check}: {each.reason}" for each in self.skipped]
        return "\n".join(lines)


# The checks that see what goes wrong, but not where: a finding that names the mistake in a call comes before theirs.
NUMBERS = ("implementation-difference", "cache", "output")
# These mix positions, entries or padding.
MIXES = ("mask", "alignment", "empty-rows", "softmax", "weights", "projections")
SYMPTOMS = ("future-leak", "padding-leak", "batch-dependence", *NUMBERS)


@requires_extra("audit", "look")
@known_keywords
def audit(
    what: torch.nn.Module | Callable[..., Any] | Run | str | Path | None = None,
    text: str | None = None,
    *,
    inputs: torch.Tensor | Sequence[torch.Tensor] | Mapping[str, Any] | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    causal: bool | None = None,
    checks: Iterable[str] | None = None,
) -> Audit:
    """Checks the attention of a model or of a recorded run for faults.

    A model runs fifty to ninety times, in evaluation mode and without gradients, with the inputs changed between runs.
    A difference between two runs is a fault if it exceeds 8 times the measured effect of rounding. The model, inputs
    and random state of the caller are left unchanged. docs/reference/checks.md describes every check.

    Args:
        what: a transformers model or the name of one (a folder or a hub id; None: MiniLM); any torch module or function
            of tensors; a `Run` or the folder of one. A model that is loaded by name runs in float32, with SDPA where
            the architecture supports it; a loaded model runs unchanged.
        text: the text to run a transformers model on. None: `inputs`, or random tokens.
        inputs: the arguments of the model's forward, one batch entry, batch first: a tensor, several in order, or a
            mapping of names to tensors. Required for a torch module or a function. A decoder of transformers that is
            given no input gets random tokens. Labels are left out, because losses are not compared.
        tokenizer: tokenizer for `text`, where `what` is a loaded model.
        causal: whether each output may depend on earlier positions only. None: what the model declares.
        checks: names of the checks to run. None: all that apply.

    Returns:
        The findings, the checks that passed, and the checks that did not apply.

    Raises:
        Refused: unknown model or check names, a text without a tokenizer, inputs that the model does not accept, or
            arguments that have no effect for `what`.

    Examples:
        >>> import torch
        >>> from regard.audits import audit
        >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
        >>> result = audit(layer.eval(), inputs=torch.randn(1, 9, 16), causal=True, checks=["future-leak"])
        >>> result.healthy, result.findings[0].check
        (False, 'future-leak')
    """
    chosen = chosen_names(checks)
    if causal is not None and not isinstance(causal, bool):
        raise refuse(
            "audit",
            "causal is neither true nor false",
            f"{type(causal).__name__} {causal!r:.40}",
            "True, False, or None for what the model declares",
            "pass causal=True or causal=False",
        )
    if isinstance(what, Run) or (isinstance(what, str | Path) and is_run(what)):
        _reject("a recorded run", text=text, inputs=inputs, tokenizer=tokenizer, causal=causal)
        run = what if isinstance(what, Run) else look(what)
        return _audit(run.model, _run_results(AuditedRun(run), selected(RunCheck, chosen)))
    from . import make_subject  # loads torch
    from .make_subject import refuse_model
    from .restored import restored

    refuse_model(what, inputs)
    if what is None or isinstance(what, str | Path):
        _reject("a model that is loaded by name", inputs=inputs, tokenizer=tokenizer)
        subject = make_subject.from_name(what, text, causal)
        return _audit(subject.name, _model_results(subject, chosen))
    with restored(what):
        if is_transformers_model(what):
            subject = make_subject.from_transformers(what, tokenizer, text, inputs, causal)
        else:
            _reject("a torch module", text=text, tokenizer=tokenizer)
            subject = make_subject.from_module(what, inputs, causal)
        return _audit(subject.name, _model_results(subject, chosen))


def _audit(name: str, results: Iterable[Result]) -> Audit:
    by_type: dict[type, list] = {Finding: [], Passed: [], Skipped: []}
    for result in results:
        by_type[type(result)].append(result)
    if not by_type[Finding] and not by_type[Passed]:
        reasons = dict.fromkeys(f"{each.check}: {each.reason}" for each in by_type[Skipped])
        raise refuse(
            "audit",
            "none of the checks applies",
            "; ".join(reasons),
            "at least one check that can run, because an audit without one says nothing",
            "choose other checks, a longer text, or a model with attention calls",
        )
    findings = sorted(by_type[Finding], key=lambda each: (SEVERITIES.index(each.severity), each.check in SYMPTOMS))
    first = findings[0].check if findings and findings[0].severity == "fault" else SYMPTOMS[0]
    effects = () if first in SYMPTOMS else SYMPTOMS if first in MIXES else NUMBERS
    findings = [replace(each, follows=each.check in effects and each.severity != "note") for each in findings]
    findings[1:] = sorted(findings[1:], key=lambda each: not each.follows)
    return Audit(name, tuple(findings), tuple(by_type[Passed]), tuple(by_type[Skipped]))


def _reject(what: str, **arguments) -> None:
    """Raises `Refused` for arguments that have no effect for what is audited."""
    reasons = [
        Reason(f"{name}= has no effect for {what}", f"{name}={type(value).__name__}", f"no {name}=", f"omit {name}=")
        for name, value in arguments.items()
        if value is not None
    ]
    if reasons:
        raise Refused("audit", reasons)


def _model_results(subject: Subject, chosen: tuple[str, ...]) -> Iterator[Result]:
    """The results of all checks of a model; its modules are in evaluation mode meanwhile, and restored afterwards."""
    from .make_subject import refuse_outputs  # loads torch

    modes = {name: module for name, module in getattr(subject.model, "named_modules", list)() if module.training}
    subject = replace(subject, training=modes)
    for module in modes.values():
        module.training = False
    try:
        refuse_outputs(subject)
        faults: set[str] = set()
        for check in selected(ModelCheck, chosen):
            blockers = [name for name in check.after if name in faults]
            if blockers:
                yield Skipped(check.name, f"not meaningful after a fault of {blockers[0]}: fix that first")
                continue
            result = _result(check, subject)
            if isinstance(result, Finding) and result.severity == "fault":
                faults.add(result.check)
            yield result
        yield from _recorded_results(subject, selected(RunCheck, chosen))
    finally:
        for module in modes.values():
            module.training = True


def _result(check: ModelCheck, subject: Subject) -> Result:
    try:
        return check.judge(subject)
    except NotApplicable as error:
        return Skipped(check.name, str(error))
    except Raised as error:
        if check.name in ("cache", "position-offset"):  # it takes a cache, or can generate, but raises when it does
            severity, when = "fault", "while decoding (threshold: it decodes, as its forward takes a cache)"
            cause = (
                "forward takes a key/value cache that it does not support, or passes arguments on that do not fit a "
                "step of one token or several"
            )
            fix = "decode two tokens with a cache, and follow the error from there; without support, refuse use_cache"
        else:  # a transformers model may need further inputs, which are only guessed: then a note
            severity = "note" if subject.is_transformers else "warning"
            when = "(threshold: it runs, as it does with its own inputs)"
            cause = (
                "the check runs the model in a way that its forward does not support: other values, padding with "
                "a padding mask, several batch entries, or a key/value cache"
            )
            fix = "support this in forward if the model is used that way; otherwise leave this check out"
        return found(check.name, severity, subject.name, f"the model raised {error} {when}", cause, fix)


def _recorded_results(subject: Subject, checks: list[RunCheck]) -> Iterator[Result]:
    """Records one forward pass of the model -> the results of the checks of a recorded run."""
    if not checks:
        return
    positional, keywords = subject.arguments(subject.inputs)
    try:
        try:
            run = look(subject.model, inputs=positional or keywords, values=True)
        except Refused:  # too large with values: the checks that need none still apply
            run = look(subject.model, inputs=positional or keywords, values=False)
    except Refused as refused:
        yield from (Skipped(check.name, f"nothing was recorded: {refused.reasons[0].what}") for check in checks)
        return
    if subject.causal and subject.causal_source == BY_CALLER:
        run = replace(run, calls=tuple(_with_causal(subject, call) for call in run.calls))
    audited = AuditedRun(run, subject)
    if audited.module is not None:
        from .run_checks.sources import read_sources, unread

        with suppress(Raised):  # it cannot run so
            audited.sources = read_sources(subject)
            audited.unread = [*unread(subject, audited.sources)] * (not any(each.blind for each in audited.calls))
    yield from _run_results(audited, checks)


def _run_results(run: AuditedRun, checks: list[RunCheck]) -> Iterator[Result]:
    for check in checks:
        yield from check.judge(run)


def _with_causal(subject: Subject, call: Call) -> Call:
    """The call, declared causal as the caller specified, if it is over the positions of the sequence and its layer
    declares nothing. With another input of the same length, such as the text of an encoder, this is unknown.
    """
    if call.queries != call.keys or call.shape[1:] != (subject.length, subject.length) or subject.sequence is None:
        return call
    main = subject.inputs[subject.sequence]
    content = [part for name, part in subject.inputs.items() if name not in subject.padding_values]
    others = [part for part in content if part is not main and part.shape == main.shape]
    return call if others else replace(call, notes={"causal": True, **call.notes})
