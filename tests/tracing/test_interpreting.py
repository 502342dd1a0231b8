"""Running graphs node by node, and making graphs from graphs."""

import operator

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import DispatchTypeError, GraphError
from pydispatch.tracing import Graph, GraphInterpreter, Transformer
from pydispatch.tracing.symbolic import trace_with_proxies

X = np.arange(6.0).reshape(2, 3)


def traced(function):
    return trace_with_proxies(function, Graph())


def test_it_runs_node_by_node():
    class Noting(GraphInterpreter):
        lines = ()

        def run_node(self, node):
            value = super().run_node(node)
            self.lines = (*self.lines, f"{node.op} {node.name}")
            return value

    graph = traced(lambda x: ops.np.sin(x) + np.ones(3))
    noting = Noting(graph)
    np.testing.assert_array_equal(noting.run(X), np.sin(X) + 1)
    assert noting.lines == ("placeholder x", "call_function sin", "get_attr constant", "call_function add",
                            "output output")


@pytest.mark.parametrize(("hook", "expected"), [
    ("placeholder", np.sin(2 * X) + 1), ("get_attr", np.sin(X) + 2), ("call_function", 2 * (2 * np.sin(X) + 1)),
    ("output", 2 * (np.sin(X) + 1)),
])
def test_each_kind_of_node_has_a_hook(hook, expected):
    def doubled(self, target, args, kwargs):
        return 2 * getattr(GraphInterpreter, hook)(self, target, args, kwargs)

    doubling = type("Doubling", (GraphInterpreter,), {hook: doubled})
    graph = traced(lambda x: ops.np.sin(x) + np.ones(3))
    np.testing.assert_array_equal(doubling(graph).run(X), expected)


def test_hooks_see_targets_arguments_and_the_node():
    seen = []

    class Seeing(GraphInterpreter):
        def call_function(self, target, args, kwargs):
            seen.append((self.node.name, target, [type(arg) for arg in args], kwargs))
            return super().call_function(target, args, kwargs)

    graph = traced(lambda x: x.sum(0, keepdims=True))
    Seeing(graph).run(Tensor(X))
    assert seen == [("sum_1", ops.np.sum.default, [Tensor, tuple], {"keepdims": True})]


def test_nothing_is_kept_after_a_run_or_an_error():
    def fail(x):
        raise ZeroDivisionError

    graph = Graph()
    graph.output(graph.call_function(fail, (graph.placeholder("x"),)))
    interpreter = GraphInterpreter(graph)
    with pytest.raises(ZeroDivisionError):
        interpreter.run(X)
    assert (interpreter.values, interpreter.node) == ({}, None)


def test_arguments_are_checked():
    graph = traced(lambda x: x + 1)
    with pytest.raises(DispatchTypeError, match="takes 1 argument, but 2 were given"):
        GraphInterpreter(graph).run(X, X)


# --- transformers ---


def program(x, y):
    halves = ops.np.sin(x) * np.ones(3)
    return {"a": halves - y, "b": [x, 2]}


def test_as_it_is_a_transformer_copies():
    graph = traced(program)
    graph.placeholders[0].meta["note"] = "known"
    copy = Transformer(graph).transform()
    assert str(copy) == str(graph)
    assert [node.meta for node in copy.nodes] == [node.meta for node in graph.nodes]
    assert not set(copy.nodes) & set(graph.nodes)
    np.testing.assert_array_equal(copy(X, X)["a"], np.sin(X) - X)


def test_targets_can_be_changed():
    class CosForSin(Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(ops.np.cos.default if target is ops.np.sin.default else target, args, kwargs)

    graph = traced(program)
    changed = CosForSin(graph).transform()
    np.testing.assert_array_equal(changed(X, X)["a"], np.cos(X) - X)
    np.testing.assert_array_equal(graph(X, X)["a"], np.sin(X) - X)
    assert changed.out_spec == graph.out_spec


def test_a_node_can_become_several_or_none():
    class Spelled(Transformer):
        def call_function(self, target, args, kwargs):
            if target is ops.np.subtract.default:
                minus = self.new_graph.call_function(ops.np.negative, (args[1],))
                return self.new_graph.call_function(ops.np.add, (args[0], minus))
            if target is ops.np.multiply.default:
                return args[0]
            return super().call_function(target, args, kwargs)

    changed = Spelled(traced(program)).transform()
    changed.eliminate_dead_code()
    assert [node.name for node in changed.find_nodes(op="call_function")] == ["sin", "negative", "add"]
    np.testing.assert_array_equal(changed(X, X)["a"], np.sin(X) - X)


def test_structures_several_results_and_constants_are_taken_over():
    graph = Graph()
    x = graph.placeholder("d_1")
    graph.in_spec = traced(lambda x: x).in_spec._replace(type=tuple)
    split = graph.call_function(ops.np.split, (x, 2))
    graph.output([graph.call_function(operator.getitem, (split, i)) for i in (1, 0)])
    copy = Transformer(graph).transform()
    assert (copy.in_spec, copy.out_spec, str(copy)) == (graph.in_spec, graph.out_spec, str(graph))
    np.testing.assert_array_equal(copy(X)[0], X[1:])


def test_the_new_graph_is_linted():
    class Wrong(Transformer):
        def call_function(self, target, args, kwargs):
            return self._described(self.new_graph.call_function(target, args[:1], kwargs))

    with pytest.raises(GraphError, match="node multiply: operator np::multiply does not accept its arguments"):
        Wrong(traced(program)).transform()
