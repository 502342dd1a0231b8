"""vmap's arguments and results: what fits together, what does not, chunks.

The oracle is a loop over the examples.
"""

import functools
import sys
from typing import NamedTuple

import numpy as np
import pytest

from pydispatch import Tensor, _core, autograd, ops
from pydispatch.exceptions import AutogradError, DispatchError, VmapError
from pydispatch.func import grad, vmap
from pydispatch.tree import register_pytree_node, tree_leaves, tree_map
from tests.comparing import raw
from tests.together import together

X = np.arange(12.0).reshape(3, 4)
Y = np.linspace(-1, 1, 12).reshape(3, 4) ** 3


class Pair(NamedTuple):
    left: object
    right: object


class Box:
    """A container that is registered for these tests."""

    def __init__(self, content, label):
        self.content = content
        self.label = label


register_pytree_node(Box, lambda box: ([box.content], box.label), lambda children, label: Box(*children, label))


def equal(actual, expected):
    np.testing.assert_array_equal(actual, expected, strict=True)


def same_trees(actual, expected):
    """Assert equal containers and arrays, raw where the expected ones are raw."""
    pairs = zip(tree_leaves(actual), tree_leaves(expected), strict=True)
    assert tree_map(type, actual) == tree_map(type, expected)
    for found, wanted in pairs:
        equal(raw(found), raw(wanted))


def looped(f, in_dims, out_dims, *arrays):
    """Return the result of vmap for flat arguments and one result, by a loop."""
    size = next(a.shape[d] for a, d in zip(arrays, in_dims, strict=True) if d is not None)
    examples = [
        f(*[a if d is None else np.take(a, i, axis=d) for a, d in zip(arrays, in_dims, strict=True)])
        for i in range(size)
    ]
    return np.stack([np.asarray(raw(example)) for example in examples], axis=out_dims)


def bad(error, match, call, id):
    return pytest.param(error, match, call, id=id)


def ident(x):
    return x


# --- what is refused -------------------------------------------------------------------------------------------------

