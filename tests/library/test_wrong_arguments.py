"""Errors of the registration functions for wrong arguments.

A row is a function with one argument left open, and values that it does not accept. Each is rejected before anything is
registered. The first line names the operator, the argument, the value and what was expected, the second the remedy.
"""

from __future__ import annotations

import numpy as np
import pytest

from pydispatch import Tensor, library, ops
from pydispatch._registry import registrations
from pydispatch._registry.operators import find_or_raise
from pydispatch.compat import custom_ops
from pydispatch.exceptions import DispatchError
from pydispatch.library import Library, custom_op
from tests.ids import without_address
from tests.modes.recorders import Passing


def kernel(x):
    return x


def backward(ctx, grad):
    return grad


def no_mutation(ns, **options):
    return custom_op(f"{ns}::new", options.pop("fn", kernel), **{
        "mutates_args": (), "schema": "(Tensor x) -> Tensor", **options})


def lib(ns):
    return Library(ns, "FRAGMENT")


NO_NAME = [None, 3, kernel, b"ns::f"]
NO_KEY = [3, kernel, b"CPU", "Bogus", ("CPU",)]
NO_FUNCTION = [3, "CPU", b"fn", ("CPU", kernel)]
NO_DEVICES = [3, kernel, "Bogus", ("CPU", 3)]
NO_SCHEMA = [3, kernel, b"(Tensor x) -> Tensor", "(", "Tensor x"]
NO_TAGS = [3, (3,), kernel, ("inplace", "out")]
OP, NEW = "operator {ns}::f", "operator {ns}::new"

