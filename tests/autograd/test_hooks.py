"""Hooks on tensors, on nodes, after accumulation, and on several tensors at once."""

import gc
import threading
import weakref

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.autograd import Function, backward, detect_anomaly, enable_grad, grad, no_grad, register_multi_grad_hook
from pydispatch.exceptions import AutogradError, DispatchError
from tests.autograd.leaves import assert_gradient, constant, leaf
from tests.together import together

NP = ops.np


class Silent(Function):
    """The identity, which passes no gradient on."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        return None


# --- which run, and in which order -----------------------------------------------------------------------------------

RUNS = {
    "backward": (lambda a, y, z: z.backward(), ["tensor", "pre", "post", "leaf", "accumulated"]),
    "backward to the leaf": (lambda a, y, z: z.backward(inputs=[a]), ["tensor", "pre", "post", "leaf", "accumulated"]),
    "backward to the result": (lambda a, y, z: z.backward(inputs=[y]), ["tensor", "pre", "post"]),
    "grad of the result": (lambda a, y, z: grad(z, [y]), ["tensor"]),
    "grad of the leaf": (lambda a, y, z: grad(z, [a]), ["tensor", "pre", "post", "leaf"]),
}


@pytest.mark.parametrize("run", RUNS)
def test_hooks_run_in_this_order(run):
    log = []
    a = leaf([1.0])
    y = a * 2.0
    z = y * 3.0
    a.register_post_accumulate_grad_hook(lambda tensor: log.append("accumulated"))
    a.register_hook(lambda g: log.append("leaf"))
    y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: log.append("post"))
    y.grad_fn.register_prehook(lambda grad_outputs: log.append("pre"))
    y.register_hook(lambda g: log.append("tensor"))
    start, expected = RUNS[run]
    start(a, y, z)
    assert log == expected


def test_hooks_of_one_kind_run_in_order_each_on_the_result_of_the_last():
    x, seen = leaf([1.0]), []

    def times(factor):
        def hook(g):
            seen.append(g.item())
            return g * factor
        return hook

    y = x * 2.0
    for factor in (3.0, 5.0):
        y.register_hook(times(factor))
    for factor in (7.0, 11.0):
        y.grad_fn.register_prehook(lambda g, factor=factor: (times(factor)(g[0]),))
    for factor in (13.0, 17.0):
        y.grad_fn.register_hook(lambda g, _, factor=factor: (times(factor)(g[0]), *g[1:]))
    for factor in (19.0, 23.0):
        x.register_hook(times(factor))
    y.backward()
    products = np.cumprod([1.0, 3.0, 5.0, 7.0, 11.0 * 2.0, 13.0, 17.0, 19.0, 23.0])
    assert seen == products[:-1].tolist()
    assert_gradient(x.grad, [products[-1]])


def test_a_hook_sees_the_sum_of_all_uses():
    seen, y = [], leaf([1.0]) * 2.0
    y.register_hook(seen.append)
    (y * 3.0 + NP.square(y)).backward()
    assert len(seen) == 1
    assert_gradient(seen[0], [7.0])


def test_a_leafs_hook_runs_once_for_the_sum_of_all_uses():
    x, seen = leaf([1.0]), []
    x.register_hook(seen.append)
    (x * 3.0 + x * 4.0).backward()
    assert len(seen) == 1
    assert_gradient(seen[0], [7.0])


def test_hooks_of_the_output_itself():
    x, seen = leaf([1.0]), []
    y = x * 2.0
    y.register_hook(lambda g: seen.append(g) or g * 10.0)
    y.backward(np.array([3.0]))
    assert_gradient(seen[0], [3.0])
    assert_gradient(x.grad, [60.0])


def test_hooks_of_an_output_that_is_a_leaf():
    x = leaf([1.0])
    x.register_hook(lambda g: g * 10.0)
    x.backward(np.array([3.0]))
    assert_gradient(x.grad, [30.0])


def test_grad_gives_what_the_hooks_of_the_input_made_of_it():
    x = leaf([1.0])
    y = x * 2.0
    y.register_hook(lambda g: g * 10.0)
    x.register_hook(lambda g: g * 100.0)
    by_y, by_x = grad(y * 3.0, [y, x])
    assert_gradient(by_y, [30.0])
    assert_gradient(by_x, [6000.0])


def test_hooks_of_one_of_several_results():
    x, seen = leaf([1.0, 2.0]), []
    first, second = NP.split(x, 2)
    assert first.grad_fn is second.grad_fn
    second.register_hook(lambda g: seen.append(g) or g * 10.0)
    (first * 2.0 + second * 3.0).backward()
    assert len(seen) == 1
    assert_gradient(seen[0], [3.0])
    assert_gradient(x.grad, [2.0, 30.0])


def test_a_hook_runs_again_with_every_backward():
    seen, y = [], leaf([1.0]) * 2.0
    y.register_hook(seen.append)
    for _ in range(3):
        y.backward(retain_graph=True)
    assert len(seen) == 3


def test_hooks_outlive_the_tensor_that_they_were_registered_on():
    x, seen = leaf([1.0]), []
    y = x * 2.0
    y.register_hook(lambda g: seen.append(g) or g * 10.0)
    z = y * 3.0
    del y
    gc.collect()
    z.backward()
    assert_gradient(seen[0], [3.0])
    assert_gradient(x.grad, [60.0])


# --- what hooks are given, and may replace ---------------------------------------------------------------------------


def test_hooks_get_tensors():
    x, seen = leaf([1.0]), []
    y = x * 2.0
    y.register_hook(seen.append)
    y.grad_fn.register_prehook(lambda grad_outputs: seen.extend(grad_outputs))
    y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: seen.extend((grad_inputs[0], grad_outputs[0])))
    x.register_hook(seen.append)
    y.backward(np.ones(1))
    assert [type(value) for value in seen] == [Tensor] * 5
    assert [value.item() for value in seen] == [1.0, 1.0, 2.0, 1.0, 2.0]


def test_a_post_hook_gets_a_gradient_per_edge():
    x, c, seen = leaf([1.0]), constant([3.0]), []
    y = x * c
    y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: seen.append((grad_inputs, grad_outputs)))
    y.backward()
    ((grad_inputs, grad_outputs),) = seen
    assert isinstance(grad_inputs, tuple)
    assert isinstance(grad_outputs, tuple)
    assert len(grad_inputs) == len(y.grad_fn.next_functions)
    assert_gradient(grad_inputs[0], [3.0])
    assert grad_inputs[1:] == (None,) * (len(grad_inputs) - 1)
    assert_gradient(grad_outputs[0], [1.0])


@pytest.mark.parametrize("create_graph", [False, True], ids=["constant", "create_graph"])
def test_gradients_in_hooks_are_tracked_with_create_graph_only(create_graph):
    x, seen = leaf([3.0]), []
    x.register_hook(seen.append)
    (x * x).backward(create_graph=create_graph)
    assert seen[0].requires_grad is create_graph
    x.grad = None


def test_what_a_hook_does_is_differentiated_with_create_graph():
    x = leaf([3.0])
    y = x * x
    y.register_hook(lambda g: g * x)
    (first,) = grad(y, [x], create_graph=True)      # x * 2 x
    (second,) = grad(first, [x])
    assert_gradient(first, [18.0])
    assert_gradient(second, [12.0])


RETURNED = {
    "tensor": lambda tensor, replace: tensor.register_hook(replace),
    "prehook": lambda tensor, replace: tensor.grad_fn.register_prehook(lambda g: (replace(g[0]),)),
    "post hook": lambda tensor, replace: tensor.grad_fn.register_hook(lambda g, _: (replace(g[0]), *g[1:])),
}
UNFIT = {
    "shape": lambda g: NP.concatenate([g, g]),
    "dtype": lambda g: g.astype(np.float32),
    "complex": lambda g: g.astype(np.complex128),
    "type": lambda g: "a gradient",
    "raw array": lambda g: g.array,
    "tuple": lambda g: (g,),
}


@pytest.mark.parametrize("unfit", UNFIT)
@pytest.mark.parametrize("kind", RETURNED)
def test_gradients_that_do_not_fit_are_refused(kind, unfit):
    x = leaf([1.0, 2.0])
    y = x * 2.0
    RETURNED[kind](y, UNFIT[unfit])
    with pytest.raises(DispatchError, match="hook"):
        y.backward(np.ones(2))
    assert x.grad is None


@pytest.mark.parametrize("unfit", UNFIT)
def test_gradients_that_do_not_fit_a_leaf_are_refused(unfit):
    x = leaf([1.0, 2.0])
    x.register_hook(UNFIT[unfit])
    with pytest.raises(DispatchError, match="hook"):
        (x * 2.0).backward(np.ones(2))
    assert x.grad is None


WRONG_TUPLES = {
    "prehook, too many": lambda node: node.register_prehook(lambda g: (g[0], g[0])),
    "prehook, none": lambda node: node.register_prehook(lambda g: ()),
    "post hook, too many": lambda node: node.register_hook(lambda g, _: (*g, None)),
    "post hook, too few": lambda node: node.register_hook(lambda g, _: ()),
    "post hook, not a tuple": lambda node: node.register_hook(lambda g, _: 3.0),
    "post hook, a gradient where there is none": lambda node: node.register_hook(lambda g, _: (g[0], g[0])),
}


@pytest.mark.parametrize("case", WRONG_TUPLES)
def test_tuples_of_gradients_keep_their_length_and_gaps(case):
    x = leaf([1.0])
    y = x * constant([2.0])
    WRONG_TUPLES[case](y.grad_fn)
    with pytest.raises(DispatchError, match="hook"):
        y.backward()
    assert x.grad is None


def test_a_leafs_hook_replaces_what_is_accumulated():
    x = leaf([1.0])
    handle = x.register_hook(lambda g: g * 10.0)
    (x * 2.0).backward()
    assert_gradient(x.grad, [20.0])
    handle.remove()
    (x * 2.0).backward()
    assert_gradient(x.grad, [22.0])


# --- handles ---------------------------------------------------------------------------------------------------------

KINDS = {
    "tensor": lambda x, y, hook: y.register_hook(hook),
    "prehook": lambda x, y, hook: y.grad_fn.register_prehook(lambda g: hook(g[0])),
    "post hook": lambda x, y, hook: y.grad_fn.register_hook(lambda g, _: hook(g[0])),
    "leaf": lambda x, y, hook: x.register_hook(hook),
    "accumulated": lambda x, y, hook: x.register_post_accumulate_grad_hook(hook),
    "several": lambda x, y, hook: register_multi_grad_hook([x, y], hook),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_removed_hook_is_not_called(kind):
    x, log = leaf([1.0]), []
    y = x * 2.0
    handle = KINDS[kind](x, y, lambda g: log.append("removed"))
    KINDS[kind](x, y, lambda g: log.append("kept"))
    handle.remove()
    handle.remove()
    y.backward()
    assert log == ["kept"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_may_remove_itself(kind):
    x, log = leaf([1.0]), []
    y = x * 2.0

    def once(g):
        log.append("once")
        handle.remove()

    handle = KINDS[kind](x, y, once)
    KINDS[kind](x, y, lambda g: log.append("always"))
    y.backward(retain_graph=True)
    y.backward()
    assert log == ["once", "always", "always"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_may_register_another(kind):
    x, log = leaf([1.0]), []
    y = x * 2.0

    def register(g):
        log.append("first")
        KINDS[kind](x, y, lambda g: log.append("second"))
        handle.remove()

    handle = KINDS[kind](x, y, register)
    y.backward(retain_graph=True)
    assert log[0] == "first"
    log.clear()
    y.backward()
    assert log == ["second"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_removed_hook_is_forgotten(kind):
    class Hook:
        def __call__(self, gradient):
            return None

    x = leaf([1.0])
    y = x * 2.0
    hook = Hook()
    handle = KINDS[kind](x, y, hook)
    handle.remove()
    gone = weakref.ref(hook)
    del hook
    gc.collect()
    assert gone() is None


# --- in-place writes and retained gradients --------------------------------------------------------------------------


def test_a_hook_stays_with_the_value_that_it_was_registered_on():
    x, seen = leaf([1.0]), []
    y = x * 2.0
    y.register_hook(lambda g: seen.append(("before", g.item())))
    y *= 3.0
    y.register_hook(lambda g: seen.append(("after", g.item())))
    (y * 5.0).backward()
    assert seen == [("after", 5.0), ("before", 15.0)]
    assert_gradient(x.grad, [30.0])


def test_a_retained_gradient_moves_on_to_the_new_value():
    x = leaf([1.0])
    y = x * 2.0
    y.retain_grad()
    y *= 3.0
    assert y.retains_grad
    (y * 5.0).backward()
    assert_gradient(y.grad, [5.0])


def test_a_gradient_retained_after_the_write():
    x = leaf([1.0])
    y = x * 2.0
    y *= 3.0
    y.retain_grad()
    (y * 5.0).backward()
    assert_gradient(y.grad, [5.0])


def test_a_hook_on_a_view_whose_base_is_written_to_later():
    x, seen = leaf([1.0, 2.0]), []
    base = x * 1.0
    view = base[:1]
    used = view * 7.0
    view.register_hook(lambda g: seen.append(("before", g.item())))
    base *= 3.0
    view.register_hook(lambda g: seen.append(("after", g.item())))
    (view * 5.0 + used).backward()
    assert sorted(seen) == [("after", 5.0), ("before", 7.0)]
    assert_gradient(x.grad, [22.0, 0.0])


@pytest.mark.parametrize("retain_first", [True, False], ids=["retained first", "hook first"])
def test_a_retained_gradient_is_what_all_hooks_have_made_of_it(retain_first):
    x = leaf([1.0])
    y = x * 2.0
    if retain_first:
        y.retain_grad()
    y.register_hook(lambda g: g * 10.0)
    if not retain_first:
        y.retain_grad()
    (y * 3.0).backward()
    assert_gradient(y.grad, [30.0])
    assert_gradient(x.grad, [60.0])


# --- after accumulation ----------------------------------------------------------------------------------------------


def test_a_hook_after_accumulation_sees_the_gradient():
    x, seen = leaf([1.0]), []
    x.register_post_accumulate_grad_hook(lambda tensor: seen.append((tensor is x, tensor.grad.item())))
    for _ in range(2):
        (x * 2.0).backward()
    assert seen == [(True, 2.0), (True, 4.0)]


def test_a_hook_after_accumulation_may_take_the_gradient_away():
    x = leaf([1.0])

    def take(tensor):
        tensor.grad = None

    x.register_post_accumulate_grad_hook(take)
    (x * 2.0).backward()
    assert x.grad is None
    (x * 2.0).backward()
    assert x.grad is None


def test_a_hook_after_accumulation_may_take_a_step_of_an_optimizer():
    x = leaf([1.0, 2.0])

    def step(tensor):
        with no_grad():
            tensor -= tensor.grad * 0.5
        tensor.grad = None

    x.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        (x * x).sum().backward()
    np.testing.assert_array_equal(x.array, [0.0, 0.0])
    assert x.grad is None


def test_a_hook_after_accumulation_may_change_the_gradient_in_place():
    x = leaf([1.0])
    x.register_post_accumulate_grad_hook(lambda tensor: tensor.grad.__imul__(10.0) and None)
    (x * 2.0).backward()
    assert_gradient(x.grad, [20.0])


def test_a_hook_after_accumulation_must_return_nothing():
    x = leaf([1.0])
    x.register_post_accumulate_grad_hook(lambda tensor: tensor.grad)
    with pytest.raises(DispatchError, match="hook"):
        (x * 2.0).backward()


def test_a_hook_after_accumulation_runs_for_the_leaves_that_are_reached():
    x, y, log = leaf([1.0]), leaf([2.0]), []
    x.register_post_accumulate_grad_hook(lambda tensor: log.append("x"))
    y.register_post_accumulate_grad_hook(lambda tensor: log.append("y"))
    (x * y).backward(inputs=[y])
    grad(x * y, [x, y])
    assert log == ["y"]


# --- gradients that are None -----------------------------------------------------------------------------------------


def test_hooks_are_called_with_none():
    log, x = [], leaf([1.0])
    y = NP.sin(x)
    y.register_hook(lambda g: log.append(("tensor", g)))
    y.grad_fn.register_prehook(lambda g: log.append(("pre", g)))
    y.grad_fn.register_hook(lambda g, outer: log.append(("post", g, outer)))
    x.register_hook(lambda g: log.append(("leaf", g)))
    Silent.apply(y).backward()
    assert log == [("tensor", None), ("pre", (None,)), ("post", (None,), (None,)), ("leaf", None)]
    assert x.grad is None


def test_a_hook_may_replace_none():
    x = leaf([1.0])
    y = NP.sin(x)
    y.register_hook(lambda g: constant([3.0]))
    Silent.apply(y).backward()
    assert_gradient(x.grad, 3.0 * np.cos([1.0]))


# --- where hooks cannot be registered --------------------------------------------------------------------------------

REFUSED = {
    "hook on a constant": lambda: constant([1.0]).register_hook(print),
    "hook on a result under no_grad": lambda: (leaf([1.0]) * 2.0).detach().register_hook(print),
    "accumulation of a constant": lambda: constant([1.0]).register_post_accumulate_grad_hook(print),
    "accumulation of a result": lambda: (leaf([1.0]) * 2.0).register_post_accumulate_grad_hook(print),
    "several, one of them a constant": lambda: register_multi_grad_hook([leaf([1.0]), constant([1.0])], print),
}


@pytest.mark.parametrize("case", REFUSED)
def test_hooks_are_refused_where_no_gradient_will_come(case):
    with pytest.raises(AutogradError, match=r"requires_grad|leaf|leaves"):
        REFUSED[case]()


def test_hooks_may_be_registered_under_no_grad():
    x, seen = leaf([1.0]), []
    with no_grad():
        x.register_hook(seen.append)
    (x * 2.0).backward()
    assert_gradient(seen[0], [2.0])


def test_hooks_registered_by_hooks_run_in_the_same_backward_if_still_to_come():
    x, seen = leaf([1.0]), []
    y = x * 2.0
    y.register_hook(lambda g: x.register_hook(seen.append) and None)
    y.backward()
    assert_gradient(seen[0], [2.0])


# --- several tensors at once -----------------------------------------------------------------------------------------


def test_multi_grad_hook_all_is_called_once_with_every_gradient():
    x, y, calls = leaf([1.0]), leaf([2.0]), []
    middle = x * 3.0
    register_multi_grad_hook([x, middle, y], calls.append)
    (middle * y).backward()
    ((by_x, by_middle, by_y),) = calls
    assert_gradient(by_x, [6.0])
    assert_gradient(by_middle, [2.0])
    assert_gradient(by_y, [3.0])


def test_multi_grad_hook_all_is_called_with_none_for_what_is_not_reached():
    x, y, calls = leaf([1.0]), leaf([2.0]), []
    register_multi_grad_hook([x, y], calls.append)
    (x * 3.0).backward()
    ((by_x, by_y),) = calls
    assert_gradient(by_x, [3.0])
    assert by_y is None


def test_multi_grad_hook_all_is_called_once_in_every_backward():
    x, y, calls = leaf([1.0]), leaf([2.0]), []
    handle = register_multi_grad_hook((x, y), lambda gradients: calls.append([g and g.item() for g in gradients]))
    (x * y).backward()
    (x * 3.0).backward()
    (x + y).backward()
    handle.remove()
    (x + y).backward()
    assert calls == [[2.0, 1.0], [3.0, None], [1.0, 1.0]]


def test_multi_grad_hook_all_waits_for_the_last_in_whatever_order_they_come():
    x, log = leaf([1.0]), []
    early = x * 2.0
    late = early * 3.0
    on = [late, early]
    register_multi_grad_hook(on, lambda gradients: log.append("all"))
    for name, tensor in (("early", early), ("late", late)):
        tensor.register_hook(lambda g, name=name: log.append(name))
    x.register_hook(lambda g: log.append("x"))
    late.backward()
    assert log.index("all") > log.index("late")
    assert log.count("all") == 1
    assert log.index("all") <= log.index("early") + 1


def test_multi_grad_hook_all_is_not_called_where_none_is_reached():
    x, y, calls = leaf([1.0]), leaf([2.0]), []
    register_multi_grad_hook([x], calls.append)
    y.backward()
    assert calls == []


def _nested_gradient(of, leaf):
    grad(of, [leaf], retain_graph=True)


def _nested_backward(of, leaf):
    of.backward(retain_graph=True)
    leaf.grad = None


def _in_a_thread(disturb):
    def run(of, leaf):
        thread = threading.Thread(target=disturb, args=(of, leaf))
        thread.start()
        thread.join()

    return run


OTHER_PASSES = {"grad": _nested_gradient, "backward": _nested_backward,
                "grad in a thread": _in_a_thread(_nested_gradient),
                "backward in a thread": _in_a_thread(_nested_backward)}


@pytest.mark.parametrize("inputs", [False, True], ids=["backward", "backward of inputs"])
@pytest.mark.parametrize("on", ["w", "u", "v", "leaf"])
@together("disturb", OTHER_PASSES.values(), ids=OTHER_PASSES)
def test_multi_grad_hook_all_waits_though_another_pass_goes_over_the_graph(disturb, on, inputs):
    calls = []
    values = {"leaf": leaf([1.0, 1.0])}
    values["u"], values["v"] = values["leaf"] * 2, values["leaf"] * 3
    values["w"] = values["u"] * values["v"]
    out, other = (values["w"] * 1).sum(), (values["u"] * values["v"]).sum()
    busy = []

    def hook(gradient):
        if not busy:
            busy.append(True)
            disturb(other, values["leaf"])
            busy.clear()

    def told(gradients):
        if not busy:        # those of the pass itself
            calls.append([None if gradient is None else gradient.array.tolist() for gradient in gradients])

    values[on].register_hook(hook)      # before and after those of the several, on the same Tensors
    register_multi_grad_hook([values["u"], values["v"]], told)
    values[on].register_hook(hook)
    out.backward(retain_graph=True, inputs=[values["leaf"]] if inputs else None)
    assert calls == [[[3.0, 3.0], [2.0, 2.0]]]


def test_anomaly_mode_knows_what_induced_a_node_after_a_nested_pass():
    x, other = leaf([2.0]), leaf([1.0]) * 3.0
    other.grad_fn.register_hook(lambda sent, given: None)
    with detect_anomaly():
        y = ops.np.exp(x)
        y.grad_fn.register_prehook(lambda gradients: other.sum().backward(retain_graph=True))
        (dx,) = grad(y, [x], create_graph=True)
    ((product, _),) = dx.grad_fn.next_functions        # dx is a copy of it
    assert product.notes.parent is y.grad_fn


def test_multi_grad_hook_any_is_called_once_with_the_first():
    x, calls = leaf([1.0]), []
    early = x * 2.0
    late = early * 3.0
    register_multi_grad_hook([early, late], calls.append, mode="any")
    (late * 5.0).backward()
    (gradient,) = calls
    assert_gradient(gradient, [5.0])


def test_multi_grad_hook_any_is_called_once_in_every_backward():
    x, y, calls = leaf([1.0]), leaf([2.0]), []
    register_multi_grad_hook([x, y], lambda g: calls.append(g.item()), mode="any")
    (x * 3.0).backward()
    (y * 4.0).backward()
    (x * 5.0).backward(inputs=[x])
    assert calls == [3.0, 4.0, 5.0]


def test_multi_grad_hook_other_modes_are_refused():
    with pytest.raises(DispatchError, match="mode"):
        register_multi_grad_hook([leaf([1.0])], print, mode="some")


def test_multi_grad_hook_nested_backward_counts_for_itself():
    x, calls = leaf([1.0]), []

    def inner(g):
        with enable_grad():
            backward([x * 10.0])

    y = x * 2.0
    y.register_hook(inner)
    register_multi_grad_hook([x], lambda gradients: calls.append(gradients[0].item()))
    y.backward()
    assert sorted(calls) == [2.0, 10.0]
    assert_gradient(x.grad, [12.0])
