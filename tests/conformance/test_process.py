"""The judged function in a process of its own: whatever it does is survived, bounded in time, reported, and leaves no
process behind; and a call after it is answered as if it had not happened.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from regard.conformance.conventions.fields import Adapter
from regard.conformance.conventions.translate import Absent
from regard.conformance.target import Target
from regard.laws.call import Call
from regard.sandbox import worker as memory
from tests.conformance import misbehaving
from tests.conformance.sessions import InProcess, Session
from tests.support.engines import normal
from tests.support.lanes import by_name
from tests.support.processes import descendants, marked, without
from tests.support.refusals import reasons_of, refusing

FILE = Path(misbehaving.__file__)
LIMIT = 0.5
RIGHT = ("ok", "")
PRINTED = r"first line | the \x1b[31mlast words"


def call(**changes):
    q, k, v = normal(3, 1, 2, 4, 8)
    return Call(**{"q": q, "k": k, "v": v} | changes)


def act(name):
    """A call that makes the function do this."""
    return call(scale=100.0 + [each.__name__ for each in misbehaving.ACTS].index(name))


def expected(each):
    return misbehaving.right(each.q, each.k, each.v).astype(np.float64)


def close(got, each):
    """The same NumPy computation, in another process."""
    return got.shape == expected(each).shape and np.abs(got - expected(each)).max() < 1e-6


@pytest.fixture
def mark():
    """The mark of what one test starts."""
    with marked() as mark:
        yield mark


@pytest.fixture(scope="module")
def session():
    """A session of the badly behaved function, which must outlive whatever that does."""
    with marked(), Session(f"{FILE}:attention", seconds=20.0) as session:
        yield session


# What the function does → status, part of the words, part of the events.
FATAL = {
    "hangs_in_python": ("timeout", f"did not return in {LIMIT:g} s", ""),
    **dict.fromkeys(
        (
            "hangs_with_the_interpreter_lock",
            "hangs_with_children",
        ),
        ("timeout", "did not return", ""),
    ),
    "segfaults": ("crashed", "SIGSEGV", ""),
    "exits_after_a_message": ("crashed", f"exit status 0; it printed: {PRINTED}", "printed 31 bytes"),
    "kills_itself": ("crashed", "SIGKILL (out of memory?)", ""),
    "becomes_another_program": ("crashed", "closed the connection", ""),
    "forks_and_leaves_the_copy_alone": ("crashed", "exit status 5", ""),
    "closes_everything": ("crashed", "exit status 1", "printed"),
    "writes_everywhere": ("crashed", "wrote to the connection", ""),
}
SURVIVED = {
    "waits_for_input": ("raised", "EOFError", ""),
    "exits": ("raised", "SystemExit: 4", ""),
    "interrupts": ("raised", "KeyboardInterrupt", ""),
    "raises_a_megabyte": ("raised", "ValueError: xxxx", ""),
    "raises_control_characters": ("raised", r"ValueError: wrong \x1b[2Jshape\x07\u202e", ""),
    "raises_what_cannot_be_printed": ("raised", "Unprintable, whose message cannot be read", ""),
    **dict.fromkeys(
        ("forks_and_both_return", "leaves_a_daemon", "runs_a_shell_command"),
        (*RIGHT, "started a process"),
    ),
    "leaves_a_thread": (*RIGHT, "left a thread running"),
    "prints_much": (*RIGHT, "printed 268,435,456 bytes"),
    "writes_a_file": (*RIGHT, "wrote to the file /"),
    "writes_many_files_and_removes_a_folder": (*RIGHT, "removed the folder /"),
    "removes_a_file": (*RIGHT, "removed the file /"),
    "changes_one_bit_of_v": ("ok", "", "changed its input v"),
    "reshapes_k": ("ok", "", "changed its input k"),
    "draws_from_random": (*RIGHT, "changed the random state of Python"),
    "seeds_numpy": (*RIGHT, "changed the random state of NumPy"),
    "sets_errors_of_numpy": (*RIGHT, "changed NumPy's handling of floating-point errors"),
    "changes_the_environment": (*RIGHT, "changed the environment"),
    "returns_false": ("unreadable", "bool", ""),
    "returns_objects": ("unreadable", "object", ""),
    **dict.fromkeys(
        (
            "starts_a_thread",
            "closes_its_output",
            "replaces_its_output",
            "hangs_at_exit",
        ),
        (*RIGHT, ""),
    ),
}


def test_all_acts_are_tested():
    """No bad manner is written and then forgotten."""
    assert {each.__name__ for each in misbehaving.ACTS} == set(FATAL) | set(SURVIVED)


@pytest.mark.parametrize("name", [*FATAL, *SURVIVED])
def test_it_is_survived(name, session):
    """The answer says what happened, every time; the next call is right."""
    status, words, event = (FATAL | SURVIVED)[name]
    session.call(call())
    before = memory.restart_peak()
    answer = session.call(act(name), seconds=LIMIT if status == "timeout" else None)
    again = session.call(act(name)) if event.startswith("changed") else answer
    after = session.call(call())

    assert (answer.status, after.status) == (status, "ok"), (answer.words, after.words)
    assert words in answer.words and len(answer.words) < 1000 and answer.words.isprintable()
    assert event in " · ".join(answer.events) and bool(event) == bool(answer.events), answer.events
    assert again.events == answer.events and len(answer.events) < 20
    assert memory.peak(before) < 64 << 20
    if status == "ok" and "input" not in event:
        assert close(answer.out, call())
    assert close(after.out, call()) and after.events == ()


def test_a_result_is_left_alone(mark):
    """Returning the same memory twice, or changing what was returned, is seen; other functions do neither."""
    for name, event in (
        ("returns_one_buffer", ("returned the same memory twice",)),
        ("changes_what_it_returned", ("changed an earlier result",)),
        ("attention", ()),
    ):
        with Session(f"{FILE}:{name}") as session:
            assert [session.call(call()).events for _ in range(3)] == [(), event, event]


def test_the_end_between_two_calls_is_not_the_second_call_s(mark):
    """It is an event of the next call, which is answered by a new process."""
    with Session(f"{FILE}:ends_later") as session:
        session.call(call())
        time.sleep(1.0)
        answer = session.call(call())

    assert answer.status == "ok" and close(answer.out, call())
    assert answer.events[0] == "the process ended after the previous call"


def written(folder, text, name="judged.py"):
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(textwrap.dedent(text))
    return str(path)


# What a file contains, the name that is passed, what the refusal says is given, and how it is fixed.
UNLOADABLE = {
    "raises": ("x = 1\nraise ValueError('no\\nidea')", "f", "ValueError: no, at ", "until `python "),
    "missing module": ("import surely_missing", "f", "ModuleNotFoundError: No module named", "until `python "),
    "relative": ("from . import other", "f", "ImportError: attempted relative", "package.module:function"),
    "crashes": ("import os\nos._exit(7)", "f", "exit status 7", "move what its import does"),
    "misspelled": ("def attention(q, k, v): ...", "atention", "judged.py:atention", "did you mean 'attention'?"),
    "number": ("f = 3\ndef g(): ...", "f", "int", "'g'"),
    "class": ("class A:\n    def run(self): ...", "A", "without __call__ or forward", "judged.py:A.run"),
    "arguments": ("class A:\n    def __init__(s, n): ...\n    def __call__(s): ...", "A", "TypeError", "write a"),
    "no method": ("class A:\n    def forward(self): ...", "A.forwards", "judged.py:A.forwards", "'forward'"),
}


@pytest.mark.one_in(2)
@by_name("text, path, given, fix", UNLOADABLE)
def test_what_cannot_be_loaded_is_refused(text, path, given, fix, mark, tmp_path):
    """Three parts, from the child; whatever the import does."""
    with Session(f"{written(tmp_path, text)}:{path}") as session:
        (reason,) = reasons_of(session.describe)
    assert given in reason.given and fix in reason.fix


def test_an_import_that_hangs_is_refused(mark, tmp_path):
    """It has a limit of its own, whether the function is described or called."""
    with Session(written(tmp_path, "import time\ntime.sleep(10000)") + ":f", loading=1.0) as session:
        for use in (session.describe, lambda: super(Session, session).call(call(), Adapter())):
            with refusing("did not end in 1 s"):
                use()


@pytest.mark.parametrize(
    "text, given",
    [
        ("attention", ["'attention'"]),
        ("missing.py:f(x)", ["missing.py", "'f(x)'"]),
        ("a b:f", ["'a b'"]),
        (":f", ["':f'"]),
        ("tests:", ["'tests:'"]),
        ("./tests:f", ["./tests, a folder"]),
        ("README.md:f", ["README.md"]),
    ],
)
def test_a_bad_name_is_refused_at_once(text, given):
    """Before a process is started, with every problem."""
    assert [reason.given for reason in reasons_of(Session, text)] == given


LOADABLE = """
    import helper

    def function(q, k, v):
        return helper.attention(q, k, v)

    class Callable:
        def __call__(self, q, k, v):
            return function(q, k, v)

        def method(self, q, k, v):
            return function(q, k, v)

        @staticmethod
        def static(q, k, v):
            return function(q, k, v)

        @classmethod
        def of_class(cls, q, k, v):
            return function(q, k, v)

    class Module:
        def forward(self, q, k, v):
            return function(q, k, v)

    class Outer:
        Inner = Callable

    instance = Callable()
    late = lambda q, k, v: __import__("beside").attention(q, k, v)

    if __name__ == "__main__":
        raise SystemExit("it was run")
