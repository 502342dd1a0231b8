"""Fingerprints of functions: hashes of everything that a trace of a function can depend on.

A fingerprint covers the bytecode of the function and of every Python function in its reach, the values that these
capture, and the attributes of modules that their code names. Reach ends at what the versions of Python, NumPy, SciPy
and this package determine: listed functions in C, operators, and functions of this package.

Everything else is refused: unknown objects and functions in C, code that finds objects by computed names (`getattr`,
`import`, `__dict__`), and operators that users register. A function that changes what it captures gets another
fingerprint, so the caller compares the fingerprints before and after a trace.
"""

# tests: tests/compiling/test_cache.py
from __future__ import annotations

import builtins
import functools
import hashlib
import os
import platform
import re
import struct
import sys
from opcode import opmap
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

import pydispatch
from pydispatch import _core, _sites
from pydispatch._core import ArrayFunction, CompiledFunction, OpOverload, OpOverloadPacket, Tensor
from pydispatch._registry import registrations
from pydispatch.compiling.programs import Mark
from pydispatch.func.functions import TransformedFunction
from pydispatch.higher_order import HigherOrderOperator
from pydispatch.ops import Namespace, Ops
from pydispatch.tree import TreeSpec, is_pytree_node_type

MOST_PARTS = 1 << 16
"""The most parts of a fingerprint. A function that reaches more is refused."""

NAMESPACES = frozenset(("np", "scipy"))
"""The namespaces whose operators are those of this package."""

OURS = tuple([f"pydispatch.{name}" for name in (
    "_core", "_loading", "autograd", "compiling", "exceptions", "func", "higher_order", "modes", "numpy", "operators",
    "ops", "scipy", "tensor", "tree")])
"""The modules of this package that traced functions call."""

PURE_MODULES = frozenset((
    "_collections", "_functools", "_operator", "abc", "cmath", "collections", "functools", "itertools", "math",
    "numbers", "operator"))
"""Modules of Python whose functions and classes depend only on their arguments."""

BY_COMPUTED_NAMES = frozenset((
    "__import__", "attrgetter", "breakpoint", "compile", "delattr", "dir", "eval", "exec", "getattr", "globals", "id",
    "input", "locals", "methodcaller", "open", "setattr", "vars"))
"""Functions of Python that reach objects which no name in the code shows, or whose results differ by process."""

HIDDEN = frozenset(("f_back", "f_builtins", "f_globals", "f_locals"))
"""Attributes that reach objects which no name in the code shows."""

SPECIAL_NAMES = frozenset((
    "__add__", "__call__", "__class__", "__class_getitem__", "__delattr__", "__enter__", "__exit__", "__func__",
    "__getitem__", "__init__", "__iter__", "__len__", "__module__", "__mul__", "__name__", "__post_init__",
    "__qualname__", "__setattr__", "__setitem__", "__sub__", "__wrapped__"))
"""The special names that code may use."""

CREATION = frozenset((
    "arange", "array", "asanyarray", "asarray", "ascontiguousarray", "broadcast_shapes", "diag_indices", "empty", "eye",
    "full", "identity", "indices", "isscalar", "issubdtype", "iterable", "mask_indices", "ones", "promote_types",
    "tri", "tril_indices", "triu_indices", "zeros"))
"""Functions of NumPy that do not look for `__array_function__`, and depend only on their arguments."""

SKIPPED = frozenset((
    "__abstractmethods__", "__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__",
    "__dataclass_fields__", "__dataclass_params__", "__dict__", "__doc__", "__firstlineno__",
    "__module__", "__orig_bases__", "__qualname__", "__static_attributes__", "__weakref__"))
"""Attributes of classes that code in reach cannot use, or that others determine."""

_IMMUTABLE = frozenset((float, tuple, frozenset, slice, TreeSpec, Mark))
"""Types whose equal objects are the same for a trace. Constants are merged or not, depending on who loads the code."""
_ATOMS = frozenset((type(None), bool, int, complex, str, bytes, type(Ellipsis), type(NotImplemented)))
_DISPATCHER = type(np.sum)
_ABSENT = object()


class CannotFingerprintError(Exception):
    """A function reaches something that no fingerprint covers. The message names it."""


def fingerprint(*values: Any) -> str:
    """Return a hash of these values, of everything that they reach, and of the versions of what runs them."""
    found = _Fingerprint()
    found.add(values, "it")
    found.finish()
    return _hash((versions(), found.parts))


def _hash(parts: tuple[Any, ...]) -> str:
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