REFUSED = [
    bad(VmapError, "randomness is 'often', expected 'error', 'same' or 'different'",
        lambda: vmap(ident, randomness="often"), "another randomness"),
    bad(VmapError, "randomness is None", lambda: vmap(ident, randomness=None), "no randomness"),
    bad(ValueError, "chunk_size is 0, expected a positive int", lambda: vmap(ident, chunk_size=0), "chunk_size: zero"),
    bad(ValueError, "chunk_size is -2", lambda: vmap(ident, chunk_size=-2), "chunk_size: negative"),
    bad(ValueError, "chunk_size is True", lambda: vmap(ident, chunk_size=True), "chunk_size: bool"),
    bad(ValueError, "chunk_size is 1.5", lambda: vmap(ident, chunk_size=1.5), "chunk_size: float"),
    bad(ValueError, "out_dims is 'a', in which 'a' is neither", lambda: vmap(ident, 0, "a")(X), "out_dims: str"),
    bad(ValueError, r"out_dims is \(0, 1.5\), in which 1.5 is neither",
        lambda: vmap(lambda x: (x, x), 0, (0, 1.5))(X), "out_dims: float in a tuple"),
    bad(ValueError, "in which True is neither", lambda: vmap(ident, 0, True)(X), "out_dims: bool"),
    bad(ValueError, r"in_dims is \[0\], expected an int, or a tuple", lambda: vmap(ident, [0])(X), "in_dims: list"),
    bad(ValueError, "in_dims is 'a', expected an int", lambda: vmap(ident, "a")(X), "in_dims: str"),
    bad(ValueError, "in_dims is None, expected an int", lambda: vmap(ident, None)(X), "in_dims: None"),
    bad(ValueError, "in_dims is {'x': 0}, expected an int", lambda: vmap(ident, {"x": 0})(X), "in_dims: dict"),
    bad(ValueError, "in_dims is 0.0, expected an int", lambda: vmap(ident, 0.0)(X), "in_dims: float"),
    bad(ValueError, "expected a positional argument", lambda: vmap(lambda: X)(), "no arguments: nothing"),
    bad(ValueError, "expected a positional argument", lambda: vmap(lambda *, x: x)(x=X), "no arguments: by keyword"),
    bad(ValueError, r"in_dims is \(0, 0\), but the arguments are \(\*,\): ",
        lambda: vmap(ident, (0, 0))(X), "in_dims: too many"),
    bad(ValueError, r"in_dims is \(0,\), but the arguments are \(\*, \*\): ",
        lambda: vmap(np.add, (0,))(X, X), "in_dims: too few"),
    bad(ValueError, r"in_dims is \(\), but the arguments", lambda: vmap(ident, ())(X), "in_dims: empty"),
    bad(ValueError, r"the arguments are \(\(\*, \*\),\)", lambda: vmap(ident, ([0, 0],))((X, X)),
        "in_dims: list for tuple"),
    bad(ValueError, r"the arguments are \(\[\*, \*\],\)", lambda: vmap(ident, ((0, 0),))([X, X]),
        "in_dims: tuple for list"),
    bad(ValueError, r"the arguments are \(\{'a': \*\},\)", lambda: vmap(ident, ({"b": 0},))({"a": X}),
        "in_dims: other key"),
    bad(ValueError, r"in_dims is \(\(0,\),\)", lambda: vmap(ident, ((0,),))(X), "in_dims: deeper than the argument"),
    bad(ValueError, r"the arguments are \(Pair\(\*, \*\),\)", lambda: vmap(ident, ((0, 0),))(Pair(X, X)),
        "in_dims: tuple for a named tuple"),
    bad(ValueError, r"in_dims is \(0.5,\), in which 0.5 is neither", lambda: vmap(ident, (0.5,))(X),
        "in_dims leaf: float"),
    bad(ValueError, r"in_dims is \('x',\), in which 'x' is neither", lambda: vmap(ident, ("x",))(X),
        "in_dims leaf: str"),
    bad(ValueError, r"in_dims is True, expected", lambda: vmap(ident, True)(X), "in_dims: bool"),
    bad(ValueError, r"in_dims is \(False,\), in which False is neither", lambda: vmap(ident, (False,))(X),
        "in_dims leaf: bool in a tuple"),
    bad(ValueError, "argument 1 is of type float, expected an array, because in_dims has 0 for it\nwrite None",
        lambda: vmap(lambda x, y: x)(X, 2.0), "argument: a number"),
    bad(ValueError, r"argument 0\['b'\]\[1\] is of type str, expected an array",
        lambda: vmap(ident)({"a": X, "b": [X, "text"]}), "argument: nested"),
    bad(ValueError, "argument 0 is of type NoneType", lambda: vmap(ident)(None), "argument: None"),
    bad(ValueError, r"in_dims has 2 for argument 0, which has shape \(3, 4\) and no such axis\n.*-2 to 1",
        lambda: vmap(ident, 2)(X), "axis: too large"),
    bad(ValueError, "in_dims has -3 for argument 0", lambda: vmap(ident, -3)(Tensor(X)), "axis: too small"),
    bad(ValueError, r"in_dims has 0 for argument 0, which has shape \(\) .*\nwrite None for it",
        lambda: vmap(ident)(np.array(1.0)), "axis: no axis"),
    bad(ValueError, "in_dims has 0 for argument 0", lambda: vmap(ident)(np.float64(1.0)), "axis: scalar of NumPy"),
    bad(ValueError, "needs one to find", lambda: vmap(ident, (None,))(X), "nothing batched: None for all"),
    bad(ValueError, "needs one to find", lambda: vmap(ident, ((None, None),))((X, X)), "nothing batched: nested"),
    bad(ValueError, "needs one to find", lambda: vmap(ident)({}), "nothing batched: no leaves"),
    bad(ValueError, "different numbers of examples: 3 in argument 0, 4 in argument 1",
        lambda: vmap(np.add, (0, 1))(X, X), "sizes: two sizes"),
    bad(ValueError, r"3 in argument 0\['a'\], 4 in argument 0\['b'\], 3 in argument 1",
        lambda: vmap(np.add, ({"a": 0, "b": 1}, 0))({"a": X, "b": X}, X), "sizes: nested"),
    bad(ValueError, r"out_dims is \(0, 0\), but the function returned \*: ",
        lambda: vmap(ident, 0, (0, 0))(X), "two for one array"),
    bad(ValueError, r"out_dims is \(0,\), but the function returned \(\*, \*\)",
        lambda: vmap(lambda x: (x, x), 0, (0,))(X), "too few"),
    bad(ValueError, r"out_dims is \[0, 0\], but the function returned \(\*, \*\)",
        lambda: vmap(lambda x: (x, x), 0, [0, 0])(X), "list for tuple"),
    bad(ValueError, "the function returned {'a': \\*}", lambda: vmap(lambda x: {"a": x}, 0, {"b": 0})(X), "other key"),
    bad(ValueError, "the result is of type float, expected an array", lambda: vmap(lambda x: 2.0)(X), "float"),
    bad(ValueError, r"the result\[1\] is of type int", lambda: vmap(lambda x: (x, 2))(X), "int in a tuple"),
    bad(ValueError, "the result is of type NoneType", lambda: vmap(lambda x: None)(X), "None"),
    bad(ValueError, r"the result\['b'\] is of type str", lambda: vmap(lambda x: {"a": x, "b": "c"})(X), "str"),
    bad(ValueError, "is batched, but out_dims has None", lambda: vmap(ident, 0, None)(X), "batched"),
    bad(ValueError, r"the result\[1\] is batched", lambda: vmap(lambda x: (x, x), 0, (0, None))(X), "nested"),
    bad(np.exceptions.AxisError, r"out_dims has 2 for the result, which has 2 axes, .*\nwrite an axis from -2 to 1",
        lambda: vmap(ident, 0, 2)(X), "too large"),
    bad(IndexError, "out_dims has -3", lambda: vmap(ident, 0, -3)(X), "out_dims: too small"),
    bad(IndexError, "out_dims has 1 for the result, which has 1 axes", lambda: vmap(lambda x: np.array(1.0), 0, 1)(X),
        "unbatched"),
    bad(ValueError, "out_dims is None, but each result needs an axis to join chunks",
        lambda: vmap(lambda x: X, 0, None, chunk_size=2)(X), "out_dims with chunks: None"),
    bad(ValueError, r"out_dims is \(0, None\), but each", lambda: vmap(ident, 0, (0, None), chunk_size=1)(X),
        "out_dims with chunks: None in a tuple"),
]


