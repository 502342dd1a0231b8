"""opcheck: finds what is wrong with wrong operators, and nothing else, and what it says of bad arguments."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pydispatch import Tensor, library, ops
from pydispatch.backends.meta import MetaArray
from pydispatch.exceptions import DispatchTypeError, NoDerivativeError, OpCheckError
from pydispatch.library import custom_op
from pydispatch.operators import VARIANTS
from pydispatch.testing import opcheck
from pydispatch.testing.opcheck import CHECKS
from tests.operators.oracles import UNDEFINED, is_error, numpy_in_place, outcome
from tests.operators.samples import every_other_sample, functional_names, numpy_function, samples
from tests.testing.wrong_operators import RIGHT, SQUARE, WRONG, Operator, array, square, tracked, unary

ALL_SUCCEED = dict.fromkeys(CHECKS, "SUCCESS")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_operators(name, fresh):
    wrong = WRONG[name]
    op = wrong.define(fresh)
    outcomes = opcheck(op, wrong.args(), raise_exception=False)
    assert list(outcomes) == list(CHECKS)
    assert {check for check, outcome in outcomes.items() if outcome != "SUCCESS"} == set(wrong.fails)
    for check, message in wrong.fails.items():
        with pytest.raises(OpCheckError, match=message) as caught:
            opcheck(op, wrong.args(), test_utils=check)
        assert str(caught.value).startswith(f"opcheck: {op.name}: {check} failed: ")
        assert type(caught.value.__cause__) is type(outcomes[check])


@pytest.mark.parametrize("name", RIGHT)
def test_right_operators(name, fresh):
    right = RIGHT[name]
    assert opcheck(right.define(fresh), right.args()) == ALL_SUCCEED


# --- no false alarms -------------------------------------------------------------------------------------------------

WITHOUT_DERIVATIVES = ["test_schema", "test_determinism", "test_autograd_registration", "test_faketensor"]


def checks_of(name):
    return [check for check in WITHOUT_DERIVATIVES if name not in UNDEFINED or check != "test_determinism"]


def check_quietly(op, args, kwargs, checks):
    """Run opcheck without NumPy's warnings about the values of samples."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return opcheck(op, args, kwargs, test_utils=checks)


@pytest.mark.parametrize("name", functional_names())
def test_library_operators(name):
    checks, n_checked = checks_of(name), 0
    for sample in every_other_sample(name):
        if not is_error(outcome(numpy_function(name), *sample)):
            assert check_quietly(getattr(ops.np, name), *sample, checks) == dict.fromkeys(checks, "SUCCESS"), sample
            n_checked += 1
    assert n_checked > 3


@pytest.mark.parametrize("name", [name for name in functional_names() if VARIANTS[name].in_place])
def test_library_operators_in_place(name):
    functional, in_place, out = VARIANTS[name]
    n_checked = 0
    for sample in samples(name):
        target = sample.args[0]
        result = outcome(numpy_in_place, (name, sample), {})
        if isinstance(target, np.ndarray) and not is_error(result) and not np.array_equal(result, target):
            check_quietly(getattr(ops.np, in_place), *sample, WITHOUT_DERIVATIVES)
            n_checked += 1
            if out:
                kwargs = {**sample.kwargs, "out": np.empty_like(result)}
                check_quietly(getattr(ops.np, functional).out, sample.args, kwargs, WITHOUT_DERIVATIVES)
    assert n_checked > 1


def normal(*shape, dtype=np.float64):
    return Tensor(np.random.default_rng(7).normal(size=shape).astype(dtype), requires_grad=True)


DERIVATIVES = {
    "multiply": lambda: (normal(3), normal(2, 1)),
    "exp": lambda: (normal(3),),
    "matmul": lambda: (normal(2, 3), normal(3)),
    "sum": lambda: (normal(2, 3), 0),
    "concatenate": lambda: ((normal(2, 3), normal(1, 3)),),
    "split": lambda: (normal(4, 2), 2),
    "getitem": lambda: (normal(4, 2), (slice(None, None, 2), 0)),
    "where": lambda: (np.array([True, False, True]), normal(3), normal(3)),
    "add_": lambda: (normal(3), normal(3)),
    "multiply_": lambda: (normal(3), normal(3)),
    "argmax": lambda: (normal(3),),
    "floor": lambda: (normal(3),),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_library_derivatives(name):
    assert opcheck(getattr(ops.np, name), DERIVATIVES[name]()) == ALL_SUCCEED


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [square, "np::sin", Tensor], ids=["function", "text", "class"])
def test_what_is_no_operator(op):
    with pytest.raises(ValueError, match="expected an OpOverload"):
        opcheck(op, (array(),))


@pytest.mark.parametrize("chosen", ["test_everything", ["test_schema", "x"], {"test_schema"}, [], ()], ids=repr)
def test_checks_that_are_unknown_or_none(chosen):
    with pytest.raises(ValueError, match="expected test_utils to be subset of"):
        opcheck(ops.np.sin, (array(),), test_utils=chosen)


def test_chosen_checks_in_their_order():
    chosen = ["test_faketensor", "test_schema"]
    assert list(opcheck(ops.np.sin, (array(),), test_utils=chosen)) == chosen
    assert opcheck(ops.np.sin, (array(),), test_utils="test_schema") == {"test_schema": "SUCCESS"}
    assert opcheck(ops.np.sin, (array(),), test_utils="ALL") == ALL_SUCCEED


