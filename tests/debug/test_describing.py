"""Descriptions of operators in help(), editors and notebooks."""

from __future__ import annotations

import doctest
import inspect
import pydoc

import numpy as np
import pytest

from pydispatch import Tensor, compile, func, library, ops
from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch._registry.operators import load_all
from pydispatch.debug import describing
from pydispatch.operators.declare import PACKS
from pydispatch.tracing import make_fx
from tests.together import together

load_all("np")
DECLARED = {**PACKS["np"].declarations, **PACKS["np"].of_families}
FUNCTIONS = [name for name, declaration in DECLARED.items() if declaration.variant == "functional"]
WITHOUT_EXAMPLE = {"random_default_rng", "random_copy", "random_restored"}        # a generator shows its address


def facts(op):
    """Return the lines that say `Shapes: ...` and the like."""
    return dict(line.split(": ", 1) for line in op.__doc__.splitlines() if line.partition(": ")[0] in (
        "Shapes", "Dtypes", "Gradient", "Variants"))


@together("name", FUNCTIONS)
def test_every_operator_has_a_line_and_an_example_that_is_true(name):
    packet = getattr(ops.np, name)
    schema, line, *_ = packet.__doc__.split("\n\n")
    assert schema.splitlines()[0] == str(packet.default.schema)
    assert not line.startswith("Shapes: ")      # the facts, where the line is missing
    assert line.endswith(".")
    assert len(line) > 10
    examples = doctest.DocTestParser().get_doctest(packet.__doc__, {"np": np, "ops": ops}, name, None, None)
    assert len(examples.examples) == (name not in WITHOUT_EXAMPLE)
    result = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(examples)
    assert result.failed == 0


@together("name", DECLARED)
def test_every_variant_documents_itself(name):
    base, _, overload = name.partition(".")
    op = getattr(getattr(ops.np, base), overload or "default")
    assert str(op.schema) in op.__doc__
    assert "Gradient" in facts(op)
    assert (op.__name__, op.__module__) == (name if overload else base, "pydispatch.ops.np")
    assert list(inspect.signature(op).parameters) == [argument.name for argument in op.schema.arguments]


def test_every_operator_of_scipy_has_a_line():
    pytest.importorskip("scipy")
    load_all("scipy")
    for name, declaration in {**PACKS["scipy"].declarations, **PACKS["scipy"].of_families}.items():
        if declaration.variant == "functional":
            _, line, *_ = getattr(ops.scipy, name).__doc__.split("\n\n")
            assert not line.startswith(("Shapes: ", "Gradient: ")), name
            assert line.endswith("."), name


def test_variants_in_place_say_where_the_result_is():
    said = "Add arguments element-wise. In place: writes the result to x1 and returns it."
    assert said in ops.np.add_.__doc__
    assert "In place" not in ops.np.add.__doc__


def test_shapes_dtypes_and_gradients():
    assert facts(ops.np.add) == {
        "Shapes": "the arguments broadcast, and the result has their common shape.",
        "Dtypes": "bool -> bool; int64 -> int64; float32 -> float32; float64 -> float64; complex128 -> complex128.",
        "Gradient": "of x1, x2, of every order, in reverse and forward mode.",
        "Variants": "ops.np.add_, in place; out=, into an array.",
    }
    assert facts(ops.np.sqrt)["Dtypes"].startswith("bool -> float16; int64 -> float64; float32 -> float32")
    assert "float" not in facts(ops.np.bitwise_and)["Dtypes"]
    assert facts(ops.np.isnan)["Gradient"] == "none, since the results are constants."
    assert facts(ops.np.sort)["Gradient"] == "of a, of every order, in reverse and forward mode."
    assert facts(ops.np.random_permutation)["Gradient"] == (
        "none, and a call with a tracked argument raises NoDerivativeError.")
    assert facts(ops.np.take)["Gradient"] == "of a, of every order, in reverse and forward mode."
    assert facts(ops.np.matmul)["Shapes"] == "(2, 2), (2,) -> (2,) in the example."
    assert facts(ops.np.add.out)["Gradient"] == "of x1, x2, of every order, in reverse and forward mode."


