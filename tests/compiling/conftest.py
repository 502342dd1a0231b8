"""Tests that hold from NumPy 2.3 on: older versions cut reductions into other pieces, and 2.0 compares in Python."""

from pathlib import Path

import numpy as np
import pytest

from pydispatch.compiling import steps
from pydispatch.operators.declare import IS_NUMPY_2_0

HERE = Path(__file__).parent
OLD = np.lib.NumpyVersion(np.__version__) < "2.3.0"
BITS_OF_SUMS = {
    "test_rows_with_reductions_inside", "test_reductions_have_the_bits_of_numpys", "test_bodies_over_large_arrays",
    "test_sizes_around_the_borders_of_blocks", "test_large_arrays_on_threads", "test_what_is_computed_lies_in_c_order",
    "test_programs_to_the_bit", "test_what_is_added_up_stays_in_the_cache",
    "test_sums_wait_for_all_that_is_written_to_what_they_add_up", "test_sums_add_up_in_numpys_order",
    "test_operators_along_an_axis", "test_operators_on_all_elements", "test_gradients_of_composed_operators",
}
COMPARISONS_AS_LOOPS = {"test_no_call_of_python_between_the_steps", "test_compiled_gradients", "test_random_loops",
                        "test_what_is_a_loop"}


def pytest_collection_modifyitems(items):
    for item in items if OLD else ():
        if item.path.is_relative_to(HERE):
            name = getattr(item, "originalname", "")
            if name in BITS_OF_SUMS:
                item.add_marker(pytest.mark.skip(reason="before NumPy 2.3, sums round otherwise than in a plan"))
            elif name in COMPARISONS_AS_LOOPS and IS_NUMPY_2_0:
                item.add_marker(pytest.mark.skip(reason="in NumPy 2.0, comparisons are kernels in Python"))


@pytest.fixture(scope="session", autouse=True)
def threads_for_little_work():
    """Share microseconds of work among threads too, so that tests of threads need no large arrays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "WORK_OF_THREAD", 1 << 13)
        yield
