"""Promises of the declarations: NumPy's parameters, samples, variants, and no work before it is needed."""

import inspect
import subprocess
import sys

import numpy as np
import pytest

from pydispatch import ops
from pydispatch._registry.operators import schema_of as parsed_schema
from pydispatch.exceptions import DispatchTypeError
from pydispatch.operators import DECLARATIONS, VARIANTS, Variants, install
from pydispatch.operators.declare import HAS_NUMPY_2_5, LIBRARY, OF_FAMILIES
from pydispatch.schema import parse_schema
from pydispatch.schema.fitting import EXACT, compare_signature
from tests.operators.oracles import is_error, outcome
from tests.operators.samples import LATER, STATEMENTS, functional_names, numpy_function, samples, schema_of
from tests.together import together

assert all((ops.np.linalg_inv, ops.np.fft_fft, ops.np.random_normal))     # they declare their families
NAMES = functional_names()
NUMPY_NAMES = [name for name in NAMES if name not in STATEMENTS]
OF_NEWER_NUMPY = frozenset() if HAS_NUMPY_2_5 else {("sort", "descending"), ("argsort", "descending")}
NO_VALUE = inspect.signature(np.sum).parameters["keepdims"].default


def tells_parameters(name: str) -> bool:
    """Return whether NumPy reveals the parameters. Older versions do not for functions written in C."""
    try:
        return bool(numpy_parameters(name))
    except ValueError:
        return False


def numpy_parameters(name: str) -> dict[str, inspect.Parameter]:
    """Return the parameters of the NumPy function, where it takes any keyword, those of ufuncs."""
    parameters = dict(inspect.signature(LATER.get(name) or getattr(np, name)).parameters)
    if parameters.pop("kwargs", None):
        parameters |= {key: value for key, value in inspect.signature(np.sin).parameters.items() if key != "x"}
    return parameters


TOLD = [name for name in NUMPY_NAMES if tells_parameters(name)]


def passed(name: str) -> set[str]:
    """Return the parameters that have another value than their default in some sample call that succeeds."""
    arguments = schema_of(name).arguments
    positional = [argument.name for argument in arguments if not argument.kw_only]
    defaults = {argument.name: argument.default for argument in arguments if argument.has_default}
    return {
        key for sample in samples(name) if not is_error(outcome(numpy_function(name), *sample))
        for key, value in [*zip(positional, sample.args, strict=False), *sample.kwargs.items()]
        if key not in defaults or value is not defaults[key]
    }


@pytest.mark.parametrize("name", NAMES)
def test_samples_pass_every_argument(name):
    assert samples(name), f"no sample calls of {name}: give its category some in samples.py, or list them there"
    missing = {argument.name for argument in schema_of(name).arguments} - passed(name) - {"device"}
    assert not missing, f"no sample call of {name} that succeeds passes {missing}"


@pytest.mark.parametrize("name", TOLD)
def test_parameters_of_numpy_work_or_are_left_out(name):
    ours = {argument.name for argument in schema_of(name).arguments}
    left_out = DECLARATIONS[name].left_out
    for parameter in numpy_parameters(name):
        if parameter == "out":
            assert VARIANTS[name].out, f"{name}: NumPy's function has out="
        else:
            assert (parameter in ours) != (parameter in left_out), f"{name}: {parameter} works, or is left out"
    unknown = {parameter for parameter in left_out.keys() - numpy_parameters(name).keys()
               if (name, parameter) not in OF_NEWER_NUMPY}
    assert not unknown, f"{name}: NumPy's function has no {unknown}"


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_left_out_parameters_raise_by_name(name):
    sample = next(sample for sample in samples(name) if not is_error(outcome(numpy_function(name), *sample)))
    for parameter, remedy in DECLARATIONS[name].left_out.items():
        with pytest.raises(DispatchTypeError) as caught:
            getattr(ops.np, name)(*sample.args, **{**sample.kwargs, parameter: None})
        assert f"'{parameter}'" in str(caught.value)
        assert remedy in str(caught.value)


@pytest.mark.parametrize("name", TOLD)
def test_positions_and_defaults_are_those_of_numpy(name):
    theirs = numpy_parameters(name)
    arguments = schema_of(name).arguments
    positional = [argument.name for argument in arguments if not argument.kw_only]
    assert positional == list(theirs)[:len(positional)]
    for argument in arguments:
        default = theirs[argument.name].default
        if argument.has_default and default is not NO_VALUE and (name, argument.name) != ("eye", "dtype"):
            assert argument.default == default or argument.default is None, f"{name}: {argument}"


