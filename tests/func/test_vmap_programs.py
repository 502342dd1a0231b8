"""Programs of many operators, vmapped: what they return and write, against a loop over the examples.

Which arrays are mapped, along which axes and at how many interpreters, is drawn. What a value depends on is followed
through the steps, so that it is known which program must be refused: one that writes what differs between examples to
what is shared by them.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from pydispatch import Tensor
from pydispatch.exceptions import VmapError
from pydispatch.func import vmap
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.tree import tree_leaves, tree_map
from tests.properties.programs import (
    HANDS,
    OPERATORS,
    Builder,
    Inputs,
    Program,
    Refused,
    Value,
    programs,
    programs_ending_in,
)
from tests.warning_filters import quiet

SOME, MANY = 5, 15
"""Random programs for each hand of operators, in a run and in a long one."""
EACH, MORE = 4, 15
"""Sample calls of each operator, likewise."""
TOLERANCES = {"d": 1e-9, "D": 1e-9, "f": 1e-4, "F": 1e-4, "e": 1e-2}
"""By the character of the dtype; anything else is exact."""
MAY_COPY = ("reshape", "ravel", "real", "imag", "astype")
"""Whether these give a view depends on dtypes, or on strides, which differ in a batch. Programs copy after them."""
DETERMINED = [name for name in OPERATORS if "random" not in DECLARATIONS[name].tags]


# --- a batch of examples ---------------------------------------------------------------------------------------------


class Mapped(NamedTuple):
    """The batch axes of the arrays of a program, and the sizes of the interpreters, from the outermost on.

    `dims[i][interpreter]` is the axis of array i at an interpreter, in the array that is seen there, or None.
    """

    sizes: tuple[int, ...]
    dims: tuple[tuple[int | None, ...], ...]

    def indices(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, self.sizes))

    def levels_of(self, i: int) -> frozenset[int]:
        return frozenset(interpreter for interpreter, dim in enumerate(self.dims[i]) if dim is not None)

    def index_of(self, i: int, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return which variant of array i an example has: 0 at interpreters at which it is shared."""
        return tuple([k if dim is not None else 0 for k, dim in zip(index, self.dims[i], strict=True)])

    def batch(self, i: int, variant: Any, index: tuple[int, ...] = ()) -> np.ndarray:
        """Stack `variant(index)` to array i with the axes of its interpreters."""
        interpreter = len(index)
        if interpreter == len(self.sizes):
            return variant(index).copy()
        dim = self.dims[i][interpreter]
        if dim is None:
            return self.batch(i, variant, (*index, 0))
        return np.stack([self.batch(i, variant, (*index, k)) for k in range(self.sizes[interpreter])], axis=dim)


def variant_of(base: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
    """Return other numbers of the same kind and size for every example."""
    shift = sum(k * weight for k, weight in zip(index, (1, 3), strict=False))
    rolled = np.roll(base, shift)
    return np.asarray(-rolled if shift % 2 and base.dtype.kind in "fci" else rolled)


def replayed(program: Program, inputs: Inputs, *, batches_made: bool) -> Program:
    """Run the program on other inputs, the last of which is a mark. Raise Refused if it is not defined for them.

    With `batches_made`, new arrays count as different from example to example.
    """
    builder = Builder(inputs)
    *given, mark = map(Value, range(len(inputs.views)))
    values = dict(enumerate(given))

    def renamed(tree: Any) -> Any:
        return tree_map(lambda leaf: values[leaf.index] if isinstance(leaf, Value) else leaf, tree)

    for step in program.steps:
        results = builder.step(step.operator, *renamed(step.args), **renamed(step.kwargs))
        if step.operator in MAY_COPY:
            results = builder.step("copy", *results)
        if batches_made and "creation" in DECLARATIONS[step.operator].tags:
            results = builder.step("where", mark, *results, *results)
        values.update(zip([value.index for value in step.results], results, strict=True))
    return builder.finished(renamed(program.returned))


def is_refused(program: Program, mapped: Mapped) -> bool:
    """Return whether a program writes values that differ between examples to a shared input.

    What the program makes itself differs from example to example from the first such write on, with all its views.
    """
    memories: dict[int, tuple[str, int]] = {}       # of each value
    levels: dict[tuple[str, int], frozenset[int]] = {}      # at which interpreters a memory differs
    for i, (base, _) in enumerate(program.inputs.views):
        memories[i] = "input", base
        levels[memories[i]] = mapped.levels_of(base)
    for step in program.steps:
        operands = [leaf.index for leaf in tree_leaves((step.args, step.kwargs)) if isinstance(leaf, Value)]
        found = frozenset().union(*[levels[memories[index]] for index in operands])
        variants = VARIANTS[step.operator]
        viewed = None
        if step.operator in (variants.in_place, variants.out) and step.operator != variants.functional:
            target = step.kwargs["out"] if step.operator == variants.out else step.args[0]
            viewed = memories[target.index]
            if not found <= levels[viewed]:
                if viewed[0] == "input":
                    return True
                levels[viewed] |= found
        elif operands and "view" in DECLARATIONS[step.operator].tags and step.operator not in MAY_COPY:
            viewed = memories[step.args[0].index]
        for value in step.results:
            memories[value.index] = viewed or ("made", value.index)
            levels.setdefault(memories[value.index], found)
    return False


# --- the batch at once, and one example after the other --------------------------------------------------------------


def check(program: Program, mapped: Mapped, *, batches_made: bool) -> bool:
    """Check the vmapped program against a loop, with its writes. Return False where it has to be refused, and is.

    Raises Refused where the program is not defined for all examples.
    """
    bases = (*program.inputs.bases, np.array(True))
    views = (*program.inputs.views, (len(bases) - 1, lambda base: base))
    mapped = Mapped(mapped.sizes, (*mapped.dims, (0,) * len(mapped.sizes)))

    def inputs_of(index: tuple[int, ...]) -> Inputs:
        made = [variant_of(base, mapped.index_of(i, index)) for i, base in enumerate(bases)]
        return Inputs(tuple(made), views)

    replays = [replayed(program, inputs_of(index), batches_made=batches_made) for index in mapped.indices()]
    program = replays[0]
    if program.has_masks:
        raise Refused
    written: dict[tuple[int, ...], list[np.ndarray]] = {}
    returned: dict[tuple[int, ...], list[np.ndarray]] = {}
    for index in mapped.indices():
        written[index] = [base.copy() for base in inputs_of(index).bases]
        returned[index] = run_on(program, written[index])
        for i, (base, array) in enumerate(zip(inputs_of(index).bases, written[index], strict=True)):
            if base.ndim == 0 and mapped.levels_of(i) and not np.array_equal(base, array, equal_nan=True):
                raise Refused       # one example of a 1-d batch is a scalar, which cannot be written to
    arrays = [mapped.batch(i, functools.partial(variant_of, base)) for i, base in enumerate(bases)]
    batched: Any = lambda *arrays: run_on(program, arrays)  # noqa: E731
    for interpreter in reversed(range(len(mapped.sizes))):
        batched = vmap(batched, tuple([dims[interpreter] for dims in mapped.dims]))
    if is_refused(program, mapped):
        with pytest.raises(VmapError, match="is an array from outside the function of vmap"):
            batched(*arrays)
        return False
    try:
        found = batched(*arrays)
    except TypeError as error:
        # one example of a 1-d batch is a scalar, which cannot be written to, and interp takes only complex scalars
        if not any(text in str(error) for text in ("is a scalar, which is immutable", "Cannot cast scalar")):
            raise
        raise Refused from error
    for i, result in enumerate(found):
        expected = np.stack([returned[index][i] for index in mapped.indices()])
        same(result, expected.reshape(mapped.sizes + expected.shape[1:]), f"result {i}", program)
    for i, array in enumerate(arrays):
        expected = mapped.batch(i, lambda index, i=i: written[index][i])
        same(array, expected, f"array {i} afterwards", program)
    return True


def run_on(program: Program, bases: Any) -> list[Any]:
    leaves = tree_leaves(program.function(*[view(bases[i]) for i, view in program.inputs.views]))
    return [leaf if isinstance(leaf, Tensor) else np.asarray(leaf) for leaf in leaves]


def same(found: np.ndarray, expected: np.ndarray, what: str, program: Program) -> None:
    tolerance = TOLERANCES.get(expected.dtype.char, 0)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, strict=True,
                               err_msg=f"{what} of{program!r}")