@pytest.mark.parametrize(("error", "match", "call"), REFUSED)
def test_refused_arguments_of_vmap(error, match, call):
    with pytest.raises(error, match=match) as raised:
        call()
    first, _, remedy = str(raised.value).partition("\n")
    assert first.startswith("vmap: ")
    assert remedy


def test_a_refusal_is_an_error_of_the_dispatcher_and_a_runtime_error():
    assert issubclass(VmapError, DispatchError)
    assert issubclass(VmapError, RuntimeError)


ORDER = [
    pytest.param({"out_dims": "a", "in_dims": [0]}, (X,), "out_dims is 'a'", id="out_dims before in_dims"),
    pytest.param({"in_dims": [0]}, (), "in_dims is", id="in_dims before no arguments"),
    pytest.param({"in_dims": (0, 0)}, (), "expected a positional", id="no arguments before in_dims"),
    pytest.param({"in_dims": (0.5, 0)}, (X,), "the arguments are", id="in_dims before in_dims leaf"),
    pytest.param({"in_dims": (0, 0.5)}, (1.0, X), "0.5 is neither", id="in_dims leaf before argument"),
    pytest.param({"in_dims": (0, 7)}, (1.0, X), "is of type float", id="argument before axis"),
    pytest.param({"in_dims": (7, 0, 1)}, (X, X, X), "in_dims has 7", id="axis before sizes"),
]


@pytest.mark.parametrize(("options", "args", "match"), ORDER)
def test_the_first_thing_that_is_wrong_is_told(options, args, match):
    with pytest.raises(ValueError, match=match):
        vmap(lambda *xs: xs[0], **options)(*args)


@pytest.mark.parametrize("options", [
    pytest.param({"out_dims": "a"}, id="out_dims"), pytest.param({"in_dims": [0]}, id="in_dims"),
    pytest.param({"in_dims": (0.5,)}, id="in_dims leaf"),
])
def test_axes_are_looked_at_when_the_function_is_called(options):
    vmap(ident, **options)