@functools.cache
def versions() -> str:
    """Return a hash of what identifies this package, Python, NumPy and the processor."""
    features = np._core._multiarray_umath.__cpu_features__      # type: ignore[attr-defined]
    core = os.stat(_core.__file__)
    package = os.path.dirname(pydispatch.__file__)
    is_checkout = os.path.exists(f"{package}/../pyproject.toml")
    return _hash((pydispatch.__version__, core.st_size, core.st_mtime_ns, _files(package) if is_checkout else None,
                  sys.version, platform.machine(), np.__version__, features))


def _files(folder: str) -> list[Any]:
    """Return sizes and times of the package's files. In a checkout, they change without a new version."""
    found: list[Any] = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.endswith(".py"):
            status = entry.stat()
            found.append((entry.name, status.st_size, status.st_mtime_ns))
        elif "." not in entry.name and not entry.name.startswith("__"):
            found += entry.name, _files(entry.path)
    return found


class _Fingerprint:
    """The parts of a fingerprint, whose text is hashed.

    Atoms are themselves. Other values begin with their class, which atoms are not, and have as many parts as follow
    from that and from a number behind it. The number of a value that was added before is in a set. An empty list is in
    place of a value that is absent, and at the end of a class.
    """

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self._seen: dict[int, tuple[int, Any]] = {}         # the objects are kept, so that their ids stay theirs
        self._modules: dict[str, ModuleType] = {}
        self._names: dict[str, None] = {}
        self._has_ops = False

    def add(self, value: Any, what: str) -> None:
        """Add a value and what it reaches. `what` describes it in messages."""
        cls = type(value)
        if cls in _ATOMS:
            if value == "now" or value == "today":
                raise CannotFingerprintError("it may use the time")         # np.datetime64("now")
            self.parts.append(value)
            return
        if len(self.parts) > MOST_PARTS:
            raise CannotFingerprintError(f"it reaches more than {MOST_PARTS} objects")
        if cls not in _IMMUTABLE and not isinstance(value, (np.dtype, np.generic)):
            known = self._seen.get(id(value))
            if known is not None:
                self.parts.append({known[0]})
                return
            self._seen[id(value)] = len(self._seen), value
        add = _ADDERS.get(cls)
        if add is not None:
            self.parts.append(cls)
            add(self, value, what)
        elif isinstance(value, type):
            self._add_class(value, what)
        elif isinstance(value, (np.dtype, np.generic)):
            self._add_number(value, what)
        elif isinstance(value, CompiledFunction):
            inner: Any = value
            self._add_sequence((inner.__wrapped__, *inner.backend, inner.static_argnums, inner.donate), what)
        elif _root(cls.__module__) not in ("pydispatch", "numpy") and type(cls) is type and _has_only_attributes(cls):
            self.parts.append(object)
            self.add(cls, f"the class of {what}")
            self._add_attributes(value, what)
        else:
            raise _refusal(value, what)

    def finish(self) -> None:
        """Add the attributes of modules in reach that code in reach names, and check that no others matter."""
        done: set[tuple[str, str]] = set()
        while True:
            left = [(module, name) for module in list(self._modules) for name in list(self._names)
                    if (module, name) not in done]
            if not left:
                break
            done.update(left)
            for module, name in left:
                self._add_attribute_of_module(module, name)
        if self._has_ops:
            for name in self._names:
                if name in registrations.packets and name not in NAMESPACES:
                    raise CannotFingerprintError(f"it may call operators of the namespace {name}")
        _check_registrations()

    # --- containers ---

    def _add_sequence(self, values: Any, what: str) -> None:
        self.parts.append(len(values))
        for i, value in enumerate(values):
            self.add(value, what if what == "it" else f"{what}[{i}]")

    def _add_dict(self, value: dict[Any, Any], what: str) -> None:
        self.parts.append(len(value))
        for key, item in value.items():
            self.add(key, f"a key of {what}")
            self.add(item, f"{what}[{key!r}]")

    def _add_set(self, value: Any, what: str) -> None:
        if not all(type(item) in _ATOMS for item in value):
            raise _refusal(value, what)
        self.parts.append(sorted([(type(item).__name__, repr(item)) for item in value]))

    def _add_slice(self, value: slice, what: str) -> None:
        self._add_sequence((value.start, value.stop, value.step), what)

    # --- numbers and arrays ---

    def _add_float(self, value: float, what: str) -> None:
        self.parts.append(value.hex() if value == value else struct.pack("d", value))

    def _add_number(self, value: Any, what: str) -> None:
        dtype = value if isinstance(value, np.dtype) else value.dtype
        if dtype.kind not in "biufcmM" or dtype.metadata:
            raise _refusal(value, what)
        self.parts += (np.dtype if dtype is value else np.generic, dtype.str)
        if dtype is not value:
            self.parts.append(value.tobytes())

    def _add_array(self, value: np.ndarray[Any, Any], what: str) -> None:
        self._add_number(value.dtype, what)
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
        self.parts += (value.shape, value.strides, value.flags.writeable, hashlib.blake2b(data).digest())

    def _add_tensor(self, value: Tensor, what: str) -> None:
        if _core.is_tracked_anywhere(value) or value.requires_grad or type(value.array) is not np.ndarray:
            raise _refusal(value, what)
        self.parts.append(_core.is_scalar(value))
        self._add_array(value.array, what)

    # --- functions ---

    def _add_function(self, function: FunctionType, what: str) -> None:
        scope = function.__globals__
        module = str(scope.get("__name__"))
        self.parts += (module, function.__qualname__)
        if _is_within(module, OURS) or module in PURE_MODULES:
            if module == "pydispatch._loading":         # it fills in its variables at the first call
                return
        elif _root(module) == "numpy":
            if function.__name__ not in CREATION:
                raise _refusal(function, what)
        elif _root(module) == "pydispatch":
            raise _refusal(function, what)
        else:
            if getattr(function, "__builtins__", None) is not vars(builtins):
                raise _refusal(function, what)
            self._add_code(function.__code__, what)
            for name in _names_in(function.__code__):
                self._add_named(name, scope)
            self._add_dict(vars(function), f"attributes of {what}")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:
                self.parts.append([])
                continue
            self.add(content, name)
        self.add(function.__defaults__, f"a default of {what}")
        self.add(function.__kwdefaults__, f"a default of {what}")

    def _add_code(self, code: CodeType, what: str) -> None:
        """Add a code object. Its lines are part of it, since error messages name them."""
        if opmap["IMPORT_NAME"] in code.co_code[::2]:
            raise CannotFingerprintError(f"{what} imports a module when it is called (at {code.co_filename}:"
                                         f"{code.co_firstlineno})")
        self.parts += (
            code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags,
            code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_exceptiontable, code.co_name,
            code.co_filename, code.co_firstlineno, code.co_linetable, len(code.co_consts))
        for constant in code.co_consts:
            if type(constant) is CodeType:
                self._add_code(constant, what)
            else:
                self.add(constant, f"a constant of {what}")
                if type(constant) is str and "{" in constant:       # "{0.name}".format(module)
                    self._names |= dict.fromkeys(re.findall(r"[A-Za-z_]\w*", constant))

    def _add_named(self, name: str, scope: dict[str, Any]) -> None:
        """Add what a name in code may refer to: a global, a built-in, and attributes of modules and objects."""
        if name in HIDDEN or (name.startswith("__") and name.endswith("__") and name not in SPECIAL_NAMES
                              and name not in scope):
            raise CannotFingerprintError(f"it uses {name}")
        self._names[name] = None
        value = scope.get(name, _ABSENT)
        if value is _ABSENT:
            value = vars(builtins).get(name, _ABSENT)
        if value is _ABSENT:
            self.parts.append([])
        else:
            self.add(value, name)

    def _add_builtin(self, value: BuiltinFunctionType, what: str) -> None:
        owner = value.__self__
        self.parts.append(value.__name__)
        if owner is not None and not isinstance(owner, ModuleType):
            if type(owner) not in (dict, list, tuple, str):
                raise _refusal(value, what)
            self.add(owner, what)
        elif value.__name__ in BY_COMPUTED_NAMES:
            raise CannotFingerprintError(f"it may call {value.__name__}")
        elif value.__module__ in (*PURE_MODULES, "builtins") or _is_within(value.__module__, OURS) or (
                _root(value.__module__) == "numpy" and value.__name__ in CREATION):
            self.parts.append(value.__module__)
        else:
            raise _refusal(value, what)

    def _add_method(self, value: MethodType, what: str) -> None:
        self.add(value.__func__, what)
        self.add(value.__self__, f"the object of {what}")

    def _add_partial(self, value: functools.partial[Any], what: str) -> None:
        self.add((value.func, value.args, value.keywords, vars(value)), what)

    def _add_named_object(self, value: Any, what: str) -> None:
        """Add a universal function, or another function of NumPy's that its name leads to."""
        name = str(value.__name__)
        for module in ("numpy", "numpy.linalg", "numpy.fft", "scipy.special"):
            if getattr(sys.modules.get(module), name, None) is value:
                self.parts += (module, name)
                if module.startswith("scipy"):
                    self._add_scipy()
                return
        raise _refusal(value, what)

    # --- objects of this package ---

    def _add_operator(self, value: Any, what: str) -> None:
        name = str(value)
        if value.namespace not in NAMESPACES:
            raise _refusal(value, what)
        self.parts.append(name)
        if value.namespace == "scipy":
            self._add_scipy()

    def _add_higher_order(self, value: HigherOrderOperator, what: str) -> None:
        if not _is_within(str(value._module), OURS):
            raise _refusal(value, what)
        self.parts += (value.name, value._module)

    def _add_array_function(self, value: ArrayFunction, what: str) -> None:
        self.parts.append(repr(value))
        if "pydispatch.scipy" in self.parts[-1]:
            self._add_scipy()

    def _add_transformed(self, value: TransformedFunction, what: str) -> None:
        self.add(value._made_by, what)

    def _add_namespace(self, value: Any, what: str) -> None:
        self._has_ops = True
        if isinstance(value, Namespace):
            name = value.__reduce__()[1][0]
            if name not in NAMESPACES:
                raise _refusal(value, what)
            self.parts.append(name)

    def _add_scipy(self) -> None:
        self.parts += ("scipy", str(getattr(sys.modules.get("scipy"), "__version__", "")))

    # --- classes and their objects ---

    def _add_class(self, cls: type, what: str) -> None:
        self.parts += (type, cls.__module__, cls.__qualname__)
        if cls.__module__ == "builtins":
            return
        root = _root(cls.__module__)
        if cls.__name__ in BY_COMPUTED_NAMES:
            raise CannotFingerprintError(f"it may call {cls.__name__}")
        if cls.__module__ in PURE_MODULES or _is_within(cls.__module__, OURS) or (
                root == "numpy" and issubclass(cls, (np.generic, np.ndarray, np.dtype, np.errstate))
                and not issubclass(cls, np.memmap)):
            return
        if root in ("numpy", "pydispatch") or type(cls) is not type or is_pytree_node_type(cls):
            raise _refusal(cls, what)
        self.add(cls.__bases__, f"a base of {cls.__name__}")
        for key, value in vars(cls).items():
            if key in SKIPPED or _is_made_by_dataclass(value) or type(value).__name__ == "FunctionParts":
                continue
            self.parts.append(key)
            kind = type(value)
            if kind is staticmethod or kind is classmethod:
                self.parts.append(kind.__name__)
                value = value.__func__
            elif kind is property:
                value = ("property", value.fget, value.fset, value.fdel)
            elif kind is functools.cached_property:
                value = ("cached_property", value.func)
            elif kind is MemberDescriptorType:
                value = "slot"
            self.add(value, f"{cls.__name__}.{key}")
        self.parts.append([])

    def _add_attributes(self, value: Any, what: str) -> None:
        held = dict(getattr(value, "__dict__", {}))
        for base in type(value).__mro__:
            held |= {name: getattr(value, name) for name, slot in vars(base).items()
                     if isinstance(slot, MemberDescriptorType) and hasattr(value, name)}
        self.parts.append(len(held))
        for name, item in held.items():
            self.parts.append(name)
            self.add(item, f"{what}.{name}")

    # --- modules ---

    def _add_module(self, module: ModuleType, what: str) -> None:
        name = module.__name__
        self.parts.append(name)
        if sys.modules.get(name) is not module or (_root(name) == "pydispatch" and name != "pydispatch"
                                                   and not _is_within(name, OURS)):
            raise _refusal(module, what)
        if _root(name) == "scipy" or name.startswith("pydispatch.scipy"):
            self._add_scipy()
        self._modules[name] = module

    def _add_attribute_of_module(self, module: str, name: str) -> None:
        held = vars(self._modules[module])
        value = held.get(name, _ABSENT)
        if _root(module) in ("pydispatch", "numpy"):
            self._check_known_attribute(module, name, value)
        elif value is not _ABSENT and value is not self._modules[module]:
            self.parts += (module, name)
            self.add(value, f"{module}.{name}")
        elif value is _ABSENT and _root(module) != "scipy" and "__getattr__" in held:
            raise CannotFingerprintError(f"the module {module} finds attributes by a function")

    def _check_known_attribute(self, module: str, name: str, value: Any) -> None:
        """Check an attribute of this package or NumPy, which the version determines unless a user has replaced it.

        Whether it was loaded already must make no difference.
        """
        if value is _ABSENT and module.startswith("pydispatch.numpy"):      # it may be passed on from NumPy
            value = vars(sys.modules.get(module.removeprefix("pydispatch."), builtins)).get(name)
            if not isinstance(value, (FunctionType, BuiltinFunctionType, ModuleType)):
                return
        elif value is _ABSENT:
            value = sys.modules.get(f"{module}.{name}")
        if isinstance(value, FunctionType) and _root(value.__globals__["__name__"]) not in ("pydispatch", "numpy"):
            self.parts += (module, name)
            self.add(value, f"{module}.{name}")
        elif isinstance(value, ModuleType):
            own = _Fingerprint()
            own._add_module(value, f"{module}.{name}")
            self._modules |= own._modules
        elif not _is_within(type(value).__module__, OURS) or isinstance(value, Ops):
            own = _Fingerprint()
            own.add(value, f"{module}.{name}")
            self._has_ops |= own._has_ops