def test_help_shows_the_operator_and_not_its_class():
    text = pydoc.plain(pydoc.render_doc(ops.np.add))
    assert "Add arguments element-wise." in text
    assert "in module pydispatch.ops.np" in text or "add = <OpOverloadPacket np::add (default, out)>" in text
    assert "Methods defined here" not in text
    assert inspect.getdoc(ops.np.add.out) == ops.np.add.out.__doc__


def test_classes_keep_their_own_documentation():
    for cls in (OpOverload, OpOverloadPacket):
        assert isinstance(cls.__doc__, str)
        assert cls.__module__ == "pydispatch._core"
        assert cls.__name__ in ("OpOverload", "OpOverloadPacket")


def test_signature_of_a_packet():
    assert str(inspect.signature(ops.np.add)) == (
        "(x1: 'Tensor', x2: 'Tensor', *, dtype: 'ScalarType?' = None, casting: 'str' = 'same_kind', "
        "out: 'Tensor?' = None) -> 'Tensor'")
    for name in FUNCTIONS:
        assert "args" not in inspect.signature(getattr(ops.np, name)).parameters
    with library.Library("describing", "DEF") as lib:
        lib.define("f(Tensor x) -> Tensor")
        lib.define("f.scaled(Tensor x, float by) -> Tensor")
        lib.define("g.only(Tensor x) -> Tensor")
        assert str(inspect.signature(ops.describing.f)) == "(*args, **kwargs)"
        assert str(inspect.signature(ops.describing.g)) == "(x: 'Tensor') -> 'Tensor'"


def test_operators_of_users_show_their_docstrings():
    def scale(x, by):
        """Multiply by a number.

        More about that.
        """
        return x * by

    with library.Library("describing", "DEF") as lib:
        lib.define("scale(Tensor x, float by) -> Tensor")
        op = ops.describing.scale
        assert op.__doc__ == "describing::scale(Tensor x, float by) -> Tensor\n\nGradient: none is registered."
        lib.impl("scale", scale, "CPU")
        assert op.__doc__.startswith("describing::scale(Tensor x, float by) -> Tensor\n\nMultiply by a number.\n\nMore")
        with library.register_autograd("describing::scale", lambda ctx, grad: (grad, None)):
            assert "Gradient: by the functions registered at " in op.__doc__
            assert "test_describing.py" in op.__doc__
    assert "without a definition" in op.default.__doc__ if op.overloads else "without a definition" in op.__doc__


def test_gradients_of_operators_of_users():
    with library.Library("describing", "DEF") as lib:
        lib.define("whole(Tensor x) -> Tensor")
        lib.impl("whole", lambda x: ops.np.sin(x), "CompositeImplicitAutograd")
        lib.define("hand(Tensor x) -> Tensor")
        lib.impl("hand", lambda x: x, "AutogradCPU")
        assert facts(ops.describing.whole)["Gradient"] == "through the operators that its kernel calls."
        assert facts(ops.describing.hand)["Gradient"] == "by a kernel for an autograd key."


def test_custom_operators_are_documented_as_their_functions():
    @library.custom_op("describing::half", mutates_args=())
    def half(x: Tensor) -> Tensor:
        """Return half of it."""
        return x / 2

    try:
        assert half.__doc__ == "Return half of it."
        assert "Return half of it." in ops.describing.half.__doc__
        assert "in the example" not in ops.describing.half.__doc__
        assert facts(ops.describing.half)["Gradient"] == (
            "none is registered, and a backward pass through it raises NoDerivativeError.")
        half.register_autograd(lambda ctx, g: g / 2)
        assert facts(ops.describing.half)["Gradient"].startswith("by the functions registered at ")
    finally:
        half.remove()


@pytest.mark.parametrize("transform", [func.vmap, func.grad, func.jacfwd, compile, make_fx], ids=lambda f: f.__name__)
def test_functions_that_transforms_return_are_described_on_demand(transform, monkeypatch):
    transformed = transform(ops.np.sin)
    assert transformed.__doc__ == ops.np.sin.__doc__
    asked = []
    monkeypatch.setattr(describing, "_facts", lambda *of_what: asked.append(of_what) or ())
    transformed = transform(ops.np.cos)
    assert not asked
    assert transformed.__doc__
    assert asked
