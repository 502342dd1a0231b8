"""Registering and removing, with a KeyboardInterrupt at each line in turn: nothing is in force without a handle."""

import itertools
import linecache
import sys
from pathlib import Path

import numpy as np
import pytest

import pydispatch
from pydispatch import DispatchMode, Tensor, library, ops, registry
from pydispatch.library import Library, custom_op, register_pydispatch

PACKAGE = str(Path(pydispatch.__file__).parent)


class Mode(DispatchMode):
    pass


def twice(x: Tensor) -> Tensor:
    return x * 2


def snapshot():
    """All that is in force."""
    return (
        {name: list(op.registrations) for name, op in registry.operators.items()},
        {name: packet.overloads for family in registry.packets.values() for name, packet in family.items()},
        list(registry.fallbacks), list(registry.listeners), dict(library._definers),
    )


def check_consistency():
    """Whatever is in force can be removed, and is all of what it consists of."""
    for name, op in registry.operators.items():
        assert op.registrations, name
        assert all(handle.active and handle.operator is op for handle in op.registrations), name
        has_definition = registry.definition_of(op) is not None
        packet = registry.packets.get(op.name.namespace, {}).get(op.name.name)
        assert has_definition == (packet is not None and op in packet.overloads), name
    assert all(handle.active for handle in (*registry.fallbacks, *registry.listeners))
    assert all(packet.overloads for family in registry.packets.values() for packet in family.values())


def remove_what_is_torn():
    for op in [op for name, op in registry.operators.items() if name.startswith("torn::")]:
        for handle in list(op.registrations):
            handle.remove()


def line_of(frame):
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()


def interrupted(action, n):
    """Run an action with an interrupt at the n-th line in the package; was there one?"""
    lines = itertools.count(1)

    def trace(frame, event, argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        # On leaving a block its first line comes again, and a `try:` that begins it lies outside of it: there tracing
        # raises and Python looks for no signals.
        if event == "line" and not line_of(frame).startswith(("with ", "try:")) and next(lines) == n:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def at_each_line(prepare, action, clean):
    """Interrupt an action at each line in turn; what is in force afterwards is consistent, and can be undone."""
    for n in itertools.count(1):
        before = snapshot()
        given = prepare()
        was_interrupted = interrupted(lambda given=given: action(given), n)
        assert not registry.lock._is_owned()
        check_consistency()
        clean(given)
        assert snapshot() == before, n
        if not was_interrupted:
            assert n > 5
            return


def fragment():
    return Library("torn", "FRAGMENT")


def defined():
    lib = fragment()
    lib.define("twice(Tensor x) -> Tensor")
    return lib


BY_LIBRARY = {
    "define": (fragment, lambda lib: lib.define("twice(Tensor x) -> Tensor")),
    "define with a function": (fragment, lambda lib: lib.define("twice(Tensor x) -> Tensor", twice, "CPU")),
    "impl": (defined, lambda lib: lib.impl("twice", twice, "CPU")),
    "impl without a definition": (fragment, lambda lib: lib.impl("twice", twice, "CPU")),
    "fallback": (lambda: Library("_", "IMPL"), lambda lib: lib.fallback(library.fallthrough_kernel, "AutogradOther")),
    "close": (defined, lambda lib: lib.close()),
}


@pytest.mark.parametrize(("prepare", "action"), BY_LIBRARY.values(), ids=BY_LIBRARY)
def test_what_a_library_registers_is_undone_by_closing_it(prepare, action):
    at_each_line(prepare, action, lambda lib: lib.close())


def two_handles():
    return library.define("torn::twice(Tensor x) -> Tensor"), library.impl("torn::twice", "CPU", twice)


def remove_all(handles):
    for handle in handles:
        handle.remove()


def nothing():
    return None


WITHOUT_LIBRARY = {
    "define": (nothing, lambda _: library.define("torn::twice(Tensor x) -> Tensor")),
    "impl": (two_handles, lambda _: library.impl("torn::twice", "CompositeExplicitAutograd", twice)),
    "a derivative": (two_handles, lambda _: library.register_autograd("torn::twice", lambda ctx, g: g * 2)),
    "a fake": (two_handles, lambda _: library.register_fake("torn::twice", lambda x: x)),
    "a rule for vmap": (two_handles, lambda _: library.register_vmap("torn::twice", lambda info, dims, x: (x * 2, 0))),
    "a rule for a mode": (two_handles, lambda _: register_pydispatch("torn::twice", Mode, twice)),
    "removing a kernel": (two_handles, lambda handles: handles[1].remove()),
    "removing a definition": (two_handles, lambda handles: handles[0].remove()),
}


@pytest.mark.slow
@pytest.mark.parametrize(("prepare", "action"), WITHOUT_LIBRARY.values(), ids=WITHOUT_LIBRARY)
def test_what_is_registered_without_a_library_can_be_removed(prepare, action):
    at_each_line(prepare, action, lambda _: remove_what_is_torn())


def test_a_namespace_is_free_again_when_nobody_has_the_library():
    at_each_line(nothing, lambda _: Library("torn", "DEF"), lambda _: None)
    with Library("torn", "DEF"):
        pass


@pytest.mark.slow
def test_a_custom_operator_can_be_defined_anew():
    def make():
        return custom_op("torn::twice", twice, mutates_args=())

    def clean(_):
        remove_what_is_torn()
        make().remove()

    at_each_line(nothing, lambda _: make(), clean)


def test_a_listener_is_told_or_not_there():
    told = []

    def clean(_):
        for listener in list(registry.listeners):
            if listener.on_define == told.append:
                listener.remove()

    at_each_line(nothing, lambda _: registry.add_listener(told.append, told.append), clean)


def test_calls_go_on_after_interrupts():
    with defined() as lib:
        for n in range(1, 60):
            interrupted(lambda: lib.impl("twice", twice, "CPU").remove(), n)
            interrupted(lambda: registry.mark_all_stale(), n)
            for handle in registry.find("torn::twice").registrations[1:]:
                handle.remove()
        lib.impl("twice", lambda x: x * 2, "CPU")
        assert ops.torn.twice(np.ones(2)).tolist() == [2.0, 2.0]