def _root(module: str) -> str:
    return str(module).partition(".")[0]


def _is_within(module: str, packages: tuple[str, ...]) -> bool:
    return module.startswith("pydispatch") and any(module == one or module.startswith(f"{one}.") for one in packages)


def _has_only_attributes(cls: type) -> bool:
    """Return whether the objects of a class hold only attributes: no C code defines a part of them."""
    slots = sum(isinstance(part, MemberDescriptorType) for base in cls.__mro__ for part in vars(base).values())
    pointers = slots + (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0)
    return cls.__basicsize__ == object.__basicsize__ + pointers * struct.calcsize("P") and not cls.__itemsize__


def _is_made_by_dataclass(value: Any) -> bool:
    return type(value) is FunctionType and value.__globals__.get("__name__") in ("dataclasses", "reprlib")


@functools.cache
def _names_in(code: CodeType) -> tuple[str, ...]:
    inner = [name for part in code.co_consts if isinstance(part, CodeType) for name in _names_in(part)]
    return tuple(dict.fromkeys((*code.co_names, *inner)))


def _refusal(value: Any, what: str) -> CannotFingerprintError:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    shown = f"{what}, {_core.a_type(value)}" if name is None or name == what else (
        f"{name}, {_core.a_type(value)}" if what == "it" else f"{what}, the {type(value).__name__} {name}")
    return CannotFingerprintError(f"it may use {shown}")


