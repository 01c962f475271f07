"""The scores of a tile: products, then score and mask on lanes.

Parts that depend on batch, head and query are computed once per tile, parts that depend on the key alone once per key,
and the rest for every pair. Masks compute floats in float64, so that a mask is the same in every engine.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from .....language.analysis import deciding
from .....language.expr import Expr
from ...code.emit import Emitter
from ...code.ir import F32, F64, Code, element, is_vector, vector
from . import few_rows
from .panels import Keys
from .products import multiply_keys
from .softmax import Running
from .table_tiles import TableTiles
from .tile import Tile


class Rules:
    """The mask and the score of a kernel."""

    def __init__(self, code: Code, tile: Tile, mask: Expr | None, score: Expr | None):
        self.code, self.tile, self.whole = code, tile, tile.arg.whole
        self.parts: list[tuple[Emitter, Expr]] = []
        if mask is not None:
            self.parts.append((Emitter(code, F64, tile.arg), mask))
        if score is not None:
            self.parts.append((Emitter(code, tile.real, tile.arg, deciding(score)), score))
        self.mask, self.score = mask, score
        self.tables = TableTiles(
            code,
            [root for _, root in self.parts],
            lanes=tile.lanes,
            vectors=tile.vectors,
            memory=tile.memory["squares"],
            folded=tile.spec.folded,
        )

    def open(self, b, h, first) -> None:
        """Computes the parts that depend on the tile only: on batch, head, and the query position of every lane.

        h: the head, or the group of heads that share the tile; first: the position of its first row.
        """
        code, tile, lanes = self.code, self.tile, self.tile.lanes
        b, h, first, Q, group = (tile.arg.narrowed(value) for value in (b, h, first, tile.arg["Q"], tile.arg["group"]))
        self.per_vector, self.heads, self.queries = [], [], []
        for number in range(tile.vectors):
            numbers = [number * lanes + lane for lane in range(lanes)]
            if tile.spec.folded:
                query = code.gathered([code.add(first, code.srem(lane, Q)) for lane in numbers])
                head = code.gathered([code.add(code.mul(h, group), code.sdiv(lane, Q)) for lane in numbers])
            else:
                query, head = code.add(code.splat(first, lanes), ir.Constant(vector(self.whole, lanes), numbers)), h
            self.heads.append(head)
            self.queries.append(query)
            scopes = [emitter.scope(batch=b, head=head, query=query) for emitter, _ in self.parts]
            for scope, (_, root) in zip(scopes, self.parts, strict=True):
                scope.prepare(root)
                self.tables.open(number, scope, root)
            self.per_vector.append(scopes)

    def scores(self, keys: Keys, run: Running, first, count, mixed) -> None:
        """Sᵀ of some keys of a block, -inf where masked, and the maximum of every lane."""
        self.tile.enter_block(first)
        keys.stage(count)
        run.begin_block()
        multiply = few_rows.multiply_keys if self.tile.spec.few else multiply_keys
        multiply(self.code, self.tile, run, keys, count)
        self._decide(run, first, count, mixed)

    def _decide(self, run: Running, first, count, mixed) -> None:
        """Applies score and mask to some keys of a block; the mask is skipped in a full block."""
        code = self.code
        if self.mask is not None:
            with code.if_else(mixed) as (then, otherwise):
                with then:
                    self._apply(run, first, count, masked=True)
                with otherwise:
                    if self.score is not None:
                        self._apply(run, first, count, masked=False)
        elif self.score is not None:
            self._apply(run, first, count, masked=False)

    def _apply(self, run: Running, first, count, masked: bool) -> None:
        """Replaces S by score(S), and by -inf where the mask is false; recomputes the maximum of every lane."""
        code, tile = self.code, self.tile
        maxima = [code.number(-math.inf, tile.type)] * tile.vectors
        roots = [root for _, root in self.parts if masked or root is not self.mask]
        if not self.tables.needed(roots):
            run.set_block_maximum(self._apply_to(first, (0, count), maxima, masked))
            return
        with code.loop(0, count, tile.lanes, maxima) as some:
            self.tables.load(code.add(first, some.index), roots)
            end = code.smaller_int(code.add(some.index, tile.lanes), count)
            some.carry(*self._apply_to(first, (some.index, end), some.carried, masked))
        run.set_block_maximum(some.result)

    def _apply_to(self, first, keys: tuple[Any, Any], maxima: list, masked: bool) -> list:
        """The same for a range of the keys; returns the maximum of these and `maxima`."""
        code, tile = self.code, self.tile
        factor = tile.arg.factor("score_factor", tile.type)
        with code.loop(keys[0], keys[1], 1, maxima) as loop:
            position = code.add(first, loop.index)
            key = tile.arg.narrowed(position)
            place = tile.place(tile.s, loop.index)
            shared: list[dict] = [{} for _ in self.parts]
            seen = []
            for number, scopes in enumerate(self.per_vector):
                s = tile.get(place, number)
                if self.score is not None:
                    s = code.fmul(s, factor)
                found: dict[Expr, ir.Value] = {}
                # The score first, then the mask, which overrides the score.
                for part in reversed(range(len(self.parts))):
                    root = self.parts[part][1]
                    if root is self.mask and not masked:
                        continue
                    scope = scopes[part].scope(key=key)
                    known = set(scope.values)
                    scope.values.update(shared[part])
                    scope.values.update(self.tables.elements(number, position, scope, root))
                    scope.prepare(root)
                    shared[part] = {
                        name: value
                        for name, value in scope.values.items()
                        if name not in known and not is_vector(value)
                    }
                    found[root] = scope.scope(score=s).value(root)
                if self.score is not None:
                    s = self._logit(found[self.score])
                if masked and self.mask is not None:
                    s = code.select(code.splat(found[self.mask], tile.lanes), s, -math.inf)
                tile.put(s, place, number)
                seen.append(code.larger(loop.carried[number], s))
            loop.carry(*seen)
        return loop.result

    def _logit(self, value):
        """A score in every lane."""
        code, lanes = self.code, self.tile.lanes
        value = code.splat(value, lanes)
        if element(value) == F64 and self.tile.real == F32:
            value = code.fptrunc(value, self.tile.type)
        elif element(value) not in (F32, F64):  # an integer expression
            value = code.sitofp(value, self.tile.type)
        return value