"""
PATHS = ("function", "Callable", "Callable.method", "Callable.static", "Callable.of_class", "Module")
PATHS += ("Outer.Inner.method", "instance", "instance.method", "late")


@mock.patch.dict(sys.modules)
@pytest.mark.parametrize("form", ["file", "module"])
def test_every_form_of_a_name(form, mark, tmp_path, monkeypatch):
    """Functions, methods, callable classes and objects, of files and of modules in the current folder; a file finds
    what is next to it, in the call as well. The last is loaded in a process of its own, the others here.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    written(tmp_path, LOADABLE, "package/judged.py")
    for name in ("helper.py", "beside.py"):
        written(tmp_path, FILE.read_text(), f"package/{name}" if form == "file" else name)
    for path in PATHS:
        name = f"package/judged.py:{path}" if form == "file" else f"package.judged:{path}"
        with Session(name) if path == "late" else InProcess(Target.parse(name).load()) as session:
            answer = session.call(call())

            assert answer.status == "ok", (path, answer.words)
            assert close(answer.out, call()), path
            assert [each.name for each in session.describe().parameters] == ["q", "k", "v"], path


def test_what_a_function_says_about_itself(mark, tmp_path):
    """Its name, its parameters, its adapter and its version, even if its import prints something."""
    text = """
        from regard.conformance.conventions.fields import Adapter
        print("hello")
        __version__ = "1.2"
        def f(q, k, v, *, mask=None): ...
        f.__regard_adapter__ = Adapter(name="mine", dtypes=("float16", "float32"), returns=("out", None, "lse"))
    """
    with Session(written(tmp_path, text) + ":f") as session:
        found = session.describe()
        assert session.isolated

    assert (found.name, found.version) == ("judged.f", "1.2")
    assert [(each.name, each.required) for each in found.parameters] == [*((n, True) for n in "qkv"), ("mask", False)]
    declared = {"name": "mine", "dtypes": ("float16", "float32"), "returns": ("out", None, "lse")}
    assert vars(found.adapter) == vars(Adapter(**declared))


