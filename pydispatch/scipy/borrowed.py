"""Functions that SciPy writes in Python, run on Tensors: copies of its modules, with other namespaces for its imports.

A module that SciPy writes in Python is a NumPy program. Its copy is the same code, executed once more, in which
`import numpy` gives `pydispatch.numpy`, a SciPy name that is declared here gives our function, and SciPy's other
modules in Python give their copies. Compiled modules, exceptions and everything else are the originals. A copy is made
when one of its functions first meets a Tensor: arrays are SciPy's own function's, as everywhere.

Code that needs values, such as a branch that depends on an element, raises the same errors as a user's code. Under
`vmap`, such code runs example by example.
"""

# tests: tests/scipy/test_borrowed.py
from __future__ import annotations

import ast
import builtins
import copyreg
import inspect
import math
import operator
import warnings
from collections.abc import Callable, Iterable
from contextvars import Context
from functools import cached_property, partial
from importlib import import_module
from importlib.machinery import SourceFileLoader
from threading import RLock
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy

import pydispatch.numpy as pnp
from pydispatch._core import Tensor
from pydispatch.autograd.values import as_tensor
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import COMPOSITE, CONSTANT, OF_NUMPY, REFUSED, read_off
from pydispatch.scipy.batches import all_as_tensors, by_example_if_needed
from pydispatch.scipy.classes import Batching, build_class
from pydispatch.scipy.pack import FACE, PASSED_ON
from pydispatch.tree import tree_leaves, tree_map

COPIES: dict[str, ModuleType] = {}
"""The copies of modules, by name. One that a thread makes is there before it is whole: `making_copies` guards them."""
making_copies = RLock()

FACES: dict[str, ModuleType] = {}
"""What a copy sees in place of public modules, by name."""

OF_NO_ARRAYS = ("scipy._lib._docscrape", "scipy._lib._uarray", "scipy._lib.deprecation", "scipy._lib.doccer",
                "scipy.fft._backend")
"""Modules in Python that compute nothing, or keep a state that has to be the original's."""


class ModuleFace(ModuleType):
    """A public module as a copy of SciPy's code sees it: our functions, then copies of SciPy's, then the originals."""

    def __init__(self, name: str, original: Any) -> None:
        super().__init__(name)
        self.__dict__["original"] = original
        self.__dict__["ours"] = module_or_none(OURS.get(name, f"pydispatch.{name}"))

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = self.find(name)
        return value

    def find(self, name: str) -> Any:
        """Return the object of this name."""
        path = f"{self.__name__}.{name}".removeprefix("scipy.")
        if self.__name__ == "numpy" and not hasattr(self.original, name):       # newer than the installed NumPy
            return getattr(copy_of("scipy._lib.array_api_compat.numpy"), name)
        original = getattr(self.original, name)
        if isinstance(original, ModuleType):
            return namespace(original.__name__, original)
        if self.__name__ == "numpy" and name in FILLED:
            return as_filled(getattr(self.ours, name))
        if self.__name__ == "numpy" and name == "astype":
            return astype
        if path == "numpy.may_share_memory":    # of arrays without data too
            return operator.is_
        if name in getattr(self.ours, "__all__", ()) and path not in BORROWED and (
                FACE.kinds.get(path) not in (REFUSED, FOR_ARRAYS)):
            return getattr(self.ours, name)
        return copied_object(original, name)


