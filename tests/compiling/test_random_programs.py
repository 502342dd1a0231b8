"""Random programs of many operators, with views, writes, broadcasting and mixed dtypes: compiled, the bits of NumPy."""

import contextlib
import functools
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydispatch import Tensor, compile, ops
from pydispatch.compiling import plan
from pydispatch.compiling.passes import fusion
from pydispatch.exceptions import DataDependentError, FunctionalizationError, VmapError
from pydispatch.func import vmap
from pydispatch.operators import VARIANTS
from pydispatch.tracing import Graph, make_fx
from pydispatch.tree import tree_flatten, tree_map
from tests.comparing import raw
from tests.compiling.same import check_same
from tests.compiling.test_operators import is_of_another_layout
from tests.operators.samples import samples
from tests.properties.programs import (
    HANDS,
    OPERATORS,
    REFUSALS,
    SAMPLES,
    Refused,
    program_of,
    programs,
    programs_ending_in,
    resolved,
    same_bits,
    step_in_numpy,
)
from tests.properties.test_random_programs import spread
from tests.warning_filters import quiet

SOME, MANY = 6, 10
"""Random programs for each hand of operators, in a run and in a long one."""
MORE = 20
"""Sample calls of each operator in a long run."""

blocks = pytest.mark.parametrize("cached", [None, 1 << 7], ids=["whole", "tiny blocks"])


@pytest.fixture
def in_blocks(cached, monkeypatch):
    """Run all loops in blocks of a few elements, so that small arrays have many."""
    if cached is not None:
        monkeypatch.setattr(plan, "Fusion", functools.partial(fusion.Fusion, smallest=1))
        monkeypatch.setattr(fusion, "SMALLEST_CUT", 1)
        for name in ("CACHED", "CACHED_IN_A_ROW"):
            monkeypatch.setattr(fusion, name, cached)


def of_copies(program):
    """Return the program on copies of its arguments, which it may write to."""
    return lambda *values: program.function(*[
        ops.np.copy(value) if hasattr(value, "shape") else value for value in values])


def check(program, compiled=None):
    function = of_copies(program)
    compiled = compiled or compile(function)
    arrays = program.inputs.fresh()
    ordered = [np.array(array, order="C") if isinstance(array, np.ndarray) else array for array in arrays]
    with quiet():
        try:
            expected, spec = tree_flatten(tree_map(raw, function(*[
                Tensor(array) if isinstance(array, np.ndarray) else array for array in ordered])))
        except REFUSALS:    # it is defined only for arguments that share memory: indices change with what is written
            with contextlib.suppress(*REFUSALS, DataDependentError):    # or nothing uses the result of that call
                compiled(*arrays)
            return
        for arguments in (arrays, arrays, [Tensor(x) if isinstance(x, np.ndarray) else x for x in arrays]):
            try:
                found, found_spec = tree_flatten(tree_map(raw, compiled(*arguments)))
            except DataDependentError:
                if not program.has_masks:
                    raise
                return
            except FunctionalizationError as error:
                if "is a view made by an operator without put=" not in str(error):
                    raise
                return      # windows overlap: it is refused to write to them
            assert found_spec == spec or isinstance(compiled, Graph)      # which returns a tuple
            for i, (one, other) in enumerate(zip(found, expected, strict=True)):
                assert same_bits(np.asarray(one), np.asarray(other)) or is_power_of_another_layout(
                    program, one, other) or same_bits(np.asarray(one), np.asarray(in_c_order(program)[i])), (
                    f"found {one!r}, expected {other!r}{program!r}")
        for array, untouched in zip(arrays, program.inputs.fresh(), strict=True):
            check_same(array, untouched)