def test_starting_is_light(mark, tmp_path):
    """Neither side imports an array library; the environment, folder and search path are the caller's."""
    text = """
        import os, sys
        def f(q, k, v):
            heavy = sorted({"torch", "jax", "transformers", "llvmlite"} & set(sys.modules))
            raise ValueError(f"{heavy} {os.getcwd()} {os.environ['REGARD_TEST_MARK']} {'/surely/here' in sys.path}")
    """
    sys.path.append("/surely/here")
    try:
        with Session(written(tmp_path, text) + ":f") as session:
            answer = session.call(call())
    finally:
        sys.path.remove("/surely/here")

    assert answer.words == f"ValueError: [] {os.getcwd()} {mark} True"


def test_a_call_that_cannot_be_made_is_absent(session):
    """It is not the function's mistake, and the session goes on."""
    with pytest.raises(Absent, match="sinks"):
        session.call(call(sinks=np.zeros(2, np.float32)))
    assert session.call(call()).status == "ok"


def test_an_adapter_that_needs_another_library_is_refused(mark, tmp_path):
    """With the reason of the import."""
    text = FILE.read_text() + "\nsys.modules['torch'] = None\n"
    with Session(written(tmp_path, text) + ":attention", Adapter(arrays="torch")) as session:
        with refusing("torch"):
            session.call(call())
        assert session.call(call(), Adapter()).status == "ok"


def test_a_function_that_cannot_be_loaded_twice(mark, tmp_path):
    """After a crash the function is loaded again; if that fails, it is the answer, not the end of the run."""
    text = FILE.read_text() + "\nopen(__file__, 'a').write('\\nraise ValueError(\"only once\")\\n')\n"
    with Session(written(tmp_path, text) + ":attention") as session:
        assert session.call(call()).status == "ok"
        assert session.call(act("segfaults")).status == "crashed"
        again = session.call(call())

    assert again.status == "crashed" and "only once" in again.words