@pytest.mark.parametrize("call", [
    pytest.param(lambda f: vmap(f, (0, 0))(X), id="in_dims"), pytest.param(lambda f: vmap(f, 5)(X), id="axis"),
    pytest.param(lambda f: vmap(f)(X, 3), id="argument"), pytest.param(lambda f: vmap(f, 0, "a")(X), id="out_dims"),
    pytest.param(lambda f: vmap(f, 0, None, chunk_size=2)(X), id="out_dims with chunks"),
])
def test_a_call_that_is_refused_does_not_run_the_function(call):
    with pytest.raises(ValueError, match="vmap"):
        call(lambda *args: pytest.fail("the function ran"))


# --- what is mapped --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, Tensor], ids=["raw", "tensor"])
@pytest.mark.parametrize("out_dim", [0, 1, 2, -1, -2, -3])
@together("in_dim", [0, 1, 2, -1, -2, -3])
def test_every_axis(kind, in_dim, out_dim):
    x = np.arange(24.0).reshape(2, 3, 4)
    result = vmap(lambda v: v * 2, in_dim, out_dim)(kind(x))
    assert type(result) is type(kind(x))
    equal(raw(result), looped(lambda v: v * 2, (in_dim,), out_dim, x))


@pytest.mark.parametrize("dims", [(0, 0), (0, 1), (1, 0), (-1, -2), (None, 0), (1, None)])
def test_axes_of_two_arguments(dims):
    a, b = np.arange(9.0).reshape(3, 3), np.linspace(0, 1, 9).reshape(3, 3)
    f = lambda u, v: u * v - v  # noqa: E731
    equal(vmap(f, dims)(a, b), looped(f, dims, 0, a, b))


@pytest.mark.parametrize("dim", [np.int64(1), np.int8(-1)], ids=repr)
def test_an_axis_may_be_an_int_of_numpy(dim):
    equal(vmap(ident, dim, np.int64(0))(X), X.T)
    equal(vmap(ident, (dim,), (np.int64(0),))(X), X.T)


def test_in_dims_nested_as_the_arguments():
    params = {"w": X, "b": [Y, 2.0]}
    f = lambda p, q: p["w"] * q[0] + p["b"][0] * p["b"][1] - q[1]  # noqa: E731
    found = vmap(f, ({"w": 0, "b": [1, None]}, (None, 0)))({"w": X, "b": [Y.T, 2.0]}, (np.arange(4.0), np.arange(3.0)))
    expected = np.stack([X[i] * np.arange(4.0) + params["b"][0][i] * 2.0 - i for i in range(3)])
    equal(found, expected)


def test_a_dict_may_have_its_keys_in_another_order():
    found = vmap(lambda d: d["a"] - 10 * d["b"], ({"b": None, "a": 0},), {"c": 0}["c"])({"a": X, "b": np.arange(4.0)})
    equal(found, X - 10 * np.arange(4.0))
    found = vmap(lambda x: {"a": x, "b": X}, 0, {"b": None, "a": 1})(X)
    equal(found["a"], X.T)
    equal(found["b"], X)


def test_one_int_for_all_that_an_argument_holds():
    f = lambda tree, y: tree["a"][0] + tree["a"][1] * tree["b"] - y  # noqa: E731
    tree = {"a": (X, Y), "b": np.arange(3.0)}
    expected = X + Y * np.arange(3.0)[:, None] - 1
    equal(vmap(f, (0, None))(tree, 1.0), expected)
    equal(vmap(f)(tree, np.ones(3)), expected)
    equal(vmap(f, ({"a": 0, "b": 0}, None))(tree, 1.0), expected)


def test_in_dims_of_a_registered_class_and_of_a_named_tuple():
    box = Box(X, "label")
    seen = vmap(lambda b, p: (Box(b.content * 2, b.label), p), (0, Pair(1, None)), (0, Pair(0, None)))(
        box, Pair(Y.T, 5))
    assert isinstance(seen[0], Box)
    assert seen[0].label == "label"
    equal(seen[0].content, X * 2)
    assert type(seen[1]) is Pair
    equal(seen[1].left, Y)
    assert seen[1].right == 5


