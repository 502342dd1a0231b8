"""Tensors that are arrays, that have arrays, that have such Tensors. Taking them apart. Results that share memory."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from pydispatch import Tensor, WrapperTensor, _core, ops
from pydispatch.autograd import inference_mode, no_grad
from pydispatch.backends import MetaArray
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.operators import VARIANTS
from pydispatch.subclasses import Shell, flatten, is_traceable_wrapper, return_and_correct_aliasing, unflatten
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves, tree_map
from tests.operators.oracles import IN_PLACE, NAMES, UNDEFINED, WITH_OUT, copied, identical, is_error, outcome
from tests.operators.samples import every_other_sample, samples
from tests.subclasses.classes import Around, Is, NaiveTwo, Two, Wrapped, bottom, calls_of, noting_arguments
from tests.together import together

CUBE = np.arange(24.0).reshape(2, 3, 4)


# --- Shell -----------------------------------------------------------------------------------------------------------

LIKE = {
    "array": CUBE,
    "20-transposed diagonal": CUBE[1:].diagonal(1, 1, 2).T,
    "transposed": CUBE.T,
    "reversed": CUBE[::-1, ::2],
    "broadcast": np.broadcast_to(np.ones(3), (2, 3)),
    "0-d": np.array(1),
    "empty": np.empty((0, 3), np.int8),
    "Tensor": Tensor(CUBE.T),
    "MetaArray": MetaArray((2, 3), np.complex64),
    "Shell": Shell(CUBE.T),
    "is-a": Is(CUBE[:, 1]),
    "has-a": Wrapped(CUBE[:, 1]),
}


def steps(x):
    """Return the strides that mean something."""
    return [stride for stride, extent in zip(x.strides, x.shape, strict=True) if extent > 1 and x.size]


@pytest.mark.parametrize("like", LIKE.values(), ids=LIKE.keys())
def test_a_shell_is_like_its_inner(like):
    for looks in (Shell(like), Wrapped(like), Wrapped(Wrapped(like))):
        for attribute in ("shape", "dtype", "strides", "ndim", "size", "itemsize", "nbytes"):
            assert getattr(looks, attribute) == getattr(like, attribute) or attribute == "strides", attribute
        assert steps(looks) == steps(like)
    assert isinstance(Shell(like), MetaArray)


def test_a_shell_may_differ_from_its_inner():
    shell = Shell(CUBE, shape=(5,), dtype=np.int8)
    assert (shell.shape, shell.dtype, shell.strides, shell.nbytes) == ((5,), np.int8, (1,), 5)
    assert Shell(CUBE, dtype=np.float32).strides == (48, 16, 4)
    assert Shell(CUBE, strides=(8, 16, 48)).strides == (8, 16, 48)
    assert Shell(shape=(2, 3), dtype=np.float64).strides == (24, 8)


def test_a_shell_pretends_a_device(backends):
    class OnDevice(Wrapped):
        def __init__(self, inner, device):
            Tensor.__init__(self, Shell(inner, device=device))
            self.inner = inner

    assert Wrapped(CUBE).device == "CPU"
    assert OnDevice(CUBE, "A").device == "A"
    assert OnDevice(CUBE, "Meta").device == "Meta"
    assert Wrapped(MetaArray((2,))).device == "Meta"
    assert Wrapped(backends.ArrayA([1.0])).device == "A"


WRONG = {"empty": {}, "negative": {"shape": (-1,), "dtype": float}, "list": {"like": [1, 2]}, "number": {"like": 1.0}}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_shell(wrong):
    with pytest.raises((DispatchTypeError, ValueError)):
        Shell(**wrong)


# --- WrapperTensor ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("like", LIKE.values(), ids=LIKE.keys())
def test_a_wrapper_tensor_is_like_its_inner(like):
    if isinstance(like, Shell):
        return
    w = Around(like)
    assert w.inner is like
    assert isinstance(w.array, Shell)
    assert w.dispatches_to_python
    for attribute in ("shape", "dtype", "ndim", "size", "itemsize", "nbytes"):
        assert getattr(w, attribute) == getattr(like, attribute), attribute
    assert steps(w) == steps(like)
    assert repr(w) == f"Around({like!r})"


def test_a_wrapper_tensor_is_taken_apart():
    w = Around(Tensor(CUBE))
    assert is_traceable_wrapper(w)
    inner, context = flatten(w)
    assert inner == {"inner": w.inner}
    again = unflatten(Around, inner, context, w.shape, w.strides)
    assert type(again) is Around
    assert again.inner is w.inner


@pytest.mark.parametrize("inner", [CUBE, Tensor(CUBE), Is(CUBE), Wrapped(CUBE)], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_wrapper_tensor_on_the_tape(inner, requires_grad):
    w = Around(inner, requires_grad=requires_grad)
    assert w.requires_grad is requires_grad
    assert w.is_leaf
    y = ops.np.exp(w) * w
    assert y.requires_grad is requires_grad
    if requires_grad:
        y.sum().backward()
        assert type(w.grad) is Around
        np.testing.assert_allclose(bottom(w.grad), np.exp(CUBE) * (CUBE + 1))


def test_a_wrapper_tensor_in_inference_mode():
    with inference_mode():
        made = Around(Tensor(CUBE))
    with pytest.raises(AutogradError):
        made.requires_grad_()


def test_a_wrapper_tensor_needs_a_handler_and_an_array():
    class Without(WrapperTensor):
        pass

    with pytest.raises(DispatchTypeError, match="Without must define __pydispatch__"):
        Without(CUBE)
    with pytest.raises(DispatchTypeError, match="WrapperTensor must define __pydispatch__"):
        WrapperTensor(Tensor(CUBE))
    for nothing in ([1, 2], None, 3.0):
        with pytest.raises(DispatchTypeError):
            Around(nothing)
    w = Around(Tensor(CUBE))
    with pytest.raises(DispatchTypeError, match="cannot be replaced"):
        w.__init__(Tensor(CUBE))


def test_a_wrapper_tensor_in_a_cycle_is_collected():
    w = Around(Tensor(CUBE))
    w.me = w
    outer = Around(w)
    w.inner = outer
    dead = weakref.ref(w), weakref.ref(outer)
    del w, outer
    gc.collect()
    assert [reference() for reference in dead] == [None, None]


# --- is-a, has-a, and deeper -----------------------------------------------------------------------------------------

PROGRAMS = {
    "pointwise": lambda x: ops.np.exp(x) * 2 - x / 3,
    "reduction": lambda x: x.sum(axis=-1, keepdims=True) + x.mean(),
    "views": lambda x: x.reshape(-1)[::2].reshape(3, 4).T,
    "matmul": lambda x: x.reshape(6, 4) @ x.reshape(4, 6),
    "several results": lambda x: ops.np.concatenate(ops.np.split(x, 3, axis=1)[::-1], axis=1),
    "index": lambda x: ops.np.index(x, np.array([1, 0, 1])),
    "comparison": lambda x: ops.np.where(x > 3, x, -1.0),
    "in place": lambda x: ops.np.add_(x.copy(), 1.0),
    "dtype": lambda x: x.astype(np.float32) + 1,
}


WRAPS = {
    "is-a": Is,
    "has-a": Wrapped,
    "WrapperTensor": Around,
    "WrapperTensor of one": lambda x: Around(Around(Tensor(x))),
    "has has-a": lambda x: Wrapped(Wrapped(x)),
    "has is-a": lambda x: Wrapped(Is(x)),
    "has a Tensor": lambda x: Wrapped(Tensor(x)),
    "two": lambda x: Two(x, x),
    "two of has-a": lambda x: Two(Wrapped(x), Wrapped(x)),
    "has two": lambda x: Wrapped(Two(x, x)),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
@together("wrap", WRAPS.values(), ids=WRAPS.keys())
def test_programs_give_what_they_give_plain(wrap, program):
    x = wrap(CUBE.copy())
    result, expected = program(x), program(CUBE.copy())
    assert type(result) is type(x)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    assert identical(innermost(result), expected)


def innermost(value):
    while isinstance(value, Tensor):
        value = value.a if isinstance(value, Two) else getattr(value, "inner", value.array)
    return value


@pytest.mark.parametrize("cls", [Wrapped, Around])
@pytest.mark.parametrize("depth", [1, 2, 3, 10, 150])
def test_wrappers_of_wrappers(depth, cls):
    w = CUBE
    for _ in range(depth):
        w = cls(w)
    with calls_of(cls) as calls:
        result = w * 2
    assert calls == [ops.np.multiply.default] * depth
    interpreters = 0
    while isinstance(result, cls):
        interpreters, result = interpreters + 1, result.inner
    assert interpreters == depth
    np.testing.assert_array_equal(result, CUBE * 2)


@pytest.mark.parametrize("cls", [Wrapped, Around])
def test_too_many_wrappers_are_a_recursion_error(cls):
    w = CUBE
    for _ in range(20_000):
        w = cls(w)
    with pytest.raises(RecursionError):
        w * 2
    del w
    np.testing.assert_array_equal(bottom(cls(CUBE) * 2), CUBE * 2)


def test_one_handler_call_takes_off_one_wrapper():
    order = []

    class Outer(Wrapped):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            out = super().__pydispatch__(func, types, args, kwargs)
            order.append((cls, types, type(args[0].inner)))
            return out

    class Inner(Outer):
        pass

    result = ops.np.negative(Outer(Outer(Tensor(CUBE))))
    assert order == [(Outer, (Outer,), Tensor), (Outer, (Outer,), Outer)], "the inner one is finished first"
    assert type(result.inner.inner) is Tensor


def test_a_wrapper_frees_its_inner():
    gc.disable()
    try:
        inner = Tensor(CUBE.copy())
        w = Wrapped(inner)
        dead = weakref.ref(inner), weakref.ref(w)
        result = ops.np.exp(w)
        del inner, w
        assert [reference() for reference in dead] == [None, None]
        last = weakref.ref(result)
        del result
        assert last() is None
    finally:
        gc.enable()


def test_plain_and_wrapper():
    seen = []
    looks = noting_arguments(seen)
    plain, raw, w = Tensor(CUBE), CUBE, looks(CUBE)
    first, second = plain + w, raw + w
    assert seen[0][0] is plain
    assert seen[1][0] is raw
    assert type(first) is type(second) is looks
    np.testing.assert_array_equal(bottom(first), CUBE * 2)
    np.testing.assert_array_equal(bottom(second), CUBE * 2)


@pytest.mark.parametrize(("left", "right", "expected"), [
    (lambda: Wrapped(CUBE), lambda: Two(CUBE, CUBE), (Wrapped, Two)),
    (lambda: Two(CUBE, CUBE), lambda: Wrapped(CUBE), (Two, Wrapped)),
    (lambda: Is(CUBE), lambda: Wrapped(CUBE), None),
    (lambda: Wrapped(CUBE), lambda: Is(CUBE), (Wrapped, Is)),
    (lambda: Wrapped(Two(CUBE, CUBE)), lambda: Two(CUBE, CUBE), (Wrapped, Two)),
    (lambda: Two(Is(CUBE), Is(CUBE)), lambda: Is(CUBE), (Two, Is)),
], ids=["has-a, two", "two, has-a", "is-a, has-a", "has-a, is-a", "has two, two", "two of is-a, is-a"])
def test_two_classes_in_one_call(left, right, expected):
    if expected is None:    # a handler that runs the kernel on what it does not know
        with pytest.raises(DispatchTypeError):
            left() + right()
        return
    result = left() + right()
    outer, inside = expected
    assert type(result) is outer
    assert type(result.a if outer is Two else result.inner) is inside
    np.testing.assert_array_equal(innermost(result), CUBE * 2)


# --- flatten, unflatten ----------------------------------------------------------------------------------------------


class Scaled(Tensor):
    """A has-a class with a context and a shape that its inner array has not."""

    def __init__(self, codes, scale, shape):
        super().__init__(Shell(codes, shape=shape, dtype=np.float64))
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes"], {"scale": self.scale}

    @classmethod
    def __tensor_unflatten__(cls, inner, context, shape, strides):
        return cls(inner["codes"], context["scale"], shape)

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def test_flatten_and_back():
    codes = np.arange(6, dtype=np.int8)
    x = Scaled(codes, 0.5, (2, 3))
    inner, context = flatten(x)
    assert list(inner) == ["codes"]
    assert inner["codes"] is codes
    assert context == {"scale": 0.5}
    again = unflatten(Scaled, inner, context, x.shape, x.strides)
    assert type(again) is Scaled
    assert (again.shape, again.dtype, again.scale) == ((2, 3), np.float64, 0.5)
    assert again.codes is codes


def test_flatten_keeps_the_order_of_names():
    x = Two(CUBE, CUBE + 1)
    inner, context = flatten(x)
    assert list(inner) == ["a", "b"]
    assert context is None
    again = unflatten(Two, {name: -value for name, value in inner.items()}, context, x.shape, x.strides)
    np.testing.assert_array_equal(again.b, -CUBE - 1)


APART = {
    "two": (Two(CUBE, CUBE), True),
    "scaled": (Scaled(CUBE, 1.0, (24,)), True),
    "has-a": (Wrapped(CUBE), False),
    "Tensor": (Tensor(CUBE), False),
    "raw": (CUBE, False),
    "a class": (Two, False),
    "something else": (SimpleNamespace(__tensor_flatten__=1, __tensor_unflatten__=1), False),
    "None": (None, False),
}


@pytest.mark.parametrize(("value", "expected"), APART.values(), ids=APART.keys())
def test_who_can_be_taken_apart(value, expected):
    assert is_traceable_wrapper(value) is expected


def test_what_cannot_be_taken_apart():
    with pytest.raises(DispatchTypeError, match=r"Wrapped.*\n.*__tensor_flatten__"):
        flatten(Wrapped(CUBE))
    with pytest.raises(DispatchTypeError, match=r"ndarray.*\n.*__tensor_flatten__"):
        flatten(CUBE)
    with pytest.raises(DispatchTypeError, match=r"Wrapped.*\n.*__tensor_unflatten__"):
        unflatten(Wrapped, {}, None, (2,), (8,))

    class NamesANumber(Two):
        def __tensor_flatten__(self):
            return ("a", "number"), None

        number = 3

    with pytest.raises(DispatchTypeError, match=r"NamesANumber.*number.*int"):
        flatten(NamesANumber(CUBE, CUBE))
    with pytest.raises(DispatchTypeError, match=r"expected a NamesANumber, found Two"):
        unflatten(NamesANumber, {"a": CUBE, "b": CUBE}, None, CUBE.shape, CUBE.strides)


# --- the aliasing helper ---------------------------------------------------------------------------------------------


def dense(sample):
    """Return the call with Tensors over copies of its arrays."""
    return tree_map(lambda leaf: Tensor(copied(leaf)) if isinstance(leaf, np.ndarray) else leaf, tuple(sample))


def doubled(cls, sample):
    """Return the call with a Two, over two copies, in place of each Tensor."""
    return tree_map(lambda leaf: cls(leaf.array, copied(leaf.array)) if isinstance(leaf, Tensor) else leaf, sample)


def aliasing(call, result):
    """Return per result: which arguments it is, which it shares memory with, which count its writes."""
    arguments = [leaf for leaf in tree_leaves(call) if isinstance(leaf, Tensor)]
    found = []
    for leaf in tree_leaves(result):
        shares = [leaf.size > 0 and _core.have_one_memory(leaf, argument) for argument in arguments]
        found.append(([leaf is argument for argument in arguments], shares))
    return found


def counting(call, result):
    """Return per writable result: whose versions rise when it is written to."""
    arguments = [leaf for leaf in tree_leaves(call) if isinstance(leaf, Tensor)]
    rises = []
    for leaf in tree_leaves(result):
        before = [argument._version for argument in arguments]
        written = outcome(ops.np.bitwise_xor_ if leaf.dtype.kind in "biu" else ops.np.add_, (leaf, leaf), {})
        rises.append(None if is_error(written) else
                     [argument._version - count for argument, count in zip(arguments, before, strict=True)])
    return rises


def check_like_dense(operator, sample, name):
    """Check that a call on Two equals the call on Tensors, in values, identity and sharing."""
    plain_call = dense(sample)
    two_call = doubled(Two, dense(sample))
    if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(plain_call)):
        return
    plain, two = outcome(operator, *plain_call), outcome(operator, *two_call)
    assert is_error(plain) == is_error(two), (name, sample, plain, two)
    if is_error(plain):
        return
    assert aliasing(two_call, two) == aliasing(plain_call, plain), (name, sample)
    for one, other in zip(tree_leaves(two), tree_leaves(plain), strict=True):
        assert type(one) is Two, (name, sample)
        assert (one.shape, one.dtype) == (other.shape, other.dtype), (name, sample)
        assert steps(one) == steps(other), (name, sample)
        if name not in UNDEFINED:
            assert identical(one.a, other.array), (name, sample)
            assert identical(one.b, other.array), (name, sample)
    assert counting(two_call, two) == counting(plain_call, plain), (name, sample)


@pytest.mark.parametrize("name", NAMES)
def test_like_dense(name):
    for sample in samples(name):
        check_like_dense(getattr(ops.np, name), sample, name)


@pytest.mark.parametrize("name", IN_PLACE)
def test_like_dense_in_place(name):
    for sample in samples(name):
        if isinstance(sample.args[0], np.ndarray):
            check_like_dense(getattr(ops.np, VARIANTS[name].in_place), sample, name)


@pytest.mark.parametrize("name", WITH_OUT)
def test_like_dense_out(name):
    for sample in every_other_sample(name):
        expected = outcome(getattr(ops.np, name), *dense(sample))
        if not isinstance(expected, Tensor):
            continue
        out = np.zeros(expected.shape, expected.dtype)
        check_like_dense(getattr(ops.np, name), (sample.args, {**sample.kwargs, "out": out}), name)


def test_strides_of_a_slice():
    result = Two(CUBE, CUBE)[:, 1:, ::2]
    assert result.strides == CUBE[:, 1:, ::2].strides


def test_called_directly():
    w, v = Two(CUBE, CUBE), Two(CUBE, CUBE)
    fresh = object()
    assert return_and_correct_aliasing(ops.np.add_.default, (w, 1), {}, fresh) is w
    assert return_and_correct_aliasing(ops.np.add.out, (w, 1), {"out": v}, fresh) is v
    assert return_and_correct_aliasing(ops.np.add.default, (w, 1), {}, fresh) is fresh


def test_inside_a_handler():
    class Looks(Wrapped):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            inner = args[0].inner
            results.append(func(inner, *args[1:]) is inner)
            return args[0]

    results = []
    for inner in (Two(CUBE.copy(), CUBE.copy()), NaiveTwo(CUBE.copy(), CUBE.copy()), Tensor(CUBE.copy())):
        w = Looks(inner)
        assert ops.np.add_(w, 1) is w
    assert results == [True] * 3


def test_several_results_of_which_some_are_arguments(fresh, define):
    schema = "f(Tensor(v) x, *, Tensor(a!) p, Tensor(b!) q) -> (Tensor(b!), Tensor, Tensor(v), Tensor(a!), int)"
    op = define(fresh, schema)
    x, p, q, made, view = (Two(CUBE, CUBE.copy()) for _ in range(5))
    result = return_and_correct_aliasing(op, (x,), {"p": p, "q": q}, ["any", made, view, "thing", 3])
    assert type(result) is tuple
    assert [item is expected for item, expected in zip(result, (q, made, view, p, 3), strict=True)] == [True] * 5
    assert _core.have_one_memory(view, x)
    assert not _core.have_one_memory(made, x)


def test_an_argument_that_is_none_is_no_result(fresh, define):
    op = define(fresh, "f(Tensor x, *, Tensor(a!)? out=None) -> Tensor(a!)")
    made = Tensor(CUBE)
    assert return_and_correct_aliasing(op, (made,), {}, made) is made
    assert return_and_correct_aliasing(op, (made,), {"out": None}, made) is made


def test_lists_of_views(fresh, define):
    op = define(fresh, "f(Tensor(a)[] xs) -> Tensor(a)[]")
    x, y = Two(CUBE, CUBE.copy()), Two(CUBE.copy(), CUBE.copy())
    of_x, of_y, of_none = Two(x.a[0], x.b[0]), Two(y.a[0], y.b[0]), Two(CUBE.copy(), CUBE.copy())
    result = return_and_correct_aliasing(op, ((x, y),), {}, [of_y, of_x, of_none])
    assert [item is expected for item, expected in zip(result, (of_y, of_x, of_none), strict=True)] == [True] * 3
    shared = [[_core.have_one_memory(one, other) for other in (x, y)] for one in result]
    assert shared == [[False, True], [True, False], [False, False]]


def test_a_wrapper_that_cannot_be_taken_apart_shares_as_the_schema_says():
    x, y = Wrapped(CUBE), Wrapped(CUBE.reshape(-1))
    assert return_and_correct_aliasing(ops.np.reshape.default, (x, (24,)), {}, y) is y
    assert _core.have_one_memory(x, y)
    z = Wrapped(CUBE[0])
    return_and_correct_aliasing(ops.np.reshape.default, (y, (24,)), {}, z)
    assert _core.have_one_memory(x, z), "a view of a view is one of its base"


def test_classes_agree():
    two = Two(CUBE, CUBE)
    reshape = ops.np.reshape.default
    for source, result in ((two, Tensor(CUBE)), (Tensor(CUBE), two), (two, CUBE), (two, NaiveTwo(CUBE, CUBE))):
        with pytest.raises(DispatchTypeError, match=r"np::reshape.* of a,.*found"):
            return_and_correct_aliasing(reshape, (source, (24,)), {}, result)
    plain = Tensor(CUBE)
    assert return_and_correct_aliasing(reshape, (Wrapped(CUBE), (24,)), {}, plain) is plain
    assert return_and_correct_aliasing(ops.np.exp.default, (two,), {}, plain) is plain, "it is no view"


def test_an_operator_with_its_overload():
    with pytest.raises(DispatchTypeError, match=r"ops\.np\.add\.default"):
        return_and_correct_aliasing(ops.np.add, (1, 2), {}, 3)


def test_a_redefined_operator_is_analysed_anew(new_library, define):
    x = Two(CUBE, CUBE)
    with new_library() as library:
        op = define(library, "f(Tensor(a!) x) -> Tensor(a!)")
        assert return_and_correct_aliasing(op, (x,), {}, 5) is x
        library.impl("f", lambda x: x, "CPU")
        assert return_and_correct_aliasing(op, (x,), {}, 5) is x, "its table is stale"
    with new_library() as library:
        op = define(library, "f(Tensor x) -> Tensor")
        assert return_and_correct_aliasing(op, (x,), {}, 5) == 5


def test_operators_are_not_kept_alive(new_library, define):
    with new_library() as library:
        op = define(library, "f(Tensor(a!) x) -> Tensor(a!)")
        return_and_correct_aliasing(op, (Two(CUBE, CUBE),), {}, None)
        alive = weakref.ref(op)
    del op
    gc.collect()
    assert alive() is None


# --- versions, and views on the tape ---------------------------------------------------------------------------------


def test_versions_of_views():
    w = Two(CUBE.copy(), CUBE.copy())
    view, fresh, detached = w[0], w + 1, w.detach()
    ops.np.add_(w, 1)
    assert (w._version, view._version, detached._version, fresh._version) == (1, 1, 1, 0)
    ops.np.add_(view, 1)
    assert (w._version, view._version, detached._version, fresh._version) == (2, 2, 2, 0)
    ops.np.add_(detached, 1)
    assert (w._version, view._version, detached._version, fresh._version) == (3, 3, 3, 0)
    np.testing.assert_array_equal(w.a[1], CUBE[1] + 2)
    np.testing.assert_array_equal(w.b[0], CUBE[0] + 3)


def test_what_was_saved_survives_writes_to_a_view():
    w = Two(CUBE.copy(), CUBE.copy(), requires_grad=True)
    x = w * 1
    y = (x * x).sum()
    ops.np.add_(x[0].detach(), 1)
    y.backward()
    np.testing.assert_array_equal(w.grad.a, 2 * CUBE)


@pytest.mark.parametrize("target", ["view", "base"])
def test_a_view_of_a_wrapper_is_a_view_on_the_tape(target):
    w = Two(CUBE.copy(), CUBE.copy(), requires_grad=True)
    x = w * 3
    view = x.reshape(-1)[:4]
    assert _core.is_view(view)
    assert _core.is_view(x)
    with pytest.raises(AutogradError, match=r"wrapper.*\n.*copy\(\)"):
        ops.np.multiply_(view if target == "view" else x, 10)
    np.testing.assert_array_equal(x.a, CUBE * 3)
    np.testing.assert_array_equal(x.b, CUBE * 3)
    assert x._version == 0
    (x.sum() + view.sum()).backward()
    expected = np.full(24, 3.0)
    expected[:4] = 6
    np.testing.assert_array_equal(w.grad.a.reshape(-1), expected)


def test_nothing_tracked_is_written_to_a_view_of_a_wrapper():
    w, constant = Two(CUBE.copy(), CUBE.copy(), requires_grad=True), Two(CUBE.copy(), CUBE.copy())
    with pytest.raises(AutogradError, match="wrapper"):
        ops.np.add_(constant[0], w[0])
    np.testing.assert_array_equal(constant.a, CUBE)
    assert not constant.requires_grad


def test_without_the_tape_a_view_of_a_wrapper_is_written_to():
    w = Two(CUBE.copy(), CUBE.copy(), requires_grad=True)
    x = w * 3
    with no_grad():
        ops.np.multiply_(x[0], 10)
    np.testing.assert_array_equal(x.a[0], CUBE[0] * 30)
    np.testing.assert_array_equal(x.b[1], CUBE[1] * 3)
    assert x._version == 1


def test_without_the_helper_what_may_be_a_view_is_taken_for_one():
    x = NaiveTwo(CUBE.T.copy().T, CUBE.copy())
    view, copy = x[0], x.reshape(-1)
    assert _core.is_view(view)
    assert _core.is_view(copy), "though it is none, which the helper would have found out"
    assert not _core.is_view(x + 1)
    w = NaiveTwo(CUBE.copy(), CUBE.copy(), requires_grad=True) * 1
    with pytest.raises(AutogradError, match="wrapper"):
        ops.np.multiply_(w[0], 3)


def test_the_helper_tells_copies_from_views():
    w = Two(CUBE.T.copy().T, CUBE.T.copy().T, requires_grad=True) * 1
    assert not w.a.flags.c_contiguous
    view, copy = w.T.reshape(-1), w.reshape(-1)
    assert _core.have_one_memory(view, w)
    assert not _core.have_one_memory(copy, w)
    assert not _core.is_view(copy)
    ops.np.multiply_(copy, 3)
    assert (w._version, copy._version) == (0, 1)
    part = copy[:2]
    assert _core.have_one_memory(part, copy)
    assert not _core.have_one_memory(part, w)


# --- tracing ---------------------------------------------------------------------------------------------------------


def test_tracing_a_function_that_uses_a_wrapper():
    def function(a, b):
        y = ops.np.exp(Two(a, b) * Two(a, b))
        return y.a, y.b

    graph = make_fx(function)(np.ones(2), np.full(2, 2.0))
    called = [node.target for node in graph.nodes if node.op == "call_function"]
    assert called == [ops.np.multiply.default] * 2 + [ops.np.exp.default] * 2
    a, b = graph(np.zeros(2), np.ones(2))
    np.testing.assert_array_equal(a, np.ones(2))
    np.testing.assert_array_equal(b, np.exp(np.ones(2)))