def _check_registrations() -> None:
    """Raise CannotFingerprintError if users have changed what operators of this package do."""
    for name in registrations.outside:
        op = registrations.operators.get(name)
        if name.partition("::")[0] in NAMESPACES and op and any(map(registrations.is_outside, op.registrations)):
            raise CannotFingerprintError(f"{name} has registrations by other code")
    if registrations.fallbacks:
        raise CannotFingerprintError("a fallback is registered")
    for (kind, target), site in list(_sites._sites.items()):
        is_ours = getattr(target, "namespace", "np") in NAMESPACES      # others are refused where they are reached
        if kind == "decomposition of" and is_ours and _root(site.module) != "pydispatch":
            raise CannotFingerprintError(f"a decomposition of {target} is registered")


_ADDERS: dict[type, Any] = {
    tuple: _Fingerprint._add_sequence, list: _Fingerprint._add_sequence, TreeSpec: _Fingerprint._add_sequence,
    dict: _Fingerprint._add_dict, set: _Fingerprint._add_set, frozenset: _Fingerprint._add_set,
    slice: _Fingerprint._add_slice, float: _Fingerprint._add_float,
    np.ndarray: _Fingerprint._add_array, Tensor: _Fingerprint._add_tensor,
    FunctionType: _Fingerprint._add_function, BuiltinFunctionType: _Fingerprint._add_builtin,
    MethodType: _Fingerprint._add_method, functools.partial: _Fingerprint._add_partial,
    np.ufunc: _Fingerprint._add_named_object, _DISPATCHER: _Fingerprint._add_named_object,
    OpOverload: _Fingerprint._add_operator, OpOverloadPacket: _Fingerprint._add_operator,
    HigherOrderOperator: _Fingerprint._add_higher_order, ArrayFunction: _Fingerprint._add_array_function,
    TransformedFunction: _Fingerprint._add_transformed, Ops: _Fingerprint._add_namespace,
    Namespace: _Fingerprint._add_namespace, ModuleType: _Fingerprint._add_module,
    Mark: lambda self, value, what: self.parts.append(value.name),
}
