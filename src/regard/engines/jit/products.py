"""Products of matrices whose numbers do not depend on what else is multiplied: each has its own sum, in a fixed order.

Libraries choose the order by the sizes, so that a row has other bits alone than in a batch. Here

    out[m, n] = Σ over chunks of CHUNK numbers: the sum of all lanes, halves first, of Σ a[m, i + lane] · b[n, i + lane]

for every number of rows, columns and threads. Both matrices have the numbers of a sum side by side, as torch.nn.Linear
has its weights, so nothing is copied.
"""

from __future__ import annotations

import functools

import numpy as np
from llvmlite import ir

from ...common.arrays import address
from . import threads
from .code import build
from .code.arguments import Block
from .code.formats import Format
from .code.ir import I32, Code, vector
from .code.target import Target, host
from .kernels.parts.tasks import begun, each_task
from .launch import Workspace

SLOTS = ("next", "tasks", "a", "b", "out", "M", "N", "K", "a_row", "b_row", "out_row", "across")
A = SLOTS.index("a")  # then b and out
CHUNK = 1024  # numbers of a sum after which its lanes are added up
HIGH, WIDE = 96, 64  # rows and columns of a task: both of their chunks fit the cache of a core
SMALL = 1 << 17  # multiply-adds below which a single thread is faster
COLUMNS = 4  # of a tile
HEIGHTS = {64: (6, 4, 2, 1)}  # of tiles, by the bytes of vectors, most rows first: 32 registers hold them
LOW = 2, 1  # and 16 registers hold these


class Product:
    """out (M, N) = a (M, K) · b (N, K), in float32, or float64 for float64, prepared for many calls.

    name: the dtype of a and b. sizes: M, N, K, where K is a multiple of `step(name)`. rows: bytes from one row of a to
    the next, and of b; their numbers are contiguous, as out is.
    """

    def __init__(self, name: str, sizes: tuple[int, int, int], rows: tuple[int, int], count: int, target: Target):
        M, N, K = sizes
        form = Format(name, target)
        self.kernel = build.compiled(f"product {name}", target, functools.partial(_write, form), "product")
        across, down = -(-N // WIDE), -(-M // HIGH)
        self.tasks, self.small = across * down, M * N * K < SMALL
        self.workers = 1 if self.small else min(count, self.tasks)
        places = *rows, N * form.size
        self.block = np.array([0, self.tasks, 0, 0, 0, M, N, K, *places, across], np.int64)
        self.free: list[Workspace] = []  # that no call is using

    def workspace(self) -> Workspace:
        """A new workspace; in its room is the counter of tasks."""
        block, counter = self.block.copy(), np.zeros(1, np.int64)
        block[0] = address(counter)
        return Workspace(self.kernel, block, 0, self.workers, (counter,), alone=self.small)

    def __call__(self, a: int, b: int, out: int, held: tuple) -> None:
        """Multiplies the matrices at two addresses; held: their owners, and that of the output."""
        workspace = Workspace.of(self)
        workspace.room[0] = 0
        workspace.block[A : A + 3] = np.array((a, b, out), np.int64).data
        workspace.run(held)
        self.free.append(workspace)


def product(name: str, sizes: tuple[int, int, int], rows: tuple[int, int]) -> Product:
    """The product of matrices of these sizes, from an earlier call if there was one."""
    return _product(name, sizes, rows, threads.count(), host())


_product = functools.lru_cache(256)(Product)


def step(name: str) -> int:
    """Numbers of a sum that are multiplied together."""
    return _step(Format(name, host()))


@functools.cache
def _step(form: Format) -> int:
    return form.target.lanes(form.size) * (2 if form.pairs else 1)


def _write(form: Format) -> ir.Module:
    """The kernel `product(arguments, scratch, budget)`; its slots are `SLOTS`."""
    module, code, (arguments, _, budget) = begun("product")
    arg = Block(code, arguments, [], [], True, SLOTS)
    with each_task(code, arg, budget) as number:
        top = code.mul(code.sdiv(number, arg["across"]), HIGH)
        left = code.mul(code.srem(number, arg["across"]), WIDE)
        bottom = code.smaller_int(code.add(top, HIGH), arg["M"])
        right = code.smaller_int(code.add(left, WIDE), arg["N"])
        with code.loop(0, arg["K"], CHUNK) as chunk:
            end = code.smaller_int(code.add(chunk.index, CHUNK), arg["K"])
            first = top
            for rows in HEIGHTS.get(form.target.tile.vector, LOW):  # as many whole tiles of this height as there are
                count = code.sdiv(code.sub(bottom, first), rows)
                last = code.add(first, code.mul(count, rows))
                with code.loop(first, last, rows) as row, code.loop(left, right, COLUMNS) as column:
                    _tile(code, arg, form, (row.index, rows), column.index, (chunk.index, end))
                first = last
    code.ret_void()
    return module


def _tile(code: Code, arg: Block, form: Format, rows: tuple, left, chunk: tuple) -> None:
    """Adds the sums of a chunk to a tile of the output; columns past the last one repeat it."""
    lanes = form.target.lanes(form.size)
    kind, each = vector(form.real, lanes), _step(form)
    top, count = rows
    last = code.sub(arg["N"], 1)
    columns = [code.smaller_int(code.add(left, n), last) for n in range(COLUMNS)]
    a = [arg.at("a", code.mul(code.add(top, m), arg["a_row"])) for m in range(count)]
    b = [arg.at("b", code.mul(column, arg["b_row"])) for column in columns]
    zeros = [code.number(0.0, kind)] * (count * COLUMNS)

    def load(row, index):
        place = code.at(row, index, form.itemsize)
        return code.get(place, vector(I32, lanes)) if form.pairs else form.load(code, place, lanes)

    multiply_add = code.dot_pairs if form.pairs else code.fma
    with code.loop(chunk[0], chunk[1], each, zeros) as loop:
        right = [load(row, loop.index) for row in b]
        sums = []
        for m, row in enumerate(a):
            value = load(row, loop.index)
            sums += [multiply_add(value, right[n], loop.carried[m * COLUMNS + n]) for n in range(COLUMNS)]
        loop.carry(*sums)
    begins = code.icmp_signed("==", chunk[0], 0)
    for m in range(count):
        found = _added_up(code, list(loop.result[m * COLUMNS : (m + 1) * COLUMNS]))
        row = arg.at("out", code.mul(code.add(top, m), arg["out_row"]))
        places = [code.at(row, column, form.size) for column in columns]
        # All are read before any is written, because several may be the last column.
        before = [code.select(begins, code.number(0.0, form.real), code.get(place, form.real)) for place in places]
        for n, place in enumerate(places):
            code.put(code.fadd(before[n], code.lane(found, n)), place)


def _added_up(code: Code, sums: list):
    """The sum of the lanes of each of COLUMNS vectors, halves first, as the lanes of one vector."""
    width = sums[0].type.count
    while width > 1:
        places, width = range(0, sums[0].type.count, width), width // 2
        halves = [[place + at for place in places for at in range(first, first + width)] for first in (0, width)]
        if len(sums) > 1:  # both halves of two vectors become the halves of one
            halves = [half + [sums[0].type.count + place for place in half] for half in halves]
        pairs = zip(sums[::2], sums[1::2] or sums)
        sums = [code.fadd(*(code.shuffle(x, y, half) for half in halves)) for x, y in pairs]
    return code.joined(sums)  # several, where vectors have fewer lanes than the tile has columns