@pytest.mark.parametrize("args", [array(), Tensor(array()), "x", 2.0], ids=["array", "Tensor", "text", "number"])
def test_args_that_are_no_tuple(args):
    with pytest.raises(ValueError, match="expected a tuple of arguments"):
        opcheck(ops.np.sin, args)


@pytest.mark.parametrize("fake", [MetaArray((2,)), Tensor(MetaArray((2,)))], ids=["raw", "Tensor"])
def test_arguments_without_data_are_refused(fake):
    with pytest.raises(ValueError, match="argument 'x1' holds an array of type MetaArray"):
        opcheck(ops.np.add, (fake, array()))
    with pytest.raises(ValueError, match="argument 'arrays' holds an array of type MetaArray"):
        opcheck(ops.np.concatenate, ([array(), fake],))


def test_arguments_of_other_backends_are_refused(backends):
    with pytest.raises(ValueError, match="argument 'x' holds an array of type ArrayA"):
        opcheck(ops.np.sin, (backends.ArrayA([1.0]),))


def test_arguments_that_do_not_bind():
    with pytest.raises(DispatchTypeError, match="argument 'x2'"):
        opcheck(ops.np.add, (array(),))


@pytest.mark.parametrize("tolerances", [{"atol": 1.0}, {"rtol": 1.0}], ids=str)
def test_one_tolerance(tolerances):
    with pytest.raises(ValueError, match="only one of atol and rtol"):
        opcheck(ops.np.sin, (array(),), **tolerances)


def test_tolerances_excuse_small_differences(fresh):
    op = unary(lambda x: x + 1e-9 * np.random.default_rng().random(x.shape)).define(fresh)
    with pytest.raises(OpCheckError, match="test_determinism failed"):
        opcheck(op, (array(),))
    assert opcheck(op, (array(),), atol=1e-6, rtol=0.0) == ALL_SUCCEED


def test_errors_are_raised_or_returned(fresh):
    wrong = WRONG["writes to its argument"]
    op = wrong.define(fresh)
    outcomes = opcheck(op, wrong.args(), raise_exception=False)
    assert isinstance(outcomes.pop("test_schema"), AssertionError)
    assert set(outcomes.values()) == {"SUCCESS"}
    with pytest.raises(OpCheckError, match=f"^opcheck: {op.name}: test_schema failed: operator {op.name}"):
        opcheck(op, wrong.args())


def test_the_overload_that_a_packet_would_call(fresh):
    right, wrong = unary(square), Operator(
        "f.second(Tensor x, Tensor y) -> Tensor", {"CPU": lambda x, y: x, "Meta": lambda x, y: MetaArray(x.shape)},
        lambda: (array(), array()))
    right.define(fresh)
    wrong.define(fresh)
    packet = getattr(ops, fresh.namespace).f
    assert opcheck(packet, (array(),)) == ALL_SUCCEED
    with pytest.raises(OpCheckError, match=r"f\.second: result 0 is not defined to alias"):
        opcheck(packet, (array(), array()))


@pytest.fixture
def twice(new_library):
    """Provide an operator of `custom_op` without a formula."""
    namespace = new_library().namespace

    @custom_op(f"{namespace}::twice", mutates_args=())
    def definition(x: Tensor) -> Tensor:
        return x * 2.0

    definition.register_fake(lambda x: MetaArray(x.shape, x.dtype))
    yield definition
    definition.remove()


def test_what_custom_op_returned(twice):
    outcomes = opcheck(twice, (tracked(),), raise_exception=False)
    missing = {"test_gradcheck", "test_gradgradcheck"}
    assert {check for check, outcome in outcomes.items() if isinstance(outcome, NoDerivativeError)} == missing
    twice.register_autograd(lambda ctx, g: g * 2.0)
    assert opcheck(twice, (tracked(),)) == ALL_SUCCEED


def test_autograd_kernel_of_a_custom_op(twice):
    with library.impl(twice, "Autograd", lambda x: ops.np.multiply(x, 2.0)):
        assert opcheck(twice, (tracked(),)) == ALL_SUCCEED


def test_dead_formula_under_a_composite(fresh):
    op = Operator("f(Tensor x) -> Tensor", {"CompositeImplicitAutograd": lambda x: ops.np.sin(x)},
                  lambda: (array(),), formula=SQUARE).define(fresh)
    with pytest.raises(OpCheckError, match=r"its derivative, registered at .* is never used"):
        opcheck(op, (array(),), test_utils="test_autograd_registration")


def test_arguments_are_left_alone(fresh):
    op = WRONG["writes to its argument"].define(fresh)
    x = tracked()
    kept = x.array.copy()
    opcheck(op, (x,), raise_exception=False)
    assert np.array_equal(x.array, kept)
    assert x.grad is None


def test_what_the_kernel_does_not_take_is_told(fresh):
    fresh.define("f(Tensor x, int n=1, *, str s='a') -> Tensor")
    fresh.impl("f", lambda x: x * 2, "CPU")
    fresh.impl("f", lambda x: ops.np.zeros_like(x), "Meta")
    op = getattr(ops, fresh.namespace).f
    assert opcheck(op, (array(),), test_utils="test_schema") == {"test_schema": "SUCCESS", "unsupported": "n, s"}
