"""What the pytest plugin does once it is used: an item for each case, and the fixture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ..common.errors import Refused
from ..common.text.units import counted
from .cases.case import Case, Result
from .conventions.adapter_file import read_adapter
from .conventions.fields import Adapter
from .report import Finding, Report
from .run import LOST, Suite, conform
from .session import open_session


class Broken(Exception):
    """A case that does not hold; the message is the whole report of it."""


class Function(pytest.Collector):
    """The function that is judged; the parent of its items."""

    def __init__(self, suite: Suite, **given: Any):
        super().__init__(**given)
        self.suite = suite

    def collect(self) -> list[pytest.Item]:
        """Its items: the conventions, every case, and the laws that are expected to fail somewhere."""
        known = self.suite.measured.adapter.expected
        items: list[pytest.Item] = [Item.from_parent(self, name="law-00[conventions]", level=0, check=self.conventions)]
        for case in self.suite.cases:
            item = Item.from_parent(self, name=case.id, level=case.level, check=partial(self.holds, case))
            expected = known.get(case.id) or known.get(f"law-{case.law:02d}")
            if expected is not None:
                item.add_marker(pytest.mark.xfail(reason=reason(expected), raises=Broken, strict=case.id in known))
            items.append(item)
        for law in known:
            if of_law := [case for case in self.suite.cases if f"law-{case.law:02d}" == law]:
                level, check = min(case.level for case in of_law), partial(self.fails_somewhere, law, of_law)
                items.append(Item.from_parent(self, name=f"{law}[expected-to-fail]", level=level, check=check))
        return items

    def result(self, case: Case) -> Result:
        """The result of a case, unless too many calls were lost."""
        if self.suite.lost >= LOST:
            pytest.skip(f"{self.suite.lost} calls hung or ended the process before")
        return self.suite.result(case)

    def conventions(self, item: Item) -> None:
        """The function has the conventions that it declares, and those of the laws elsewhere."""
        measured = self.suite.measured
        if not measured.runs:
            raise Broken(measured.words)
        if found := self.suite.diagnosis.findings((), measured.deviations):
            raise Broken("\n\n".join(map(described, found)))

    def holds(self, case: Case, item: Item) -> None:
        """A case holds."""
        result = self.result(case)
        properties = {"law": case.law, "error_over_bound": result.ratio, "grade": result.grade}
        item.user_properties += [(name, value) for name, value in properties.items() if value is not None]
        if result.status in ("absent", "refused"):
            pytest.skip(f"{result.status}: {result.words}")
        if result.status != "pass":
            found = map(described, self.suite.diagnosis.findings([result]))
            raise Broken("\n\n".join([f"{case.says}: {result.words}", *found]))

    def fails_somewhere(self, law: str, cases: Sequence[Case], item: Item) -> None:
        """A law that is expected to fail fails in one of its cases."""
        ran = [each.status for each in map(self.result, cases) if each.status not in ("absent", "refused")]
        if ran and "fail" not in ran:
            raise Broken(f"{law} is expected to fail, and passes: remove it from `expected`")


class Item(pytest.Item):
    """One thing that must hold. check: raises Broken if it does not"""

    def __init__(self, level: int, check: Callable[[Item], None], **given: Any):
        super().__init__(**given)
        self.add_marker(f"level{level}")
        self.check = check

    def runtest(self) -> None:
        self.check(self)

    def repr_failure(self, excinfo, style=None):
        """The report of a broken law; the traceback of anything else."""
        return str(excinfo.value) if isinstance(excinfo.value, Broken) else super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, None, self.name


class Plugin:
    """Adds the items of a function to those of a run of pytest."""

    def __init__(
        self,
        config: pytest.Config,
        function: str,
        adapter: str | None = None,
        level: int = 3,
        seed: int = 0,
        seconds: float = 10.0,
    ):
        try:
            declared = None if adapter is None else read_adapter(Path(config.invocation_params.dir, adapter))
            session = open_session(function, seconds)
            try:
                self.suite = Suite(session, function, declared, level, seed)
            except BaseException:
                session.close()
                raise
        except Refused as refused:
            raise pytest.UsageError(str(refused)) from None
        distributes = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
        if distributes:  # the processes that pytest-xdist starts have suites of their own
            self.suite.session.close()

    @pytest.hookimpl(tryfirst=True)  # before the items are selected by -k and -m
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        name = self.suite.target
        function = Function.from_parent(session, name=name, nodeid=name, suite=self.suite)
        items.extend(function.collect())

    def pytest_unconfigure(self) -> None:
        self.suite.session.close()


def keeps_the_laws(
    function: Callable[..., Any] | str, *, adapter: Adapter | str | Path | None = None, level: int = 3, **given: Any
) -> Report:
    """The fixture `conform`: runs the suite, and fails the test with the report if a law is broken."""
    __tracebackhide__ = True
    declared = read_adapter(Path(adapter)) if isinstance(adapter, (str, Path)) else adapter
    report = conform(function, adapter=declared, level=level, **given)
    if not report.right:
        pytest.fail(whole(report), pytrace=False)
    return report


def whole(report: Report) -> str:
    """The level that was reached, and all findings."""
    wrong = counted(len(report.findings), "finding")
    first = f"{report.target}: level {report.mark} of {report.requested}, {wrong}"
    return "\n\n".join([first, *([report.stopped] if report.stopped else []), *map(described, report.findings)])


def described(finding: Finding) -> str:
    """A finding and its counterexample."""
    return "\n\n".join(filter(None, (str(finding), finding.counterexample.rstrip())))


def reason(expected: Mapping[str, str]) -> str:
    """The reason and the link of an expected failure."""
    parts: Iterable[str] = (expected.get(name, "") for name in ("reason", "link"))
    return " ".join(filter(None, parts))