ROWS = {    # argument: (call(ns, value), wrong values, what the first line says)
    "define name": (lambda ns, v: library.define(v, "(Tensor x) -> Tensor"), NO_NAME, "expected a name as a string"),
    "define schema": (lambda ns, v: library.define(f"{ns}::new", v), NO_SCHEMA, NEW),
    "define tags": (lambda ns, v: library.define(f"{ns}::new", "(Tensor x) -> Tensor", tags=v), [*NO_TAGS, None], NEW),
    "define alias_analysis": (
        lambda ns, v: library.define(f"{ns}::new", "(Tensor x) -> Tensor", alias_analysis=v), [3, "bogus"],
        NEW + ": unknown alias analysis kind"),
    "Library.define schema": (lambda ns, v: lib(ns).define(v), [None, 3, kernel, b"f"], "define: argument schema is"),
    "Library.define fn": (
        lambda ns, v: lib(ns).define("new(Tensor x) -> Tensor", v), NO_FUNCTION, "operator new: argument fn: a kernel"),
    "Library.define key": (
        lambda ns, v: lib(ns).define("new(Tensor x) -> Tensor", kernel, v), NO_KEY, NEW + ": argument key"),
    "Library.define tags": (
        lambda ns, v: lib(ns).define("new(Tensor x) -> Tensor", tags=v), [*NO_TAGS, None], "operator new: "),
    "impl name": (lambda ns, v: library.impl(v, "CPU", kernel), NO_NAME, "unexpected type for op"),
    "impl key": (lambda ns, v: library.impl(f"{ns}::f", v, kernel), NO_KEY, OP + ": argument key"),
    "impl key, decorator": (lambda ns, v: library.impl(f"{ns}::f", v), NO_KEY, OP + ": argument key"),
    "impl fn": (lambda ns, v: library.impl(f"{ns}::f", "CPU", v), NO_FUNCTION, OP + ": argument fn: a kernel"),
    "impl decorated": (
        lambda ns, v: library.impl(f"{ns}::f", "CPU")(v), [*NO_FUNCTION, None], OP + ": argument fn: a kernel"),
    "Library.impl name": (lambda ns, v: lib(ns).impl(v, kernel, "CPU"), NO_NAME, "unexpected type for op"),
    "Library.impl fn": (lambda ns, v: lib(ns).impl("f", v, "CPU"), NO_FUNCTION, OP + ": argument fn: a kernel"),
    "Library.impl key": (lambda ns, v: lib(ns).impl("f", kernel, v), NO_KEY, OP + ": argument key"),
    "Library.impl key, decorator": (lambda ns, v: lib(ns).impl("f", key=v), NO_KEY, OP + ": argument key"),
    "Library.impl decorated": (
        lambda ns, v: lib(ns).impl("f", key="CPU")(v), [*NO_FUNCTION, None], OP + ": argument fn: a kernel"),
    "Library.fallback fn": (
        lambda ns, v: Library("_", "IMPL").fallback(v, "AutogradCPU"), [*NO_FUNCTION, None], "fallback: argument fn"),
    "Library.fallback key": (lambda ns, v: Library("_", "IMPL").fallback(kernel, v), NO_KEY, "fallback: argument key"),
    "Library namespace": (lambda ns, v: Library(v, "FRAGMENT"), [None, 3, kernel, "a b"], "namespace"),
    "Library kind": (lambda ns, v: Library(ns, v), [None, 3, "CPU"], "a library is DEF, FRAGMENT or IMPL, not"),
    "Library key": (lambda ns, v: Library(ns, "IMPL", v), NO_KEY, "library '{ns}': argument key"),
    "register_kernel op": (lambda ns, v: library.register_kernel(v, "CPU", kernel), NO_NAME, "unexpected type for op"),
    "register_kernel device_types": (
        lambda ns, v: library.register_kernel(f"{ns}::f", v, kernel), NO_DEVICES, OP + ": argument device_types"),
    "register_kernel device_types, decorator": (
        lambda ns, v: library.register_kernel(f"{ns}::f", v), NO_DEVICES, OP + ": argument device_types"),
    "register_kernel fn": (
        lambda ns, v: library.register_kernel(f"{ns}::f", "CPU", v), NO_FUNCTION, OP + ": argument fn: a kernel"),
    "register_fake op": (lambda ns, v: library.register_fake(v, kernel), NO_NAME, "unexpected type for op"),
    "register_fake op, decorator": (lambda ns, v: library.register_fake(v), NO_NAME, "unexpected type for op"),
    "register_fake fn": (lambda ns, v: library.register_fake(f"{ns}::f", v), NO_FUNCTION, OP + ": argument fn: a fake"),
    "register_autograd op": (lambda ns, v: library.register_autograd(v, backward), NO_NAME, "unexpected type for op"),
    "register_autograd backward": (
        lambda ns, v: library.register_autograd(f"{ns}::f", v), [*NO_FUNCTION, None],
        OP + ": backward must be a function"),
    "register_autograd setup_context": (
        lambda ns, v: library.register_autograd(f"{ns}::f", backward, setup_context=v), NO_FUNCTION,
        OP + ": setup_context must be a function"),
    "register_autograd jvp": (
        lambda ns, v: library.register_autograd(f"{ns}::f", backward, jvp=v), NO_FUNCTION,
        OP + ": jvp must be a function"),
    "register_vmap op": (lambda ns, v: library.register_vmap(v, kernel), NO_NAME, "unexpected type for op"),
    "register_vmap op, decorator": (lambda ns, v: library.register_vmap(v), NO_NAME, "unexpected type for op"),
    "register_vmap fn": (
        lambda ns, v: library.register_vmap(f"{ns}::f", v), NO_FUNCTION, OP + ": a batching rule must be a function"),
    "register_pydispatch op": (
        lambda ns, v: library.register_pydispatch(v, Passing, kernel), NO_NAME, "unexpected type for op"),
    "register_pydispatch cls": (
        lambda ns, v: library.register_pydispatch(f"{ns}::f", v, kernel), [None, 3, kernel, int, Tensor], OP),
    "register_pydispatch cls, decorator": (
        lambda ns, v: library.register_pydispatch(f"{ns}::f", v), [None, 3, kernel, int, Tensor], OP),
    "register_pydispatch rule": (
        lambda ns, v: library.register_pydispatch(f"{ns}::f", Passing, v), NO_FUNCTION, OP + ": argument rule: a rule"),
    "get_kernel op": (lambda ns, v: library.get_kernel(v, "CPU"), NO_NAME, "unexpected type for op"),
    "get_kernel key": (lambda ns, v: library.get_kernel(f"{ns}::f", v), NO_KEY, OP + ": argument key"),
    "py_impl": (lambda ns, v: find_or_raise(f"{ns}::f").py_impl(v), NO_KEY, OP + ": argument key"),
    "py_impl decorated": (
        lambda ns, v: find_or_raise(f"{ns}::f").py_impl("CPU")(v), NO_FUNCTION, OP + ": what py_impl decorates"),
    "custom_op name": (
        lambda ns, v: custom_op(v, kernel, mutates_args=(), schema="(Tensor x) -> Tensor"), [None, 3, kernel],
        "operator's name must be a string"),
    "custom_op fn": (lambda ns, v: no_mutation(ns, fn=v), NO_FUNCTION, NEW + ": argument fn"),
    "custom_op mutates_args": (
        lambda ns, v: no_mutation(ns, mutates_args=v), [None, 3, kernel, "x", ("y",)],
        "{ns}::new(Tensor x) -> Tensor:"),
    "custom_op schema": (lambda ns, v: no_mutation(ns, schema=v), NO_SCHEMA, NEW),
    "custom_op tags": (lambda ns, v: no_mutation(ns, tags=v), NO_TAGS, NEW),
    "custom_op device_types": (
        lambda ns, v: no_mutation(ns, device_types=v), NO_DEVICES, NEW + ": argument device_types"),
    "custom_ops.custom_op name": (
        lambda ns, v: custom_ops.custom_op(v, "(Tensor x) -> Tensor"), [None, 3, kernel],
        "operator's name must be a string"),
    "custom_ops.custom_op schema": (lambda ns, v: custom_ops.custom_op(f"{ns}::new", v), [3, b"f", "(", "f"], NEW),
    "custom_ops.impl device_types": (
        lambda ns, v: custom_ops.impl(f"{ns}::f", device_types=v), NO_DEVICES, OP + ": argument device_types"),
    "custom_ops.impl func": (
        lambda ns, v: custom_ops.impl(f"{ns}::f", func=v), NO_FUNCTION, OP + ": argument func: a kernel"),
    "custom_ops.impl_abstract func": (
        lambda ns, v: custom_ops.impl_abstract(f"{ns}::f", func=v), NO_FUNCTION, OP + ": argument fn: a fake"),
    "custom_ops.impl_save_for_backward func": (
        lambda ns, v: custom_ops.impl_save_for_backward(f"{ns}::f", func=v), NO_FUNCTION, OP + ": save_for_backward"),
    "custom_ops.impl_backward func": (
        lambda ns, v: custom_ops.impl_backward(f"{ns}::f", func=v), NO_FUNCTION, OP + ": backward must be a function"),
    "custom_ops.impl_backward output_differentiability": (
        lambda ns, v: custom_ops.impl_backward(f"{ns}::f", v, func=lambda ctx, saved, grad: {}), [3, True, [1], []],
        OP + ": output_differentiability is"),
    **{
        f"custom_ops.{name} name": (
            lambda ns, v, name=name: getattr(custom_ops, name)(v), NO_NAME, "unexpected type for op")
        for name in ("impl", "impl_abstract", "impl_save_for_backward", "impl_backward")
    },
    "register_opaque_type cls": (
        lambda ns, v: library.register_opaque_type(v), [None, 3, kernel, "Name"], "register_opaque_type: argument cls"),
    "register_opaque_type name": (
        lambda ns, v: library.register_opaque_type(Passing, v), [3, kernel, "a b", "a."], "type "),
    "unregister_opaque_type cls": (
        lambda ns, v: library.unregister_opaque_type(v), [None, 3, kernel, "Nothing", []], "is not registered"),
    "infer_schema fn": (lambda ns, v: library.infer_schema(v), [None, 3, "f"], "infer_schema: argument fn is"),
    "check_strict schema": (lambda ns, v: library.check_strict(v), [None, 3, kernel], "expected a schema as a string"),
}
CASES = [
    pytest.param(call, value, says, id=f"{name}: {without_address(value)}")
    for name, (call, values, says) in ROWS.items() for value in values
]


