"""Expressions: a mask or a score is a small expression over batch, head, query, key and score.

There are four kinds of node, `Const · Var · Read · Op`, immutable and interned: the same expression is the same object,
so structural equality is identity (`a is b`) and `==` can build a mask. Everything else in regard is a function of this
tree: its value (`analysis.evaluate`), its bounds over a tile (`analysis.bounds`), its derivative (`analysis.adjoints`),
its text (`repr`), and machine code (`regard.engines.jit`).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..common.arrays import elsewhere, read_array
from ..common.caching import lock
from ..common.errors import refuse
from ..common.public import ArrayLike
from .operators import MIRRORED, OF_BITS, OPERATORS, SHIFTS
from .tree.interning import reduced, share, walk
from .tree.printing import rank, written
from .tree.syntax import Syntax
from .tree.tables import Array, number_of, readable
from .tree.traced import Traced, called, operated, read, tracing
from .tree.traced import text as text_of
from .tree.vectors import Vector, View, elementwise, ranges
from .tree.writing import evaluable

SHOWN = 4000  # characters of an expression in a message: with shared nodes, the text can be much larger than the tree

_lock = lock()


class Expr(Syntax):
    """A node of an expression. kind: "bool" (a condition), "int" or "float" · tables: those that it reads · sources:
    the tensors among them · scored: whether it depends on the score.
    """

    __slots__ = ("__weakref__", "digest", "kind", "operands", "scored", "sources", "tables")
    digest: str
    kind: str
    scored: bool
    sources: tuple
    tables: tuple[Table, ...]
    operands: tuple  # the tensors of the tables, once torch.compile needs them

    def apply(self, name: str, *args) -> Expr:
        return applied(name, *args)

    def __setattr__(self, name, value):
        raise AttributeError(f"expressions are frozen: {name!r} cannot be set on {self}")

    __hash__ = object.__hash__  # nodes are interned, so structural equality is identity

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        return evaluable(self, {id(found): name for name, found in tables_of(self).items()})

    def __str__(self):
        return text(self, SHOWN)

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()


class Const(Expr):
    """A number or a boolean. Compiled code receives it as an argument, so another window size needs no new kernel."""

    __slots__ = ("value",)
    value: bool | int | float

    def __new__(cls, value):
        kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
        value = {"bool": bool, "int": int, "float": float}[kind](value)  # not a subclass, such as np.float64
        if kind == "int" and not -(2**63) <= value < 2**63:
            raise refuse(
                "expression",
                "an integer has more than 64 bits",
                f"{value}",
                "-2**63 … 2**63 - 1",
                "write it as a float",
            )
        # repr distinguishes 0.0 from -0.0, and makes NaN equal to itself.
        return share(cls, (kind, repr(value)), value=value, kind=kind)

    def __reduce__(self):
        return Const, (self.value,)


class Var(Expr):
    """A variable: `rg.batch`, `rg.head`, `rg.query` or `rg.key`, which are integers, or `rg.score`, a float.

    Positions count from 0; those of queries begin at query_start, batch entries at batch_start and heads at head_start.
    The score is the scaled logit.

    Examples:
        >>> import regard as rg
        >>> (rg.key <= rg.query) & (rg.head < 4), 2.0 * rg.score
        ((key <= query) & (head < 4), 2.0 * score)
    """

    __slots__ = ("name",)
    name: str

    def __new__(cls, name):
        if name not in ("batch", "head", "query", "key", "score"):
            raise refuse(
                "expression",
                "unknown variable",
                repr(name),
                "batch, head, query, key or score",
                "use the symbols that regard exports",
            )
        return share(cls, (name,), name=name, kind="float" if name == "score" else "int")

    def __reduce__(self):
        return Var, (self.name,)


class Table(Array):
    """An array that expressions read: `table(a)[query, key]`. It is a view, so later changes of the array take effect.

    Every index is clamped: an index below 0 reads element 0, and an index beyond the end reads the last element.
    """

    own = property(lambda self: self)  # the table that is read

    def length(self, axis: int) -> Any:
        """The number of elements along an axis, as part of an expression."""
        return self.shape[axis]

    def place(self, axis: int, index: Any) -> Any:
        """The index as it is read."""
        return index

    def __getitem__(self, index) -> Any:
        index = index if isinstance(index, tuple) else (index,)
        if tracing(*index):
            return read(text_of(self), index)
        if any(part is None for part in index) and not any(isinstance(part, Syntax) for part in index):
            return table(self.source[index], self.name)
        if len(index) != len(self.shape) or any(part is Ellipsis or isinstance(part, slice | range) for part in index):
            parts = ranges(index, self.shape, repr(self))
            if any(isinstance(part, range) for part in parts):
                return View(self, parts)
            index = parts
        index = tuple([self.place(axis, part) for axis, part in enumerate(index)])
        if any(isinstance(part, Vector) for part in index):
            return elementwise(functools.partial(Read, self.own), *index)
        return Read(self.own, *index)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        """A function of torch: of expressions too, or of tensors alone, whose result is another table."""
        if any(isinstance(each, Syntax) for each in args):
            return Syntax.__torch_function__(function, types, args, kwargs)
        return table(function(*map(_source, args), **kwargs or {}))

    def __reduce__(self):
        return frozen_table if self.frozen else table, (np.asarray(self.array), self.name)


def _source(value) -> Any:
    return value.source if isinstance(value, Table) else value


def _on_arrays(name: str):
    def operate(self, *others):
        """The operator on the whole array, which gives another table; with an expression, that decides."""
        if any(isinstance(other, Syntax) for other in others):
            return NotImplemented
        found = getattr(self.source, name)(*map(_source, others))
        return found if found is NotImplemented else table(found)

    return operate


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _prefix in ("", "r"):
        setattr(Table, f"__{_prefix}{_name}__", _on_arrays(f"__{_prefix}{_name}__"))
for _name in ("neg", "abs", "invert", "lt", "le", "gt", "ge"):  # not eq: tables are keys of dictionaries
    setattr(Table, f"__{_name}__", _on_arrays(f"__{_name}__"))


_tables: weakref.WeakValueDictionary[int, Table] = weakref.WeakValueDictionary()
_frozen: weakref.WeakValueDictionary[str, Table] = weakref.WeakValueDictionary()


def table(array: ArrayLike | Table, name: str = "table") -> Table:
    """An array that expressions can read, as a view. Indices are clamped; a constant -1 is the last element.

    Args:
        array: a NumPy array, nested lists, or a torch tensor, of booleans, integers or floats.
        name: the name in the text of expressions.

    Returns:
        The table. Index it with one integer expression per axis.

    Raises:
        Refused: the dtype is not supported, or the array is empty.

    Examples:
        >>> import numpy as np, regard as rg
        >>> allowed = np.tri(8, dtype=bool)
        >>> rg.table(allowed, "allowed")[rg.query, rg.key] & (rg.key > 0)
        allowed[query, key] & (key > 0)
    """
    if isinstance(array, Table):
        return array
    if tracing(array):
        return called("table", array, name)  # type: ignore[return-value] # Traced, in place of Expr
    with _lock:
        source: Any = array
        known = _tables.get(id(source))
        if known is not None and known.source is not source:
            known = None
        if known is not None and elsewhere(source) and known.array.shape == tuple(source.shape):
            return known  # the GPU engine copies what is needed in each call
        numbers = readable(source)
        # A tensor may have new memory since then: t.data = …
        if known is not None and known.array.__array_interface__ == numbers.__array_interface__:
            return known
        made = Table(source, numbers, name)
        # A list is copied, so the next call reads it again.
        if isinstance(source, np.ndarray) or hasattr(source, "detach"):
            _tables[id(source)] = made
        return made


def frozen_table(array, name: str = "table") -> Table:
    """A table with an immutable copy of the array, so that plans that depend on it can be cached.

    Small arrays of the same name and content share one table, so that rules over them are the same object.
    """
    numbers = np.array(readable(read_array(array, "table")))
    numbers.flags.writeable = False
    made = Table(numbers, numbers, name, frozen=True)
    with _lock:
        return _frozen.setdefault(made.digest, made)


class Read(Expr):
    """An element of a table at computed, clamped indices."""

    __slots__ = ("index", "table")
    table: Table
    index: tuple[Expr, ...]

    def __new__(cls, table: Table, *index):
        if len(index) != len(table.shape):
            raise refuse(
                "table",
                "wrong number of indices",
                f"{table!r}[{', '.join(map(str, index))}]",
                f"{len(table.shape)} indices",
                "give one index per axis",
            )
        # A constant -1 means the last element, as everywhere in Python; a computed index is clamped.
        lifted = tuple(
            Const(max(part.value + size, 0))
            if isinstance(part, Const) and part.kind == "int" and part.value < 0
            else part
            for part, size in zip(map(lift, index), table.shape, strict=True)
        )
        if any(part.kind != "int" for part in lifted):
            raise refuse(
                "table",
                "an index is not an integer",
                f"{table!r}[{', '.join(map(str, index))}]",
                "integer expressions",
                "use // for integer division, to_int(x) to truncate, where(condition, 1, 0) for a condition",
            )
        return share(cls, (), table, *lifted, table=table, index=lifted, kind=table.kind)

    @property
    def children(self):
        return self.index

    __reduce__ = reduced


class Op(Expr):
    """An operator of `regard.language.operators` applied to arguments."""

    __slots__ = ("args", "name")
    name: str
    args: tuple[Expr, ...]

    def __new__(cls, name: str, *args):
        row = OPERATORS[name]
        lifted = tuple(map(lift, args))
        for code, arg in zip(row.takes, lifted, strict=True):
            if code == "i" and arg.kind != "int":
                raise refuse(
                    "expression",
                    f"`{row.text}` needs integers",
                    f"`{arg}`, which is {arg.kind}",
                    "integers on both sides",
                    "use to_int(x) to truncate, where(condition, 1, 0) for a condition",
                )
            if code == "b" and arg.kind != "bool":
                raise refuse(
                    "expression",
                    f"`{row.text}` needs conditions",
                    f"`{arg}`, which is {arg.kind}",
                    "a condition, such as key <= query",
                    "compare it with something, or put parentheses around comparisons: (a < b) & (c < d)",
                )
        if name in MIRRORED and isinstance(lifted[0], Const) and not isinstance(lifted[1], Const):
            return Op(MIRRORED[name], *reversed(lifted))  # Python evaluates 3 < key as key > 3
        if name in ("floordiv", "mod") and isinstance(lifted[1], Const) and lifted[1].value == 0:
            left = f"({lifted[0]})" if rank(lifted[0]) < row.precedence else f"{lifted[0]}"
            raise refuse(
                "expression", "division by zero", f"{left} {row.text} 0", "a divisor other than 0", "check the constant"
            )
        if name in SHIFTS and isinstance(lifted[1], Const) and lifted[1].value < 63:
            bits = int(lifted[1].value)
            if bits < 0:
                raise refuse(
                    "expression",
                    "a shift by a negative number",
                    f"`{lifted[0]}` by {bits}",
                    "0 bits or more",
                    "shift back",
                )
            return Op(SHIFTS[name], lifted[0], 1 << bits)  # whose bounds are closer
        kind = row.gives
        if kind == "promote":
            kinds = {arg.kind for code, arg in zip(row.takes, lifted, strict=True) if code == "n"}
            kind = "float" if "float" in kinds else "int"
        return share(cls, (name,), *lifted, name=name, args=lifted, kind=kind)

    @property
    def children(self):
        return self.args

    __reduce__ = reduced


def applied(name: str, *args) -> Expr:
    """An operator on expressions and numbers, or on the elements of vectors."""
    if tracing(*args):
        return operated(name, *args)  # type: ignore[return-value] # Traced, in place of Expr
    if any(not isinstance(arg, Expr) and getattr(arg, "shape", ()) != () for arg in args):
        return elementwise(functools.partial(applied, name), *args)
    if (name in OF_BITS or name == "not") and all(lift(arg).kind == "int" for arg in args):
        return Op("sub", -1, *args) if name == "not" else Op(OF_BITS[name], *args)
    return Op(name, *args)


batch, head, query, key, score = map(Var, ("batch", "head", "query", "key", "score"))


def lift(value) -> Expr:
    """A Python or NumPy scalar, or a tensor with one element, as a node; an expression is returned unchanged."""
    if isinstance(value, Expr | Traced | Vector):
        return value  # type: ignore[return-value] # Traced and Vector, in place of Expr
    if tracing(value):
        return Traced(*text_of(value))  # type: ignore[return-value] # Traced, in place of Expr
    if isinstance(value, bool | int | float):
        return Const(value)
    shape = getattr(value, "shape", None)
    if hasattr(value, "item") and shape == ():
        if getattr(value, "requires_grad", False):
            return table(value.reshape(1), "number")[0]
        number = number_of(value)
        if number is not None:
            return Const(number)
    raise refuse(
        "expression",
        "not a number",
        f"{type(value).__name__}" + (f" of shape {tuple(shape)}" if shape is not None else ""),
        "an expression, a number, or a truth value",
        "to read an array, wrap and index it: table(array)[query, key]",
    )


def fold(root: Expr, const, var, read, op):
    """Evaluates the tree bottom-up: each function maps a node and the results of its children to a result."""
    return fold_all((root,), const, var, read, op, {})[id(root)]


def fold_all(roots: Iterable[Expr], const, var, read, op, meaning: dict[int, Any]) -> dict[int, Any]:
    """The result of `fold` for every node below the roots, by id; `meaning` is filled, children before parents."""
    for node in walk(*roots):
        if isinstance(node, Const | Var):
            found = (const if isinstance(node, Const) else var)(node)
        elif isinstance(node, Read):
            found = read(node, *(meaning[id(part)] for part in node.index))
        else:
            assert isinstance(node, Op)
            found = op(node, *(meaning[id(arg)] for arg in node.args))
        meaning[id(node)] = found
    return meaning


def replace_tables(root: Expr, replace: Callable[[Table], Table]) -> Expr:
    """The expression with other tables in the place of its own."""

    def itself(leaf: Expr) -> Expr:
        return leaf

    def read(node: Read, *index: Expr) -> Expr:
        other = replace(node.table)
        return node if other is node.table else Read(other, *index)

    return fold(root, itself, itself, read, lambda node, *args: Op(node.name, *args))


def tables_of(*roots: Expr) -> dict[str, Table]:
    """The tables that an expression reads, by their names in its text: `eval(repr(e), names | tables_of(e)) is e`."""
    named: dict[str, Table] = {}
    for node in walk(*roots) if any(root.tables for root in roots) else ():
        if isinstance(node, Read) and not any(node.table is known for known in named.values()):
            name, count = node.table.name, 2
            while name in named:
                name, count = f"{node.table.name}_{count}", count + 1
            named[name] = node.table
    return named


def text(root: Expr, limit: float = float("inf")) -> str:
    """The expression as Python code that builds it; text beyond the limit is replaced by …."""
    return written(root, {id(found): name for name, found in tables_of(root).items()}, limit)
