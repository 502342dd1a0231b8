"""Names of dispatch keys: backends, functionalities, runtime keys and alias keys.

A *runtime key* has a slot in every operator's table. A *backend* is a family of arrays. A *functionality* is a layer of
behaviour. Some functionalities exist per backend: CPU's dense kernels have the key `CPU`, its sparse ones `SparseCPU`,
its autograd formulas `AutogradCPU`. A registration under an *alias key* applies to many runtime keys at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

import numpy

from pydispatch import _core
from pydispatch._core import DispatchKeySet, KeyLayout, Tensor
from pydispatch._loading import deferred
from pydispatch._sites import remember, replaces_former
from pydispatch.exceptions import RegistrationError, UnknownKeyError

DENSE, SPARSE, AUTOGRAD, AUTOGRAD_OTHER = "Dense", "Sparse", "Autograd", "AutogradOther"
"""The functionalities that code refers to by name, as in `KeyLayout.functionalities`."""

UNDEFINED = "Undefined"
"""The functionality, and the name, of the key for "no key at all"."""

PER_BACKEND = {     # functionality: prefix of its keys' names
    name: "" if name == DENSE else name
    for name, rank in KeyLayout.functionalities.items() if KeyLayout.is_per_backend(rank)
}


class DispatchKey:
    """A dispatch key: `DispatchKey("CPU")`, or as an attribute, `DispatchKey.CPU`. There is one object per key.

    Raises
    ------
    UnknownKeyError
        If the text names no key.

    Examples
    --------
    >>> from pydispatch import DispatchKey
    >>> DispatchKey("AutogradCPU").backend
    'CPU'
    >>> DispatchKey.Autograd.is_alias
    True
    """

    __slots__ = ("backend", "functionality", "keyset", "name", "slot")

    Undefined: ClassVar[DispatchKey]
    CPU: ClassVar[DispatchKey]
    Meta: ClassVar[DispatchKey]
    BackendSelect: ClassVar[DispatchKey]
    Python: ClassVar[DispatchKey]
    AutogradOther: ClassVar[DispatchKey]
    Autograd: ClassVar[DispatchKey]
    CompositeImplicitAutograd: ClassVar[DispatchKey]
    CompositeExplicitAutograd: ClassVar[DispatchKey]
    CompositeExplicitAutogradNonFunctional: ClassVar[DispatchKey]

    name: str
    slot: int | None            # place in every table, None for an alias
    keyset: DispatchKeySet      # the set of this key only, empty for an alias
    functionality: str | None
    backend: str | None

    def __new__(cls, name: str | DispatchKey) -> DispatchKey:
        return parse_key(name)

    @property
    def is_alias(self) -> bool:
        """Return whether this key is an alias for many runtime keys."""
        return self.slot is None

    @property
    def is_dense(self) -> bool:
        """Return whether this is the key of a backend's dense kernels, such as `CPU`."""
        return self.functionality == DENSE

    @property
    def is_sparse(self) -> bool:
        """Return whether this is the key of a backend's sparse kernels, such as `SparseCPU`."""
        return self.functionality == SPARSE

    @property
    def is_autograd(self) -> bool:
        """Return whether this is a runtime key that Tensors carry for the tape: `AutogradOther`, or a backend's."""
        return self.functionality in (AUTOGRAD, AUTOGRAD_OTHER)

    @property
    def members(self) -> tuple[DispatchKey, ...]:
        """The runtime keys that a registration under this key applies to, in ascending priority."""
        return tuple(key for key in runtime_keys() if covers(self, key)) if self.is_alias else (self,)

    def __repr__(self) -> str:
        return f"DispatchKey.{self.name}"

    def __reduce__(self) -> tuple[type[DispatchKey], tuple[str]]:
        return DispatchKey, (self.name,)


_by_name: dict[str, DispatchKey] = {}
_backends: dict[str, int] = {}                      # name -> rank, the highest wins
_outranked: dict[str, frozenset[str]] = {}          # run-time backend -> those declared below it
_functionalities = dict(KeyLayout.functionalities)  # name -> rank
_runtime_keys: tuple[DispatchKey, ...] = ()         # by slot
_changed: list[Callable[[], None]] = []             # called when a key is added
_lock = _core.registering


def on_new_key(callback: Callable[[], None]) -> None:
    """Register a callback for when a backend or functionality is added."""
    _changed.append(callback)