def test_what_is_not_mapped_and_no_array_arrives_as_it_is():
    marker = object()

    def f(x, a, b, *, c):
        assert a is marker
        assert b == [1, "text", None]
        assert c is marker
        return x

    equal(vmap(f, (0, None, None))(X, marker, [1, "text", None], c=marker), X)


def test_arrays_that_are_not_mapped_are_tensors_inside_that_a_batched_index_fits():
    table, index = np.arange(10.0) ** 2, np.array([3, 1, 4])

    def f(i, t, *, u):
        assert type(t) is Tensor
        assert t.shape == (10,)
        return t[i] + u["table"][i]

    equal(vmap(f, (0, None))(index, table, u={"table": table}), 2 * table[index])


def test_keyword_arguments_are_not_mapped():
    found = vmap(lambda x, *, y: x + y)(X, y=np.arange(4.0))
    equal(found, X + np.arange(4.0))
    found = vmap(lambda x, *, y: (x, y), out_dims=(0, None))(X[:, 0], y=X)
    equal(found[1], X)


def test_a_batch_of_size_zero():
    calls = []
    found = vmap(lambda x, y: calls.append(x.shape) or (x * 2 + y).sum())(np.ones((0, 4)), np.ones((0, 4)))
    assert calls == [(4,)]
    equal(found, np.ones(0))
    found = vmap(lambda x: ops.np.ones(2), 1, 1)(np.ones((3, 0)))
    equal(found, np.ones((2, 0)))


@pytest.mark.parametrize("size", [0, 1, 3])
def test_the_function_is_called_once(size):
    calls = []
    vmap(lambda x: calls.append(1) or x)(np.ones((size, 2)))
    assert calls == [1]


def test_metadata_inside_is_that_of_one_example():
    def f(x):
        assert (x.shape, x.ndim, x.size, len(x), x.dtype) == ((5, 2), 2, 10, 5, np.float32)
        assert x.strides == (8, 4)
        return x

    vmap(f)(np.ones((3, 5, 2), np.float32))


def test_wraps():
    def documented(x):
        """Do what it does."""
        return x

    batched = vmap(documented)
    assert batched.__name__ == "documented"
    assert batched.__doc__ == "Do what it does."
    assert batched.__wrapped__ is documented


@pytest.mark.parametrize("f", [ops.np.sin, ops.np.sin.default, functools.partial(ops.np.add, 1.0)],
                         ids=["operator", "overload", "partial"])
def test_callables_of_any_kind(f):
    equal(vmap(f)(X), f(X))


def test_a_ufunc_of_numpy_is_the_operator_of_that_name():
    equal(vmap(np.sin)(X), np.sin(X))
    equal(vmap(np.add.accumulate)(X), np.add.accumulate(X, 1))


def test_as_a_decorator_of_a_method():
    class Model:
        scale = 3.0

        @functools.partial(vmap, in_dims=(None, 0))
        def apply(self, x):
            return x * self.scale

    equal(Model().apply(X), X * 3.0)


# --- what is returned ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("out_dims", [0, (0,), (0, 0), ((0, 0), 0)], ids=repr)
def test_out_dims_of_tuples(out_dims):
    returned = {0: lambda x: x * 2, (0,): lambda x: (x * 2,)}.get(out_dims, lambda x: ((x, x * 2), x * 3))
    if out_dims == (0, 0):
        returned = lambda x: (x, x * 2)  # noqa: E731
    found = vmap(returned, 0, out_dims)(X)
    expected = tree_map(lambda leaf: leaf, returned(X))
    same_trees(found, expected)


@pytest.mark.parametrize("out_dim", [0, (0,), 1, (1,), -1])
def test_one_array(out_dim):
    axis = out_dim[0] if isinstance(out_dim, tuple) else out_dim
    equal(vmap(lambda x: x * 2, 0, out_dim)(X), np.moveaxis(X * 2, 0, axis))