def in_c_order(program):
    """Return NumPy's results where all values lie in C order, as they do in a plan."""
    values = {i: np.array(array, order="C") if isinstance(array, np.ndarray) else array
              for i, array in enumerate(program.inputs.fresh())}
    for step in program.steps:
        found = step_in_numpy(step.operator, *resolved((step.args, step.kwargs), values))
        for value, result in zip(step.results, found if step.splits else [found], strict=True):
            is_new = isinstance(result, np.ndarray) and result.base is None and all(
                result is not other for other in values.values())
            values[value.index] = np.ascontiguousarray(result) if is_new and result.ndim else result
    return tree_flatten(resolved(program.returned, values))[0]


def is_power_of_another_layout(program, found, expected):
    """Return whether the last step is a power, for which NumPy's loop is shorter if the exponent is repeated."""
    last = program.steps[-1]
    if last.operator not in ("power", "float_power"):
        return False
    inputs = dict(enumerate(program.inputs.fresh()))
    for step in program.steps[:-1]:
        if step.operator != "getitem" or step.args[1] is not Ellipsis:
            return False
        inputs[step.results[0].index] = inputs[step.args[0].index]
    operands = [np.asarray(inputs[arg.index]) if hasattr(arg, "index") else np.asarray(arg) for arg in last.args]

    def call(*values):
        return getattr(np, last.operator)(*values)

    call.arrays = operands
    return is_of_another_layout(call, np.asarray(found), np.asarray(expected))


def program_ending_in(operator):
    """Return a program of the first sample call that is defined, or for every second operator the first in the middle.

    Operators of a kind have the same samples.
    """
    calls = SAMPLES.get(operator) or samples(VARIANTS[operator].functional)
    start = len(calls) // 2 * (OPERATORS.index(operator) % 2)
    for call in (*calls[start:], *calls[:start]):
        with contextlib.suppress(Refused):
            return program_of(operator, call)
    raise AssertionError(f"no sample call of {operator} is defined")


@pytest.mark.parametrize("operator", OPERATORS)
def test_programs_that_end_in(operator):
    check(program_ending_in(operator))


@pytest.mark.slow
@blocks
@pytest.mark.parametrize("operator", OPERATORS)
def test_more_programs_that_end_in(operator, cached, in_blocks):
    samples = spread([*programs_ending_in(operator)], MORE)
    for program in samples[cached is not None::2] or samples:       # each in blocks or whole
        check(program)


@blocks
@pytest.mark.parametrize("hand", range(0, len(HANDS), 3))
@settings(max_examples=SOME, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_programs(hand, in_blocks, data):
    check(data.draw(programs(HANDS[hand])))


@pytest.mark.slow
@blocks
@pytest.mark.parametrize("hand", range(len(HANDS)))
@settings(max_examples=MANY, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_many_random_programs(hand, in_blocks, data):
    check(data.draw(programs(HANDS[hand])))


@pytest.mark.parametrize("hand", range(0, len(HANDS), 3))
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_programs_in_other_ways(hand, data):
    program = data.draw(programs(HANDS[hand], at_least=4))
    function = of_copies(program)
    arrays = program.inputs.fresh()
    places = [i for i, array in enumerate(arrays) if isinstance(array, np.ndarray)]
    if program.has_masks:
        return
    check(program, compile(function, backend="python"))
    compiled = compile(function)
    check(program, compile(lambda *values: compiled(*values)))
    with quiet():
        traced, pickled = make_fx(compiled, tracing_mode="fake")(*arrays), pickle.dumps(compiled.graph(*arrays))
    check(program, traced)
    check(program, pickle.loads(pickled))
    if places:
        axes = tuple([0 if i in places else None for i in range(len(arrays))])
        batch = [np.stack([array, array]) if i in places else array for i, array in enumerate(arrays)]
        with quiet():
            try:
                expected = vmap(function, in_dims=axes)(*batch)
            except VmapError:       # the program writes what is batched to what is not
                return
            found = vmap(compiled, in_dims=axes)(*batch)
            for one, other in zip(*(tree_flatten(tree_map(raw, value))[0] for value in (found, expected)), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-8)