def _make_key(
    name: str, slot: int | None, functionality: str | None = None, backend: str | None = None
) -> DispatchKey:
    global _runtime_keys
    key = object.__new__(DispatchKey)
    key.name, key.slot, key.functionality, key.backend = name, slot, functionality, backend
    key.keyset = DispatchKeySet.from_word(0 if slot is None else _core.slots()[slot])
    _lock.note(partial(_drop_key, key))
    _by_name[name] = key
    setattr(DispatchKey, name, key)
    if slot is not None:
        _core.name_slot(slot, key)
        _runtime_keys = tuple(sorted((*_runtime_keys, key), key=slot_of))
    return key


def _drop_key(key: DispatchKey) -> None:
    global _runtime_keys
    _by_name.pop(key.name, None)
    if key.name in DispatchKey.__dict__:
        delattr(DispatchKey, key.name)
    if key.slot is not None:
        _core.unname_slot(key.slot)
        _runtime_keys = tuple(other for other in _runtime_keys if other is not key)


def _make_backend(name: str, rank: int) -> None:
    _lock.note(partial(_backends.pop, name, None))
    _backends[name] = rank
    for functionality, prefix in PER_BACKEND.items():
        _make_key(prefix + name, KeyLayout.slot(_functionalities[functionality], rank), functionality, name)


def slot_of(key: DispatchKey) -> int:
    """Return the slot of a runtime key in every table. Raise UnknownKeyError for an alias, which has none."""
    if key.slot is None:
        raise UnknownKeyError(
            f"{key.name} is an alias key, not a runtime key\nname one of its members: DispatchKey.{key.name}.members"
        )
    return key.slot


def runtime_keys() -> tuple[DispatchKey, ...]:
    """Return every named runtime key, Undefined first, in ascending priority."""
    return _runtime_keys


def all_keys() -> tuple[DispatchKey, ...]:
    """Return the runtime keys in ascending priority, then the aliases: the order of a state dump."""
    return runtime_keys() + ALIASES


def backend_names() -> tuple[str, ...]:
    """Return the names of the backends, in ascending priority."""
    return tuple(sorted(_backends, key=lambda name: _backends[name]))


def parse_key(key: str | DispatchKey) -> DispatchKey:
    """Return the key of this name. The name Autograd means the alias."""
    if isinstance(key, DispatchKey):
        return key
    if isinstance(key, str):
        if key in _by_name:
            return _by_name[key]
        if key in SHORT_NAMES:
            return SHORT_NAMES[key]
        if key in (DENSE, SPARSE):
            raise UnknownKeyError(
                f"{key} is a functionality of every backend, not a dispatch key\n"
                f"name the backend, as in {PER_BACKEND[key]}CPU, or register for all: CompositeExplicitAutograd"
            )
    meant = [name for name in (*_by_name, *SHORT_NAMES) if name.lower() == str(key).lower()]
    raise UnknownKeyError(
        f"unknown dispatch key {key!r}\n"
        f"{''.join(f'did you mean {name}? ' for name in meant[:1])}"
        f"keys: {', '.join(name.name for name in all_keys())}. "
        "To add one: pydispatch.register_backend(name, array_type)"
    )


def parse_backend(name: str) -> str:
    """Return the backend of this name, in any case. Raise UnknownKeyError if there is none."""
    if isinstance(name, str):
        for backend in _backends:
            if backend.lower() == name.lower():
                return backend
    raise UnknownKeyError(
        f"unknown backend {name!r}\n"
        f"backends: {', '.join(backend_names())}. To add one: pydispatch.register_backend(name, array_type)"
    )


def backend_bit(name: str) -> int:
    """Return the bit of a backend in the words of key sets."""
    return _by_name[name].keyset.word & KeyLayout.backend_bits


def outranked_by(name: str) -> frozenset[str]:
    """Return the run-time backends that this one was declared above, directly or through others."""
    return _outranked.get(name, frozenset())


def _member(key: str | DispatchKey) -> DispatchKeySet:
    """Return the key set of one key, for the constructor of DispatchKeySet."""
    key = parse_key(key)
    if key.is_alias:
        raise UnknownKeyError(
            f"{key.name} is an alias key and cannot be in a key set\n"
            f"add its members: DispatchKeySet(*DispatchKey.{key.name}.members)"
        )
    return key.keyset