@pytest.mark.parametrize("container", [
    pytest.param(lambda a, b: (a, b), id="tuple"), pytest.param(lambda a, b: [a, b], id="list"),
    pytest.param(lambda a, b: {"z": a, "a": b}, id="dict"), pytest.param(Pair, id="named tuple"),
    pytest.param(lambda a, b: {"x": [a, (b,)], "y": ()}, id="nested"),
])
@pytest.mark.parametrize("out_dim", [0, 1])
def test_one_int_for_all_results(container, out_dim):
    found = vmap(lambda x: container(x * 2, x + 1), 0, out_dim)(X)
    same_trees(found, container(np.moveaxis(X * 2, 0, out_dim), np.moveaxis(X + 1, 0, out_dim)))


def test_what_is_no_array_is_passed_through_for_none():
    marker = object()
    found = vmap(lambda x: {"a": x, "b": [marker, 3, None, "text"]}, 0, {"a": 0, "b": None})(X)
    equal(found["a"], X)
    assert found["b"] == [marker, 3, None, "text"]
    assert vmap(lambda x: None, 0, None)(X) is None


def test_a_result_that_does_not_depend_on_the_example_is_repeated_in_a_new_array():
    c = np.arange(4.0)
    for out_dim in (0, 1, -1):
        found = vmap(lambda x: c, 0, out_dim)(X)
        equal(found, np.moveaxis(np.broadcast_to(c, (3, 4)), 0, out_dim))
        found[0] += 1       # as in the array that a loop fills
        equal(c, np.arange(4.0))
        equal(found[1:], np.moveaxis(np.broadcast_to(c, (3, 4)), 0, out_dim)[1:])
    found = vmap(lambda x: Tensor(c))(Tensor(X))
    assert type(found) is Tensor
    equal(found.array, np.broadcast_to(c, (3, 4)))
    equal(vmap(lambda x: np.float64(2.5))(X), np.full(3, 2.5))


def test_a_result_that_does_not_depend_on_the_example_is_returned_as_it_is():
    c, t = np.arange(4.0), Tensor(np.arange(2.0))
    assert vmap(lambda x: c, 0, None)(X) is c
    assert vmap(lambda x: t, 0, None)(Tensor(X)) is t
    assert vmap(lambda x, y: y, (0, None), None)(X, c) is c
    assert vmap(lambda x, y: y, (0, None), None)(Tensor(X), t) is t


def test_the_same_result_twice_and_the_argument_itself():
    found = vmap(lambda x: (x, x, [x * 2] * 2))(X)
    assert found[0] is X
    assert found[1] is X
    equal(found[2][0], X * 2)
    equal(found[2][1], X * 2)


def test_the_argument_returned_is_the_same_object_or_a_view_of_it():
    t = Tensor(X)
    assert vmap(ident)(X) is X
    assert vmap(ident)(t) is t
    assert vmap(ident, -2, -2)(X) is X
    assert np.shares_memory(vmap(ident, 1, 0)(X), X)
    equal(vmap(ident, 1, 0)(X), X.T)
    assert np.shares_memory(vmap(ident, 1, 1)(X), X)
    equal(vmap(ident, 1, 1)(X), X)
    assert np.shares_memory(vmap(ident, 0, 1)(t).array, X)


def test_in_place_on_a_mapped_argument_is_seen_by_the_caller():
    x, t = X.copy(), Tensor(X.copy())
    assert vmap(lambda v: ops.np.add_(v, 1.0))(x) is x
    equal(x, X + 1.0)
    assert vmap(lambda v: ops.np.add_(v, 1.0))(t) is t
    equal(t.array, X + 1.0)
    vmap(lambda v: ops.np.multiply_(v, 2.0), 1, 1)(x)
    equal(x, (X + 1.0) * 2.0)


PASSED = [
    pytest.param((X, Y), {}, np.ndarray, id="raw arrays"),
    pytest.param((Tensor(X), Tensor(Y)), {}, Tensor, id="Tensors"),
    pytest.param((X, Tensor(Y)), {}, Tensor, id="one of each"),
    pytest.param((X, [Tensor(Y)]), {}, Tensor, id="a Tensor in a list"),
    pytest.param((X, {"a": (Y,)}), {}, np.ndarray, id="a raw array in containers"),
    pytest.param((X, Y), {"c": Tensor(Y[0])}, Tensor, id="a Tensor by keyword"),
    pytest.param((X, Y), {"c": [Y[0]]}, np.ndarray, id="raw arrays by keyword"),
]


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize(("args", "kwargs", "kind"), PASSED)
def test_what_is_passed_is_what_is_returned(args, kwargs, kind, chunk_size):
    outcome = vmap(lambda *xs, **named: (tree_leaves(xs)[0] * 2, {"constant": ops.np.ones(2)}), chunk_size=chunk_size)(
        *args, **kwargs)
    assert [type(leaf) for leaf in tree_leaves(outcome)] == [kind] * 2
    equal(raw(outcome[0]), X * 2)
    equal(raw(outcome[1]["constant"]), np.ones((3, 2)))