# --- every operator, and many together -------------------------------------------------------------------------------


def all_mapped(program: Program, dim: int) -> Mapped:
    return Mapped((3,), ((dim,),) * len(program.inputs.bases))


def one_mapped(program: Program, chosen: int, dim: int) -> Mapped:
    return Mapped((2,), tuple([(dim if i == chosen else None,) for i in range(len(program.inputs.bases))]))


def simple_mappings(program: Program) -> tuple[Mapped, ...]:
    last = len(program.inputs.bases) - 1
    return all_mapped(program, 0), one_mapped(program, 0, 0), all_mapped(program, -1), one_mapped(program, last, -1)


@pytest.mark.parametrize("operator", DETERMINED)
def test_programs_that_end_in(operator):
    found = 0
    for i, program in enumerate(programs_ending_in(operator)):
        with suppress(Refused), quiet():
            found += check(program, simple_mappings(program)[i % 4], batches_made=True)
        if found == EACH:
            break
    assert found


@pytest.mark.slow
@pytest.mark.parametrize("operator", DETERMINED)
def test_all_samples_of(operator):
    done = Counter()
    for i, program in enumerate(itertools.islice(programs_ending_in(operator), MORE)):
        for j, mapped in enumerate(simple_mappings(program)[i % 2::2]):
            with suppress(Refused), quiet():
                done[check(program, mapped, batches_made=(i // 2 + j) % 2 == 0)] += 1
    assert done[True]


@st.composite
def mappings(draw: st.DrawFn, program: Program) -> Mapped:
    """Draw one interpreter or two, most arrays mapped."""
    sizes = draw(st.sampled_from([(3,), (1,), (2,), (2, 2), (2, 3), (1, 2)]))
    dims = []
    for base in program.inputs.bases:
        chosen: list[int | None] = []
        for _ in reversed(sizes):       # the innermost first: that axis counts in an array of one dimension less
            axes = np.ndim(base) + 1 + sum(dim is not None for dim in chosen)
            is_mapped = draw(st.integers(0, 3)) > 0
            chosen.insert(0, draw(st.integers(-axes, axes - 1)) if is_mapped else None)
        dims.append(tuple(chosen))
    return Mapped(sizes, tuple(dims))


def check_random_program(data, hand):
    program = data.draw(programs([name for name in HANDS[hand] if name in DETERMINED]))
    mapped = data.draw(mappings(program))
    try:
        with quiet():
            check(program, mapped, batches_made=data.draw(st.booleans()))
    except Refused:
        reject()


@pytest.mark.parametrize("hand", range(len(HANDS)))
@settings(max_examples=SOME, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_programs(hand, data):
    check_random_program(data, hand)


@pytest.mark.slow
@pytest.mark.parametrize("hand", range(len(HANDS)))
@settings(max_examples=MANY, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_many_random_programs(hand, data):
    check_random_program(data, hand)