def _names_of_keyset(keys: DispatchKeySet) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return backends and functionalities by name, to pickle: run-time ones have other bits in other processes."""
    return (
        tuple(name for name in _backends if keys.word & backend_bit(name)),
        tuple(name for name, rank in _functionalities.items() if keys.word & KeyLayout.functionality_bit(rank)),
    )


def _keyset_from_names(backends: tuple[str, ...], functionalities: tuple[str, ...]) -> DispatchKeySet:
    word = 0
    for name in backends:
        word |= backend_bit(parse_backend(name))
    for name in functionalities:
        rank = _functionalities[name if name in _functionalities else parse_key(name).name]
        word |= KeyLayout.functionality_bit(rank)
    return DispatchKeySet.from_word(word)


# --- what aliases cover ----------------------------------------------------------------------------------------------


def covers(alias: DispatchKey, key: DispatchKey) -> bool:
    """Return whether a registration under this alias applies to this runtime key (subject to precedence)."""
    return key.functionality in _covered[alias.name] and (
        key.backend != "Meta" or key.is_autograd or alias is DispatchKey.CompositeImplicitAutograd
    )


def backend_keys_of(key: DispatchKey) -> tuple[DispatchKey, ...]:
    """Return the backend keys of an autograd key: dense B for AutogradB, all sparse ones for AutogradOther."""
    if not key.is_autograd:
        return ()
    if key.backend is None:
        return tuple(k for k in runtime_keys() if k.is_sparse)
    return tuple(k for k in runtime_keys() if k.is_dense and k.backend == key.backend)


_covered = {
    "Autograd": {AUTOGRAD_OTHER, AUTOGRAD},
    "CompositeImplicitAutograd": {UNDEFINED, DENSE, SPARSE, AUTOGRAD_OTHER, AUTOGRAD},
    "CompositeExplicitAutograd": {UNDEFINED, DENSE, SPARSE},
    "CompositeExplicitAutogradNonFunctional": {UNDEFINED, DENSE},
}

with _lock:
    _make_key(UNDEFINED, 0, UNDEFINED)
    for _name, _rank in KeyLayout.functionalities.items():
        if _name not in PER_BACKEND:
            _make_key(_name, KeyLayout.slot(_rank), _name)
    _make_backend("CPU", 0)
    _make_backend("Meta", KeyLayout.backends - 1)
    ALIASES = tuple(_make_key(_name, None) for _name in _covered)
SHORT_NAMES = {
    "CIA": DispatchKey.CompositeImplicitAutograd,
    "CEA": DispatchKey.CompositeExplicitAutograd,
    "CEANF": DispatchKey.CompositeExplicitAutogradNonFunctional,
}


# --- registering -----------------------------------------------------------------------------------------------------


def _claim(name: str, taken: Iterable[str]) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise RegistrationError(f"{name!r} is not an identifier\nwrite register_backend('Dask', array_type)")
    clash = set(taken) & set(_by_name) | {name} & {DENSE, SPARSE, *SHORT_NAMES, *dir(DispatchKey)}
    clash |= {backend for backend in _backends if backend.lower() == name.lower()}      # devices are named in any case
    if clash:
        found = name if name in clash else min(clash)
        raise RegistrationError(f"the key name {found!r} is taken\nchoose a name other than {name!r}")


def add_backend(name: str, array_type: type, above: Iterable[str] = ()) -> DispatchKey:
    """Add the keys of a backend. Users call `register_backend`."""
    above = (above,) if isinstance(above, str) else tuple(above)
    with _lock:
        _claim(name, [f"{prefix}{name}" for prefix in PER_BACKEND.values()])
        lower = _all_below(above)
        free = sorted(set(range(KeyLayout.backends)) - set(_backends.values()))     # CPU and Meta have the ends
        if not free:
            raise RegistrationError(
                f"no slot left for backend {name!r}: {', '.join(backend_names())} are registered\n"
                f"a process holds at most {KeyLayout.backends - 2} run-time backends"
            )
        _check_array_type(array_type)
        rank = free[0]
        _lock.note(_tell)
        _set_rank(name, rank, lower)
        _make_backend(name, rank)
        _lock.note(partial(_core.forget_array_type, array_type))
        _core.register_array_type(array_type, _core.slots()[slot_of(_by_name[name])])
        _tell()
        return _by_name[name]


def _all_below(above: Iterable[str]) -> set[str]:
    """Return the backends that one declared above these outranks."""
    lower = {parse_backend(other) for other in above}
    return lower | {further for other in lower for further in outranked_by(other)}


def _set_rank(name: str, rank: int, lower: set[str]) -> None:
    former = _outranked.get(name)
    if former is None:
        _lock.note(partial(_outranked.pop, name, None))
    else:
        _lock.note(partial(_set_rank, name, rank, set(former)))
    _outranked[name] = frozenset(lower)
    _core.rank_backend(rank, DispatchKeySet(*lower))


def replace_backend(name: str, former: type, array_type: type, above: Iterable[str] = ()) -> DispatchKey:
    """Make `array_type`, instead of `former`, the type of a backend's dense arrays, and declare what it is above."""
    above = (above,) if isinstance(above, str) else tuple(above)
    key = _by_name[name]
    word = _core.slots()[slot_of(key)]
    with _lock:
        lower = _all_below(above)
        if name in lower:
            raise RegistrationError(f"backend {name!r} cannot be above itself\nleave it out of `above`")
        if array_type is not former:
            _check_array_type(array_type)
        _lock.note(partial(_core.register_array_type, former, word))
        _core.forget_array_type(former)
        _lock.note(partial(_core.forget_array_type, array_type))
        _core.register_array_type(array_type, word)
        _set_rank(name, _backends[name], lower)
        return key