FILLED = ("empty", "empty_like", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like")
"""NumPy's functions that make arrays to write to."""


def as_filled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose arrays take values with gradients."""
    return lambda *args, **kwargs: as_tensor(function(*args, **kwargs))


def astype(x: Any, dtype: Any, /, **options: Any) -> Any:
    """Convert an array or a scalar, which `numpy.astype` refuses before NumPy 2.1."""
    return pnp.astype(numpy.asarray(x) if isinstance(x, numpy.generic) else x, dtype, **options)


def module_or_none(name: str) -> ModuleType | None:
    """Import a module, if it exists."""
    try:
        return import_module(name) if name else None
    except ModuleNotFoundError:
        return None


def namespace(name: str, original: Any = None) -> Any:
    """Return what a copy sees in place of a module."""
    if not is_of_library(name) or (is_private(name) and name.startswith("numpy")):
        return original or import_module(name)
    if is_private(name) and name not in OURS:
        return copy_of(name) or import_module(name)
    if name not in FACES:
        FACES[name] = ModuleFace(name, original or import_module(name))
    return FACES[name]


def is_of_library(name: str) -> bool:
    return name.partition(".")[0] in ("numpy", "scipy")


def is_private(name: str) -> bool:
    return "._" in name


def copied_object(original: Any, name: str) -> Any:
    """Return a function, class or other object from the copy of its module, or the original if there is none."""
    module = getattr(original, "__module__", None)
    if not isinstance(module, str) or not module.startswith("scipy."):
        return original
    return getattr(copy_of(module), getattr(original, "__name__", name), original)


def copy_of(name: str) -> Any:
    """Return the copy of a module, or None if it is not written in Python."""
    with making_copies:
        if name not in COPIES and is_private(package := name.rpartition(".")[0]):
            copy_of(package)    # its modules may import one another through it, as when SciPy was imported
        return COPIES[name] if name in COPIES else new_copy(name)


def new_copy(name: str) -> ModuleType | None:
    """Run the code of a module once more, if it is written in Python."""
    original = import_module(name)
    spec = original.__spec__
    if spec is None or not isinstance(spec.loader, SourceFileLoader) or name in OF_NO_ARRAYS:
        return None
    copy = COPIES[name] = ModuleType(name, original.__doc__)
    copy.__dict__.update({key: value for key, value in vars(original).items() if key in MODULE_ATTRIBUTES},
                         __builtins__={**vars(builtins), "__import__": import_for_copy, "as_float": as_float})
    if name in WITH_CLASSES:
        copy.__dict__["__builtins__"]["__build_class__"] = build_class
    code: Any = rewritten(spec.loader, name) if name in REWRITTEN else spec.loader.get_code(name)
    try:
        Context().run(exec, code, copy.__dict__)    # its constants belong to no transform that is active now
    except BaseException:
        del COPIES[name]
        raise
    copy.__dict__.update({key: value for key, value in vars(original).items() if is_shared(value)})
    copy.__dict__.update({key: OF_NUMPY[value].public for key, value in vars(original).items() if is_ours(value)})
    if name in REPLACED_LATER:
        import_module(REPLACED_LATER[name])
    copy.__dict__.update(REPLACED.get(name, {}))
    return copy


WITH_CLASSES = (
    *[f"scipy.interpolate.{name}" for name in ("_bary_rational", "_cubic", "_interpolate", "_polyint", "_rbf",
                                               "_rbfinterp", "_rgi")],
    "scipy.signal._czt", "scipy.signal._ltisys", "scipy.signal._short_time_fft", "scipy.spatial.transform._rotation",
    "scipy.spatial.transform._rigid_transform", "scipy.spatial.transform._rotation_spline", "scipy.stats._kde")
"""Modules whose classes are public: their objects are pytree nodes, and have batches."""

REWRITTEN = ("scipy.signal._filter_design", "scipy.signal._short_time_fft", "scipy.signal._waveforms")
"""Modules that call `float`, or make their arrays read-only."""


class ForTensors(ast.NodeTransformer):
    """Replaces calls of `float` in a module by those of `as_float`, and removes calls of `array.setflags`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "float":
            node.func.id = "as_float"
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "setflags":
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)


def rewritten(loader: SourceFileLoader, name: str) -> Any:
    """Compile a module for Tensors."""
    return compile(ForTensors().visit(ast.parse(loader.get_source(name) or "")), loader.path, "exec")


def as_float(value: Any = 0.0) -> Any:
    """Convert a value like `float`, but a Tensor to one of floating-point numbers."""
    if not isinstance(value, Tensor):
        return float(value)
    return value if value.dtype.kind == "f" else value.astype(float)


MODULE_ATTRIBUTES = ("__file__", "__package__", "__path__", "__spec__")


def is_ours(value: Any) -> bool:
    """Return whether a SciPy function is declared here and does not run SciPy's code."""
    return (isinstance(value, FunctionType) and value in OF_NUMPY and value.__module__.startswith("scipy.")
            and OF_NUMPY[value].__dict__["__wrapped__"].__class__ not in (Borrowed, ForArrays))


def is_shared(value: Any) -> bool:
    """Return whether a copy has the original of a class: of exceptions, and of results, which users compare."""
    return isinstance(value, type) and issubclass(value, (BaseException, dict))