@pytest.mark.parametrize(("call", "value", "says"), CASES)
def test_what_is_said_of_a_wrong_argument(fresh, call, value, says):
    fresh.define("f(Tensor x) -> Tensor")
    before = {name: list(op.registrations) for name, op in registrations.operators.items()}
    with pytest.raises(DispatchError) as caught:
        call(fresh.namespace, value)
    first, *remedy = str(caught.value).splitlines()
    assert says.format(ns=fresh.namespace) in first
    assert remedy
    assert {name: list(op.registrations) for name, op in registrations.operators.items()} == before


ORDERS = {      # arguments in the order of the other function, and the order that is named
    "library.impl": (lambda ns: library.impl(f"{ns}::f", kernel, "CPU"), r'write library.impl("{ns}::f", "CPU", fn)'),
    "library.impl without a key": (
        lambda ns: library.impl(f"{ns}::f", kernel), r'write library.impl("{ns}::f", "CPU", fn)'),
    "Library.impl": (lambda ns: lib(ns).impl("f", "CPU", kernel), r'write lib.impl("{ns}::f", fn, "CPU")'),
    "Library.fallback": (
        lambda ns: Library("_", "IMPL").fallback("AutogradCPU", kernel), r'write lib.fallback(fn, "AutogradCPU")'),
    "register_kernel": (lambda ns: library.register_kernel(f"{ns}::f", kernel, "CPU"), r'write device_types="CPU"'),
}