def register_array_type(array_type: type, backend: str, functionality: str = "Dense") -> None:
    """Register a type as raw arrays of a backend: `register_array_type(scipy.sparse.sparray, "CPU", "Sparse")`.

    Subclasses resolve to their nearest registered base. The code that registered a type may run again, with an
    OverrideWarning.

    Parameters
    ----------
    array_type
        The type.
    backend
        The name of the backend.
    functionality
        "Dense" or "Sparse".

    Raises
    ------
    RegistrationError
        If the type is registered otherwise.
    """
    if functionality not in (DENSE, SPARSE):
        raise RegistrationError(
            f"arrays are Dense or Sparse, not {functionality!r}\n"
            f'write register_array_type({getattr(array_type, "__name__", array_type)}, {backend!r}, "Sparse")'
        )
    key = _by_name[PER_BACKEND[functionality] + parse_backend(backend)]
    with _lock:
        word = _core.registered_word(array_type) if isinstance(array_type, type) else 0
        if word and DispatchKeySet.from_word(word).highest is key and replaces_former("array type", array_type):
            return
        _check_array_type(array_type)
        _lock.note(partial(_core.forget_array_type, array_type))
        _core.register_array_type(array_type, _core.slots()[slot_of(key)])
        remember("array type", array_type)


def register_functionality(name: str) -> DispatchKey:
    """Add a layer of behaviour between Python and autograd (autocast, units, profiling), which a guard enables.

    An operator without a kernel or fallback for it falls through to the layers below. The code that added it may run
    again: it gets the same key, with an OverrideWarning.

    Parameters
    ----------
    name
        The name of the layer and of its key.

    Returns
    -------
    DispatchKey
        The key.

    Raises
    ------
    RegistrationError
        If the name is taken otherwise, or all 16 places are taken.
    """
    with _lock:
        if name in _functionalities and replaces_former("functionality", name):
            return _by_name[name]
        _claim(name, [name])
        free = sorted(set(KeyLayout.runtime_functionalities) - set(_functionalities.values()))
        if not free:
            raise RegistrationError(
                f"no slot left for functionality {name!r}\n"
                f"a process holds at most {len(KeyLayout.runtime_functionalities)} run-time functionalities"
            )
        _lock.note(_tell)
        key = _make_key(name, KeyLayout.slot(free[0]), name)
        _lock.note(partial(_functionalities.pop, name, None))
        _functionalities[name] = free[0]
        _tell()
        remember("functionality", name)
        return key


def _check_array_type(array_type: type) -> None:
    if not isinstance(array_type, type):
        raise RegistrationError(f"{array_type!r} is not a class\nregister the class of the arrays")
    meaningful = (Tensor, bool, int, float, complex, str, tuple, list, dict)
    if array_type is object or issubclass(array_type, meaningful):
        raise RegistrationError(
            f"{array_type.__name__} cannot be an array type: every operator gives its instances another meaning\n"
            "register your own class that wraps the data"
        )
    word = _core.registered_word(array_type)
    if word:
        raise RegistrationError(
            f"{array_type.__name__} is registered already, as an array of "
            f"{DispatchKeySet.from_word(word).highest.name}\nregister a subclass of it instead"
        )


def _tell() -> None:
    for callback in _changed:
        callback()


_core.connect(member=_member, names_of_keyset=_names_of_keyset, keyset_from_names=_keyset_from_names)
_core.extend(DispatchKeySet, _repr_html_=deferred("debug.html", "keyset_html"))
_core.register_array_type(numpy.ndarray, _core.slots()[slot_of(DispatchKey.CPU)])
_core.register_array_type(numpy.generic, _core.slots()[slot_of(DispatchKey.CPU)])