def test_flat_and_nested_arguments_give_the_same():
    c = Tensor(np.arange(4.0))
    for x in (X, Tensor(X)):
        for f in (lambda v: v * c, lambda v: (v, c), lambda v: c, lambda v: (v * 2, v + c)):
            same_trees(vmap(lambda tree, f=f: f(tree["v"]))({"v": x}), vmap(f)(x))


def test_a_tracked_tensor_that_is_captured_makes_the_result_tracked():
    w = Tensor(np.arange(4.0), requires_grad=True)
    found = vmap(lambda x: x * w)(X)
    assert type(found) is Tensor
    (gradient,) = autograd.grad(found.sum(), w)
    equal(gradient.array, X.sum(0))


@pytest.mark.parametrize("dims", [(0, 0), (1, 0), (0, 1), (-1, -1)])
def test_gradients_go_through_the_axes(dims):
    x = Tensor(X, requires_grad=True)
    weights = np.arange(12.0).reshape(vmap(ident, *dims)(X).shape)
    (gradient,) = autograd.grad((vmap(lambda v: v * v, *dims)(x) * weights).sum(), x)
    order = np.moveaxis(np.moveaxis(weights, dims[1], 0), 0, dims[0])
    equal(gradient.array, 2 * X * order)


def test_a_value_of_an_outer_level_is_returned_as_it_is_or_repeated():
    found = vmap(lambda x: vmap(lambda y: (x, y), out_dims=(None, 0))(np.arange(2.0)))(np.arange(3.0))
    equal(found[0], np.arange(3.0))
    equal(found[1], np.broadcast_to(np.arange(2.0), (3, 2)))
    found = vmap(lambda x: vmap(lambda y: x)(np.arange(2.0)))(np.arange(3.0))
    equal(found, np.repeat(np.arange(3.0)[:, None], 2, axis=1))
    assert grad(lambda x: vmap(lambda y: x)(np.arange(2.0)).sum())(np.array(1.5)) == 2.0


def test_messages_name_the_line_of_the_call():
    line = sys._getframe().f_lineno + 2
    with pytest.raises(DispatchError, match=rf"vmap, called at .*test_vmap\.py:{line}"):
        vmap(lambda x: bool(x))(np.ones(3))
    line = sys._getframe().f_lineno + 2
    with pytest.raises(DispatchError, match=rf"vmap, called at .*test_vmap\.py:{line}"):
        vmap(lambda x: bool(x["a"]))({"a": np.ones(3)})