@pytest.mark.parametrize(("call", "order"), ORDERS.values(), ids=list(ORDERS))
def test_the_order_of_arguments_is_named(fresh, call, order):
    with pytest.raises(DispatchError) as caught:
        call(fresh.namespace)
    assert str(caught.value).splitlines()[1].startswith(order.format(ns=fresh.namespace))


@pytest.mark.parametrize("schema", ["f(Tensor x) -> Tensor", "f(Tensor x, int y) -> Tensor"])
def test_a_second_definition_shows_both_schemas(fresh, schema):
    ns = fresh.namespace
    fresh.define("f(Tensor x) -> Tensor")
    with pytest.raises(DispatchError) as caught:
        fresh.define(schema)
    message = str(caught.value)
    is_same = schema == "f(Tensor x) -> Tensor"
    assert ("repeats the one defined at" in message) is is_same
    assert (f"{ns}::{schema}, defined at" in message)
    assert (f"conflicts with {ns}::f(Tensor x) -> Tensor, defined at" in message) is not is_same


@pytest.mark.parametrize("text", ["op() -> None", "op() -> (None)", "op(Tensor x) -> NoneType"])
def test_a_return_of_none_is_written_with_parentheses(fresh, text):
    with pytest.raises(DispatchError, match=r"not a return type\nWrite `-> \(\)`"):
        fresh.define(text)


@pytest.mark.parametrize("tags", [("inplace", "out"), ["out", "inplace"]], ids=str)
@pytest.mark.parametrize(("tag", "schema"), [
    ("inplace", "(Tensor(a!) x) -> Tensor(a!)"), ("out", "(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")])
def test_the_remedy_for_both_tags_does_not_lead_in_a_circle(fresh, tags, tag, schema):
    def inferred(x: np.ndarray) -> np.ndarray:
        return x

    name = f"{fresh.namespace}::f"
    for call in (
        lambda: library.define(name, schema, tags=tags),
        lambda: custom_op(name, kernel, mutates_args="unknown", schema=schema, tags=tags),
        lambda: custom_op(name, inferred, mutates_args=(), tags=tags),
        lambda: library.infer_schema(inferred, tags=tags),
    ):
        with pytest.raises(DispatchError, match=r"mutually exclusive\nKeep `inplace` if .* `out` if"):
            call()
    assert library.define(name, schema, tags=tag).active
    assert getattr(ops, fresh.namespace).f.default.tags == (tag,)