@together("name", DECLARATIONS)
def test_schemas_print_as_they_are_written(name):
    assert str(schema_of(name)) == DECLARATIONS[name].schema_text


@together("name", DECLARATIONS)
def test_every_operator_has_a_kernel_and_a_meta_rule(name):
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(ops.np, packet), overload or "default")
    assert DECLARATIONS[name].kernels.keys() == {"CPU", "Meta"}
    assert operator.has_computed_kernel("CPU")
    assert operator.has_computed_kernel("Meta")
    assert str(parsed_schema(operator)) == f"np::{schema_of(name)}"


@together("name", [*DECLARATIONS, *OF_FAMILIES])
def test_kernels_take_every_argument_with_its_default(name):
    declaration = LIBRARY.declaration(name)
    composites = filter(None, (declaration.differentiated_as, declaration.planned_as))
    for kernel in (*declaration.kernels.values(), *composites):
        assert compare_signature(parse_schema(declaration.schema_text), kernel) == EXACT


def test_each_name_knows_its_variants():
    assert VARIANTS["add"] == VARIANTS["add_"] == VARIANTS["add.out"] == Variants("add", "add_", "add.out")
    assert VARIANTS["equal"] == Variants("equal", None, "equal.out")
    assert VARIANTS["setitem_"] == Variants("setitem", "setitem_", None)
    assert VARIANTS.keys() == DECLARATIONS.keys()
    for name, variants in VARIANTS.items():
        assert name in variants
        assert all(other is None or VARIANTS[other] is variants for other in variants)


@together("name", DECLARATIONS)
def test_variants_differ_from_the_function_in_what_they_write_to(name):
    variants = VARIANTS[name]
    names = [argument.name for argument in schema_of(variants.functional).arguments]
    mutable = [argument.name for argument in schema_of(name).arguments if argument.mutable]
    found = [argument.name for argument in schema_of(name).arguments]
    if name == variants.out:
        assert (found, mutable) == ([*names, "out"], ["out"])
    elif name == variants.in_place:
        assert (found, mutable) == (names, names[:1])
    else:
        assert mutable == []


IN_A_NEW_PROCESS = {
    "importing parses no schema": """
import pydispatch
from pydispatch._registry import registrations
parsed = [name for name, op in registrations.operators.items() if registrations.definition_of(op).is_parsed]
assert not parsed, parsed
assert len(registrations.operators) > 200
""",
    "importing makes no registrations of the library": """
import gc, pydispatch
from pydispatch._registry.registrations import OperatorHandle
made = [handle for handle in gc.get_objects() if isinstance(handle, OperatorHandle)]
assert not made, made[:3]
assert pydispatch.ops.np.add.default.has_kernel("CPU")
""",
    "a user's kernel shadows that of a family which is loaded later": """
import numpy as np
from pydispatch import library, ops
with library.impl("np::linalg_inv", "CPU", lambda a: a + 1):
    assert (ops.np.linalg_inv(np.eye(2)) == np.eye(2) + 1).all()
assert (ops.np.linalg_inv(2 * np.eye(2)) == np.eye(2) / 2).all()
""",
    "threads that ask at once get the same registrations": """
import sys, threading
from pydispatch import ops
sys.setswitchinterval(1e-6)
n = 8
operators = [packet.default for packet in vars(ops.np).values() if packet.overloads]
barrier = threading.Barrier(n)
found = [[] for _ in range(n)]
def read(mine):
    barrier.wait()
    mine.extend(id(handle) for op in operators for handle in op.registrations)
threads = [threading.Thread(target=read, args=(mine,)) for mine in found]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found[0]) == 4 * len(operators) == len(set(found[0]))
assert all(mine == found[0] for mine in found)
""",
}


@pytest.mark.parametrize("program", IN_A_NEW_PROCESS.values(), ids=IN_A_NEW_PROCESS)
def test_in_a_new_process(program):
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_is_declared_again_keeps_its_registrations():
    before = ops.np.add.default, list(ops.np.add.default.registrations), ops.np.add.overloads
    install()
    assert (ops.np.add.default, list(ops.np.add.default.registrations), ops.np.add.overloads) == before