# --- chunks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("out_dim", [0, 1, -1])
@pytest.mark.parametrize("kind", [np.asarray, Tensor], ids=["raw", "tensor"])
@together("chunk_size", [1, 2, 3, 4, 5, 6, 7])
def test_chunks_of_every_size(chunk_size, out_dim, kind):
    x, y = np.arange(12.0).reshape(2, 6), np.linspace(0, 1, 18).reshape(6, 3)
    f = lambda tree, c: {"sum": tree["x"].sum() * tree["y"] + c, "all": [tree["x"]]}  # noqa: E731
    in_dims = ({"x": 1, "y": 0}, None)
    sizes = []

    def counting(tree, c):
        sizes.append(tree["x"])
        return f(tree, c)

    found = vmap(counting, in_dims, out_dim, chunk_size=chunk_size)({"x": kind(x), "y": kind(y)}, np.ones(3))
    expected = [f({"x": x[:, i], "y": y[i]}, np.ones(3)) for i in range(6)]
    same_trees(found, {
        "sum": kind(np.stack([e["sum"] for e in expected], axis=out_dim)),
        "all": [kind(np.stack([e["all"][0] for e in expected], axis=out_dim))],
    })
    assert len(sizes) == -(-6 // chunk_size)


def test_results_that_do_not_depend_on_the_example():
    c = np.arange(2.0)
    equal(vmap(lambda x: c, 0, 1, chunk_size=2)(X), np.broadcast_to(c[:, None], (2, 3)))


def test_the_batch_sizes_that_levels_have():
    def sizes_of(chunk_size):
        sizes = []
        vmap(lambda x: sizes.append(_core.array_of(x).shape[0]) or x, chunk_size=chunk_size)(X)
        return sizes

    assert sizes_of(1) == [1, 1, 1]
    assert sizes_of(2) == [2, 1]
    assert sizes_of(3) == sizes_of(4) == sizes_of(None) == [3]


def test_none_in_out_dims_where_one_chunk_is_all():
    c = np.arange(2.0)
    assert vmap(lambda x: c, 0, None, chunk_size=3)(X) is c


def test_in_place_on_chunks_is_seen_by_the_caller():
    x = X.copy()
    vmap(lambda v: ops.np.add_(v, 1.0), chunk_size=2)(x)
    equal(x, X + 1.0)


def test_chunks_keep_gradients():
    x = Tensor(X, requires_grad=True)
    (gradient,) = autograd.grad(vmap(lambda v: v * v, chunk_size=2)(x).sum(), x)
    equal(gradient.array, 2 * X)
    equal(grad(lambda v: vmap(lambda row: row * row, 1, chunk_size=3)(v).sum())(X), 2 * X)


def test_an_empty_batch_in_chunks():
    equal(vmap(lambda x: x * 2, chunk_size=2)(np.ones((0, 4))), np.ones((0, 4)))


def test_chunks_that_return_other_containers():
    containers = iter([lambda x: [x], lambda x: (x,)])
    with pytest.raises(ValueError, match=r"two chunks: \[\*\] and \(\*,\)"):
        vmap(lambda x: next(containers)(x), chunk_size=2)(X)


@pytest.mark.parametrize("chunk_size", [1, 2])
def test_same_draws_in_all_chunks(chunk_size):
    def run(chunk_size):
        first, second = np.random.default_rng(1), np.random.default_rng(2)
        first.random(3)

        def f(x):
            a = ops.np.random_normal(first, size=(2,))
            b = ops.np.random_uniform(second, size=(2,))
            return x.sum() * 0 + a + b * ops.np.random_normal(first)

        found = vmap(f, randomness="same", chunk_size=chunk_size)(X)
        return found, first.bit_generator.state, second.bit_generator.state

    whole, chunked = run(None), run(chunk_size)
    equal(chunked[0], whole[0])
    assert chunked[1:] == whole[1:]


def test_same_draws_at_an_inner_level():
    def run(chunk_size):
        generator = np.random.default_rng(1)
        inner = vmap(lambda y: y * 0 + ops.np.random_normal(generator), randomness="different")
        return vmap(inner, randomness="same", chunk_size=chunk_size)(X)

    equal(run(2), run(None))
    assert len(np.unique(run(2))) == 4


def test_different_draws_go_on_from_chunk_to_chunk():
    def run(chunk_size):
        generator = np.random.default_rng(1)
        return vmap(lambda x: x * 0 + ops.np.random_normal(generator), randomness="different", chunk_size=chunk_size)(X)

    equal(run(2), run(None))
    assert len(np.unique(run(2))) == 3


def test_a_generator_is_left_as_it_was_when_a_draw_is_refused():
    generator = np.random.default_rng(1)
    before = generator.bit_generator.state
    for chunk_size in (None, 1):
        with pytest.raises(VmapError, match="random"):
            vmap(lambda x: x + ops.np.random_normal(generator), chunk_size=chunk_size)(X)
    assert generator.bit_generator.state == before


# --- autograd.grad of a batch of cotangents --------------------------------------------------------------------------


def test_needs_a_cotangent():
    x = Tensor(X, requires_grad=True)
    with pytest.raises(AutogradError, match="needs a cotangent to find the size of the batch"):
        autograd.grad((x * x).sum(), x, is_grads_batched=True)