@pytest.mark.spread
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("name", ["hangs_in_python", "hangs_with_the_interpreter_lock", "hangs_with_children"])
def test_no_child_outlives_its_parent(how, name, mark, tmp_path):
    """Ctrl-C, and every other end of the parent, ends the child and what it started, wherever it hangs."""
    if sys.platform != "linux" and name == "hangs_with_the_interpreter_lock" and how != signal.SIGINT:
        pytest.skip("only Linux sends a signal when a pipe closes")
    script = f"""
        import sys
        sys.path[:] = {sys.path!r}
        from tests.conformance.sessions import Session
        from tests.conformance.test_process import FILE, act
        session = Session(f"{{FILE}}:attention", seconds=1000)
        session.describe()
        print("ready", flush=True)
        session.call(act({name!r}))
    """
    parent = subprocess.Popen(
        [sys.executable, written(tmp_path, script, "parent.py")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert parent.stdout.readline() == b"ready\n"
        time.sleep(0.3)
        assert len(descendants(mark)) >= 2 or sys.platform != "linux"
        parent.send_signal(how)
        parent.wait(60)
        assert without(mark) == []
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_a_session_that_is_not_closed_ends_with_the_interpreter(mark, tmp_path):
    """And with the session object. A copy of the interpreter made by fork ends nothing."""
    script = f"""
        import os, sys
        sys.path[:] = {sys.path!r}
        from tests.conformance.sessions import Session
        from tests.conformance.test_process import FILE, call
        session = Session(f"{{FILE}}:attention")
        session.call(call())
        if os.fork() == 0:
            sys.exit()
        os.wait()
        assert session.call(call()).status == "ok"
        other = Session(f"{{FILE}}:attention")
        other.call(call())
        del other
    """
    done = subprocess.run([sys.executable, written(tmp_path, script, "parent.py")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_peak_is_that_of_the_call(mark, tmp_path):
    """The growth of memory while the function runs, not what it held before or between calls."""
    text = FILE.read_text() + "\nheld = np.ones(50 << 20, np.uint8)\ndef f(q, k, v, scale=None):\n"
    text += "    more = np.ones(int(scale), np.uint8)\n    del more\n    return right(q, k, v)\n"
    with Session(written(tmp_path, text) + ":f") as session:
        peaks = [session.call(call(scale=float(size))).peak for size in (1 << 26, 1, 1 << 25, 1 << 27, 1 << 10)]

    if sys.platform == "linux":
        assert [round(each / (1 << 25)) for each in peaks] == [2, 0, 1, 4, 0]


def test_in_process():
    """The same calls without a process of their own, for functions without a name; the inputs are copies."""
    given = call()
    before = given.q.copy()

    def changes(q, k, v, scale=None):
        if scale:
            sys.exit("no")
        np.random.seed(0)
        q[...] = 0
        return misbehaving.right(q, k, v)

    with InProcess(changes) as session:
        answer = session.call(given)
        assert not session.isolated and session.describe().name.endswith("changes")
        assert answer.status == "ok" and answer.events == ("changed its input q", "changed the random state of NumPy")
        assert np.array_equal(given.q, before)
        assert session.call(call(scale=2.0)).words == "SystemExit: no"
    with pytest.raises(KeyboardInterrupt):
        InProcess(misbehaving.attention).call(act("interrupts"))


def test_torch(mark, tmp_path):
    """Tensors: changed inputs, returned memory, random state, settings; gradients come back."""
    pytest.importorskip("torch")
    text = """
        import torch
        kept = torch.zeros(1, 2, 4, 8)
        def attention(q, k, v, scale=None):
            if scale == 100: q.detach()[..., 0] = 1
            if scale == 101: torch.manual_seed(3)
            if scale == 102: torch.set_default_dtype(torch.float64)
            if scale == 103: torch.set_grad_enabled(False)
            if scale == 104: return kept.copy_(v)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)
    """
    adapter = Adapter(arrays="torch", gradients="torch")
    events = ["changed its input q", "changed the random state of torch", "changed torch's default dtype"]
    events += ["changed torch's gradient mode"]
    with Session(written(tmp_path, text) + ":attention", adapter, seconds=60.0) as session:
        for number, event in enumerate(events):
            for _ in range(2):
                answer = session.call(call(scale=100.0 + number))
                assert (answer.status, answer.events) == ("ok", (event,)), answer.words
        assert [session.call(call(scale=104.0)).events for _ in range(2)] == [(), ("returned the same memory twice",)]
        answer = session.call(call(dout=np.ones((1, 2, 4, 8))))
        assert answer.status == "ok" and answer.events == () and set(answer.gradients) == {"q", "k", "v"}
        np.testing.assert_allclose(answer.gradients["v"].sum(), 64, rtol=1e-6)
        assert close(answer.out, call())