def import_for_copy(name: str, variables: Any = None, local: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    """Import a module for a copy, as `__import__` does."""
    if level:
        packages = variables["__package__"].split(".")
        name = ".".join([*packages[:len(packages) - level + 1], *([name] if name else [])])
    if not is_of_library(name):
        return builtins.__import__(name, variables, local, fromlist)
    if not fromlist:
        module_or_none(name)
        return namespace(name.partition(".")[0])
    found = namespace(name, module_or_none(name) or attribute_of_parent(name))
    for each in fromlist:
        if each != "*" and not hasattr(found, each):
            setattr(found, each, namespace(f"{name}.{each}"))
    return found


def attribute_of_parent(name: str) -> Any:
    """Return a module that another one has as an attribute only, such as `numpy.emath`."""
    parent, _, base = name.rpartition(".")
    return getattr(import_module(parent), base)


# --- what cannot run on Tensors --------------------------------------------------------------------------------------


def apply_where(cond: Any, args: Any, f1: Callable[..., Any], f2: Callable[..., Any] | None = None, /, *,
                fill_value: Any = None, xp: Any = None) -> Any:
    """Compute one function where a mask is true and another one elsewhere, without indexing by the mask.

    Each function gets ones in place of the elements that are not its own, so no derivative of these is nan.
    """
    cond, *args = pnp.broadcast_arrays(cond, *(args if isinstance(args, tuple) else (args,)))
    with numpy.errstate(all="ignore"):
        found = f1(*[pnp.where(cond, arg, 1) for arg in args])
        others = fill_value if f2 is None else f2(*[pnp.where(cond, 1, arg) for arg in args])
    return pnp.where(cond, found, others)


def lazywhere(cond: Any, arrays: Any, f: Callable[..., Any], fillvalue: Any = None,
              f2: Callable[..., Any] | None = None) -> Any:
    """Compute as `apply_where`, which older versions of SciPy call by this name."""
    return apply_where(cond, tuple(arrays), f, f2, fill_value=fillvalue)


def lazyselect(condlist: Any, choicelist: Any, arrays: Any, default: Any = 0) -> Any:
    """Compute the function of the last mask that is true, and a number where none is."""
    found = default
    for function, cond in zip(choicelist, condlist, strict=False):
        if cond is not False:
            found = apply_where(cond, tuple(arrays), function, fill_value=found)
    return found


class MathFace:
    """The module `math`, whose functions take Tensors too."""

    def __getattr__(self, name: str) -> Any:
        original = getattr(math, name)
        return (lambda *args: getattr(pnp, name)(*args) if any(isinstance(arg, Tensor) for arg in args) else
                original(*args)) if callable(original) else original


REPLACED: dict[str, dict[str, Any]] = {
    "scipy.signal._filter_design": {"math": MathFace()},
    "scipy._lib._util": {"_lazyselect": lazyselect, "_lazywhere": lazywhere},
    "scipy._lib.array_api_compat.common._helpers": {"is_writeable_array": lambda x: x.flags.writeable},
    "scipy._lib.array_api_extra": {"apply_where": apply_where},
    "scipy._lib._array_api": {"array_namespace": lambda *args, **kwargs: namespace("numpy")},
}
"""By module, what its copy has in place of functions that index by masks, or that ask for the class of an array."""

REPLACED_LATER = {
    **dict.fromkeys(("scipy.interpolate._ndgriddata", "scipy.interpolate._rbfinterp", "scipy.interpolate._rbfinterp_xp",
                     "scipy.interpolate._rgi"), "pydispatch.scipy.interpolants"),
    **dict.fromkeys(("scipy.stats._kde", "scipy.stats._morestats"), "pydispatch.scipy.stats.numerics")}
"""By module, ours that adds its functions to `REPLACED` when it is imported."""

OURS = {"scipy.special._ufuncs": "pydispatch.scipy.special.private", "scipy.stats": "",
        **dict.fromkeys(("scipy.ndimage._nd_image", "scipy.ndimage._rank_filter_1d"), "pydispatch.scipy.images")}
"""The module with our functions, where it has another name. Copies of distributions use one another's formulas."""

# --- functions -------------------------------------------------------------------------------------------------------

BORROWED: set[str] = set()
"""The functions that run SciPy's code, by their names in SciPy."""


CLASSES: dict[str, Callable[[], type]] = {}
"""For public classes that take Tensors, functions that return them."""


def borrow_classes(family: str, names: str) -> None:
    """Declare classes of a family that run SciPy's code. Names that the installed SciPy lacks are left out."""
    for name in names.split():
        original = FACE.original(f"{family}.{name}")
        if isinstance(original, type):
            BORROWED.add(f"{family}.{name}")
            CLASSES[f"{family}.{name}"] = partial(public_class, family, original, name)


def public_class(family: str, original: type, name: str) -> Any:
    """Return the copy of a class. Its name, by which its objects are pickled, is that in our module."""
    found = copied_object(original, name)
    for value in (found, *vars(found).values()):
        value = getattr(value, "__func__", value)       # of a method of the class
        if value is found or isinstance(value, FunctionType):
            value.__module__ = f"pydispatch.scipy.{family}"
    return found


def named_class(module: str, name: str) -> Any:
    """Return the class of this name in our module, or in the copy of SciPy's."""
    return getattr(copy_of(module) if module.startswith("scipy.") else import_module(module), name)


copyreg.pickle(Batching, lambda cls: (named_class, (cls.__module__, cls.__qualname__)))


def borrow(family: str, names: str) -> None:
    """Declare functions of a family that run SciPy's code. Names that the installed SciPy lacks are left out."""
    for name in names.split():
        path = f"{family}.{name}"
        original = FACE.original(path)
        if original is not None:
            BORROWED.add(path)
            FACE.declare(path, Borrowed(original), COMPOSITE)


FOR_ARRAYS = "for arrays"
"""The kind of functions that do not take Tensors: SciPy computes them in compiled code, or no test has tried them."""


def publish(family: str, namespace: dict[str, Any], own: Iterable[str] = ()) -> list[str]:
    """Fill the module of a family with SciPy's public names, and return all of them.

    They are the functions declared here, those that the module has by its `own` means, and SciPy's, for arrays.
    """
    library = FACE.original(family)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")         # of deprecated names
        theirs = {name: getattr(library, name) for name in library.__all__ if name not in own}
    for name, value in theirs.items():
        path = f"{family}.{name}"
        if path not in FACE.functions and isinstance(value, (FunctionType, BuiltinFunctionType, numpy.ufunc)):
            declare_for_arrays(path, value)
    ours = {path.removeprefix(f"{family}."): function.public for path, function in FACE.functions.items()
            if path.rpartition(".")[0] == family}
    classes = {name: make for path, make in CLASSES.items()
               if path.rpartition(".")[0] == family and (name := path.rpartition(".")[2])}
    passed_on = {name: value for name, value in theirs.items()
                 if name not in ours and name not in classes and name not in namespace}
    PASSED_ON[family] = tuple(passed_on)
    namespace.update(ours | passed_on)

    def made_when_read(name: str) -> Any:
        if name not in classes:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        value = namespace[name] = classes[name]()
        return value

    if classes:
        namespace["__getattr__"] = made_when_read
    return sorted({*ours, *passed_on, *classes, *own})


def declare_for_arrays(path: str, original: Any) -> None:
    """Declare a function that only takes arrays, or another name of one that is declared."""
    if original in OF_NUMPY and OF_NUMPY[original] in FACE.functions.values():
        same = next(name for name, function in FACE.functions.items() if function is OF_NUMPY[original])
        FACE.functions[path], FACE.kinds[path] = FACE.functions[same], FACE.kinds[same]
    else:
        FACE.declare(path, ForArrays(path, original), FOR_ARRAYS)


def make_constant(family: str, names: str) -> None:
    """Declare functions of a family whose results have no gradients: SciPy computes them from the values."""
    for name in names.split():
        original = FACE.original(f"{family}.{name}")
        if original is not None:
            FACE.declare(f"{family}.{name}", Constant(original), CONSTANT)


class Borrowed:
    """The implementation of a function by the copy of SciPy's."""

    def __init__(self, original: Any) -> None:
        self.__name__ = original.__name__
        self.__doc__ = original.__doc__
        self.original = original

    @cached_property
    def __signature__(self) -> inspect.Signature:
        try:
            return inspect.signature(self.original)
        except ValueError:      # of a function in C without one
            return inspect.signature(lambda *args, **kwargs: None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs))):
            return self.original(*args, **kwargs)
        return all_as_tensors(by_example_if_needed(self.function(), args, kwargs))

    def function(self) -> Callable[..., Any]:
        """Return the function of the copy."""
        return copied_object(self.original, self.__name__)


class ForArrays(Borrowed):
    """The implementation of a function that only takes arrays, those of other backends included."""

    takes_raw = True

    def __init__(self, path: str, original: Any) -> None:
        super().__init__(original)
        self.path = path
        self.__name__ = path.rpartition(".")[2]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs))):
            raise DispatchTypeError(f"scipy.{self.path} does not take a Tensor\n"
                                    "pass an array: tensor.detach().numpy(), or make an operator of the call: "
                                    "pydispatch.library.custom_op")
        return self.original(*args, **kwargs)


class Constant(Borrowed):
    """The implementation of a function without gradients by SciPy's function of the values."""

    def function(self) -> Callable[..., Any]:
        """Return the function of the values of its arguments."""
        return lambda *args, **kwargs: self.original(*tree_map(values_of, args), **tree_map(values_of, kwargs))


def values_of(leaf: Any) -> Any:
    return read_off(leaf) if isinstance(leaf, Tensor) else leaf
