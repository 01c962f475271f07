"""An attention function with bad manners: `scale` says which, from 100. Each act is done once per call, then the result
is computed as it should be, unless the act returns another one or never returns.
"""

import atexit
import contextlib
import ctypes
import os
import random
import signal
import sys
import tempfile
import threading
import time

import numpy as np


def right(q, k, v, mask=None, scale=None):
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), v).astype(q.dtype)


def attention(q, k, v, mask=None, scale=None):
    if scale is None or scale < 100:
        return right(q, k, v, mask, scale)
    found = ACTS[int(scale) - 100](q, k, v)
    return right(q, k, v, mask) if found is None else found


def hangs_in_python(*_):
    while True:
        pass


def hangs_in_c(*_):
    time.sleep(10_000)


def hangs_with_the_interpreter_lock(*_):
    ctypes.PyDLL(None).sleep(10_000)


def hangs_with_children(*_):
    for _ in range(3):
        if os.fork() == 0:
            hangs_in_c()
    hangs_in_c()


def waits_for_input(*_):
    input()


def segfaults(*_):
    ctypes.string_at(0)


def exits_after_a_message(*_):
    print("first line\nthe \x1b[31mlast words", file=sys.stderr)
    os._exit(0)


def kills_itself(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def becomes_another_program(*_):
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(10000)"])


def exits(*_):
    sys.exit(4)


def interrupts(*_):
    raise KeyboardInterrupt


def raises_a_megabyte(*_):
    raise ValueError("x" * 1_000_000)


def raises_control_characters(*_):
    raise ValueError("wrong \x1b[2Jshape\x07\u202e\nsecond line")


class Unprintable(Exception):
    def __str__(self):
        raise SystemExit(7)


def raises_what_cannot_be_printed(*_):
    raise Unprintable


def forks_and_both_return(*_):
    os.fork()


def forks_and_leaves_the_copy_alone(*_):
    if os.fork():
        os._exit(5)
    hangs_in_c()


def leaves_a_daemon(*_):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            hangs_in_c()
        os._exit(0)


def runs_a_shell_command(*_):
    os.system("true")


def starts_a_thread(*_):
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def leaves_a_thread(*_):
    threading.Thread(target=hangs_in_c, daemon=True).start()


def prints_much(*_):
    chunk = b"x" * (1 << 20)
    left = 1 << 28
    while left:
        left -= os.write(1, chunk[:left])


def writes_a_file(*_):
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("a")


def writes_many_files_and_removes_a_folder(*_):
    for _ in range(100):
        writes_a_file()
    os.rmdir(tempfile.mkdtemp())


def removes_a_file(*_):
    handle, name = tempfile.mkstemp()
    os.close(handle)
    os.remove(name)


def changes_one_bit_of_v(q, k, v):
    v.view(np.uint32)[..., -1, -1] ^= 1


def reshapes_k(q, k, v):
    k.shape = k.shape[::-1]
    return right(q, np.random.default_rng(0).standard_normal(v.shape).astype(v.dtype), v)


def draws_from_random(*_):
    random.random()


def seeds_numpy(*_):
    np.random.seed(0)
    np.random.random(3)


def sets_errors_of_numpy(*_):
    np.seterr(all="raise")


def changes_the_environment(*_):
    os.environ["REGARD_TEST_SEEN"] = "1"


def returns_false(*_):
    return False


def returns_objects(q, k, v):
    return right(q, k, v).astype(object)


def closes_everything(*_):
    os.closerange(3, 256)


def closes_its_output(*_):
    os.close(1)
    os.close(2)


def replaces_its_output(*_):
    sys.stdout = sys.stderr = object()


def writes_everywhere(*_):
    for descriptor in range(3, 32):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\xff" * 100)


def hangs_at_exit(*_):
    atexit.register(hangs_in_c)


HELPERS = ("right", "attention", "hangs_in_c", "connects")
ACTS = [
    value
    for name, value in list(vars().items())
    if type(value) is type(right) and value.__module__ == __name__ and name not in HELPERS
]


def ends_later(q, k, v):
    threading.Timer(0.2, os._exit, (6,)).start()
    return right(q, k, v)


kept = np.zeros((1, 2, 4, 8), np.float32)


def returns_one_buffer(q, k, v):
    kept[...] = right(q, k, v)
    return kept


earlier = []


def changes_what_it_returned(q, k, v):
    for each in earlier:
        each[...] = 0
    earlier.append(right(q, k, v))
    return earlier[-1]
