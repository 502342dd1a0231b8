"""Programs of many operators compute the same in every way to run them: bit for bit, what they write to included."""

import copy
import functools
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydispatch import OpOverload, Tensor, ops
from pydispatch.func.functionalize import functionalize
from pydispatch.operators import DECLARATIONS
from pydispatch.testing.logging import LoggingMode, LoggingTensor, capture_logs
from pydispatch.tracing import FakeMode, FakeTensor, Graph, Node, make_fx
from pydispatch.tree import tree_flatten, tree_map
from tests.properties.programs import HANDS, LEFT_OUT, OPERATORS, Program, programs, programs_ending_in, same_bits
from tests.warning_filters import quiet

SOME, MANY = 4, 12
"""Random programs for each hand of operators, in a run and in a long one."""
EACH, MORE = 2, 6
"""Sample calls of each operator, likewise."""


# --- ways to run a program on arrays, which it may write to ----------------------------------------------------------

Run = Callable[..., Any]


def on_tensors(program: Program) -> Run:
    return lambda *arrays: program.function(*map(Tensor, arrays))


def under_a_logging_mode(program: Program) -> Run:
    def run(*arrays: np.ndarray) -> Any:
        with LoggingMode(), capture_logs(is_mode=True) as lines:
            returned = program.function(*arrays)
        assert len(lines) >= len(program.steps)
        return returned
    return run


def as_logging_tensors(program: Program) -> Run:
    return lambda *arrays: program.function(*map(LoggingTensor, arrays))


def as_logging_tensors_twice(program: Program) -> Run:
    return lambda *arrays: program.function(*[LoggingTensor(LoggingTensor(array)) for array in arrays])


def functionalized(program: Program) -> Run:
    return functionalize(program.function)


def functionalized_without_views(program: Program) -> Run:
    return functionalize(program.function, remove="mutations_and_views")


WAYS = (on_tensors, under_a_logging_mode, as_logging_tensors, as_logging_tensors_twice, functionalized,
        functionalized_without_views)


def traced(program: Program) -> Graph:
    return make_fx(program.function)(*program.inputs.fresh())


def traced_functionalization(program: Program) -> Graph:
    graph = make_fx(functionalize(program.function))(*program.inputs.fresh())
    check_writes(graph)
    return graph


def traced_on_fakes(program: Program) -> Graph:
    if program.has_masks:
        return traced(program)
    arrays, untouched = program.inputs.fresh(), program.inputs.fresh()
    graph = make_fx(program.function, tracing_mode="fake")(*arrays)
    assert all(map(same_bits, arrays, untouched))
    return graph


def check_writes(graph: Graph) -> None:
    """Assert that only the inputs are written to, in the end, as a whole."""
    calls = graph.find_nodes(op="call_function")
    writers = [node for node in calls if writes(node)]
    assert writers == calls[len(calls) - len(writers):]
    for node in writers:
        assert (node.target, node.args[0].op, node.args[1]) == (ops.np.setitem_.default, "placeholder", Ellipsis)


def writes(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target.schema.is_mutable


def without_dead_code(graph: Graph) -> Graph:
    smaller = copy.deepcopy(graph)
    smaller.eliminate_dead_code()
    smaller.lint()
    return smaller


def runs(program: Program) -> Iterator[tuple[str, Run]]:
    yield "as_it_is", program.function
    for way in WAYS:
        yield way.__name__, way(program)
    for trace in (traced, traced_functionalization, traced_on_fakes):
        graph = trace(program)
        yield trace.__name__, graph
        yield f"{trace.__name__}, interpreted", graph.interpret
        yield f"{trace.__name__}, compiled", graph.compile()
    graph = traced(program)
    yield "traced, on Tensors", lambda *arrays: graph(*map(Tensor, arrays))
    yield "traced, pickled", pickle.loads(pickle.dumps(graph))
    yield "traced, without dead code", without_dead_code(graph)


# --- what they must agree in -----------------------------------------------------------------------------------------


def raw(leaf: Any) -> np.ndarray:
    if isinstance(leaf, LoggingTensor):
        return raw(leaf.elem)
    return np.asarray(leaf.array if isinstance(leaf, Tensor) else leaf)


def outcome(program: Program, run: Run) -> Any:
    """Return the result of a way to run it, and the inputs afterwards."""
    arrays = program.inputs.fresh()
    returned = run(*arrays)
    return tree_map(raw, returned), arrays


def check(program: Program) -> None:
    """Assert that every way gives what NumPy gives, and fakes the same shapes and dtypes."""
    with quiet():
        expected, expected_spec = tree_flatten(outcome(program, program.in_numpy))
        for name, run in runs(program):
            found, spec = tree_flatten(outcome(program, run))
            assert spec == expected_spec, f"{name}: {spec}"
            for i, (one, other) in enumerate(zip(found, expected, strict=True)):
                assert same_bits(one, other), f"{name}, leaf {i}: found {one!r}, expected {other!r}{program!r}"
        if not program.has_masks:
            check_fakes(program, expected)


def check_fakes(program: Program, expected: list[np.ndarray]) -> None:
    """Assert that fakes give fakes of those shapes and dtypes, and that the inputs keep theirs."""
    with FakeMode() as mode:
        fakes = [*map(mode.from_array, program.inputs.fresh())]
        found, _ = tree_flatten((program.function(*fakes), fakes))
    assert {type(fake) for fake in found} <= {FakeTensor}
    assert [(fake.dtype, fake.shape) for fake in found] == [(array.dtype, array.shape) for array in expected]


# --- every operator, and many together -------------------------------------------------------------------------------


def spread(found: list[Program], count: int) -> list[Program]:
    """Return `count` of them, from the first to the last."""
    return found if len(found) <= count else [found[i * len(found) // count] for i in range(count)]


@functools.cache
def covered_by_samples(operator: str, count: int) -> Counter[str]:
    """Run programs that end in the operator, which operators were called, and how often."""
    covered: Counter[str] = Counter()
    for program in spread([*programs_ending_in(operator)], count):
        check(program)
        covered += program.operators
    return covered


IN_RANDOM_PROGRAMS: Counter[str] = Counter()


@pytest.mark.parametrize("operator", OPERATORS)
def test_programs_that_end_in(operator):
    assert covered_by_samples(operator, EACH)[operator]


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
def test_more_samples_of(operator):
    assert covered_by_samples(operator, MORE)[operator]


@pytest.mark.parametrize("hand", range(len(HANDS)))
@settings(max_examples=SOME, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_programs(hand, data):
    check_random_program(data.draw(programs(HANDS[hand])))


@pytest.mark.slow
@pytest.mark.parametrize("hand", range(len(HANDS)))
@settings(max_examples=MANY, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_many_random_programs(hand, data):
    check_random_program(data.draw(programs(HANDS[hand])))


def check_random_program(program):
    check(program)
    IN_RANDOM_PROGRAMS.update(program.operators)


def test_every_operator_was_covered():
    in_samples = sum((covered_by_samples(operator, EACH) for operator in OPERATORS), Counter())
    print(*(f"\nleft out: {operator}: {reason}" for operator, reason in LEFT_OUT.items()))
    print(f"\n{'operator':<20}{'samples':>8}{'random':>8}")
    for operator in OPERATORS:
        print(f"{operator:<20}{in_samples[operator]:>8}{IN_RANDOM_PROGRAMS[operator]:>8}")
    assert DECLARATIONS.keys() >= LEFT_OUT.keys()
    assert [operator for operator in OPERATORS if not in_samples[operator]] == []
