# cython: allow_none_for_extension_args=False, auto_pickle=False, binding=False, embedsignature=True, embedsignature.format=clinic
"""The hot path: key sets, Tensor, the ambient state, and the one call path of every operator.

    op(*args, **kwargs)
      bind      bind arguments to the schema, one value per schema argument, and check types
      keys      take the union of the arguments' key sets, + include, - exclude, & not-fall-through
      table     find the entry of the highest key
      strip     drop arguments that equal their defaults
      kernel    run the kernel on raw arrays, or on the arguments as passed
      finish    check and wrap results; mutated arguments keep their identity

There is one routine per step. Every kind of call enters at a step and leaves at the end.
"""

# The table of contents. Each part is in core/NAME.pyx. Its header, core/NAME.pxd, declares the names for other parts.
# All parts are one translation unit: a call from one to another costs as much as a call within one. `_core.pyi`
# declares the names that Python code can use.

import _thread
import contextvars
import functools
import gc
import math
import operator
import os
import sys
import types
import weakref

if getattr(sys.modules.get("pydispatch"), "__distribution__", None) != "pydispatch-numpy":
    raise ImportError(
        "the package `pydispatch` that Python found is not pydispatch-numpy: PyDispatcher and python-dispatch install "
        "an import package of the same name, and the one installed last (or removed last) has replaced our files.\n"
        "Install pydispatch-numpy again, last:  pip install --force-reinstall --no-deps pydispatch-numpy"
    )

import numpy

from pydispatch.exceptions import (
    AutogradError, DataDependentError, DispatchTypeError, KeyTypeError, NoDataError, NoDerivativeError,
    StateOrderError,
)

cimport cython
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.math cimport INFINITY, log, log1p
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy, memset

cimport numpy as cnp

cnp.import_array()

# seam: the private parts of CPython and NumPy, behind functions with names. Calls to Python.
include "core/seam/capi.pyx"                # the parts of C, Python and NumPy that the core uses
include "core/seam/upcalls.pyx"             # upcalls: calls to functions written in Python

# loops: NumPy's inner loops, called without NumPy's overhead.
include "core/loops/loops.pyx"              # NumPy's inner loops, called directly on small arrays
include "core/loops/iteration.pyx"          # the order in which NumPy takes loops over arrays of any layout
include "core/loops/elementwise.pyx"        # loops element by element, for every type and layout
include "core/loops/folds.pyx"              # loops that reduce, along any axes
include "core/loops/c_functions.pyx"        # functions in C as universal functions
include "core/loops/free_list.pyx"          # a free list of small arrays

# values: the arguments and results of calls.
include "core/values/keys.pyx"              # key sets: the keys that a value brings to a call, in one word
include "core/values/values.pyx"            # Tensors, and the keys and arrays of values
include "core/values/arrays.pyx"            # array types: NumPy's, those of backends, and arrays without data
include "core/values/memory.pyx"            # memory that views share. It counts the writes to it
include "core/values/shapes.pyx"            # shapes and dtypes: comparisons, checks and conversions
include "core/values/pytrees.pyx"           # pytrees: flattened into leaves, and rebuilt from them

# state: the surroundings of a call.
include "core/state/state.pyx"              # the ambient state, per thread and context
include "core/state/contexts.pyx"           # the state for code that runs in a copy of the context
include "core/state/guards.pyx"             # context managers that change the state

# call: a call, step by step.
include "core/call/signature.pyx"           # schemas in a layout for binding
include "core/call/table.pyx"               # dispatch tables: from a key to the kernel that runs
include "core/call/binding.pyx"             # binding of arguments to the schema
include "core/call/results.pyx"             # results of kernels: checked and wrapped
include "core/call/interpreters.pyx"        # interpreters, as calls, the tape and the stack know them
include "core/call/calls.pyx"               # a call, from the vectorcall slot to its result
include "core/call/operators.pyx"           # operators and their overloads, which users call
include "core/call/registrations.pyx"       # locks, and changes that take effect as a whole or not at all
include "core/call/special_methods.pyx"     # methods of a Tensor that Python and NumPy call
include "core/call/array_functions.pyx"     # functions with the arguments of NumPy's
include "core/call/profiling.pyx"           # which operators run, how long, and with how much memory

# tape: recorded calls, and the backward pass.
include "core/tape/tape.pyx"                # nodes, derivatives, and the destinations of gradients
include "core/tape/recording.pyx"           # calls become nodes of the tape
include "core/tape/in_place.pyx"            # writes in place and views, on the tape
include "core/tape/residuals.pyx"           # residuals, which are copied before they are overwritten
include "core/tape/chains.pyx"              # formulas as loops that run in sequence
include "core/tape/queue.pyx"               # the engine's heap and its table of addresses
include "core/tape/engine.pyx"              # the backward pass
include "core/tape/functions.pyx"           # calls that users' functions differentiate

# stack: transforms and modes. A transform per file: interpreter, wrapper, default rule, entry point.
include "core/stack/stack.pyx"              # transforms and modes, innermost first
include "core/stack/substitution.pyx"       # captured values
include "core/stack/gathered.pyx"           # copies where NumPy has views
include "core/stack/entry_points.pyx"       # code that entry points share
include "core/stack/grad.pyx"               # reverse mode
include "core/stack/jvp.pyx"                # forward mode
include "core/stack/vmap.pyx"               # batches
include "core/stack/jacobians.pyx"          # matrices of derivatives
include "core/stack/transform.pyx"          # transforms written in Python
include "core/stack/modes.pyx"              # modes: users' code that sees every call
include "core/stack/subclasses.pyx"         # subclasses of Tensor with a handler

# kernels: operators and formulas in C.
include "core/kernels/scans.pyx"            # loops whose steps each call one operator
include "core/kernels/kernels.pyx"          # kernels in C

# plans: the machine that runs compiled functions.
include "plans/operations.pyx"              # loops over few elements as our own code
include "plans/wide_loops.pyx"              # arithmetic on many elements, with wider instructions than NumPy's
include "plans/steps.pyx"                   # the steps of a plan: loops, run in order without Python
include "plans/thread_pool.pyx"             # rows of blocks that threads share
include "plans/buffer_cache.pyx"            # memory of large results, which is reused
include "plans/kinds.pyx"                   # the kinds of steps: how a plan checks and runs each
include "plans/plan_checks.pyx"             # checks that each step of a plan uses only its own memory
include "plans/small_loops.pyx"             # rows of loops over few elements, which a plan runs as one
include "plans/fused_loops.pyx"             # loops in blocks that are computed together in registers
include "plans/plans.pyx"                   # plans: steps with their memory
include "plans/compiled.pyx"                # calls of compiled functions, with their guards

# interface: everything that Python and other extensions see.
include "core/interface/tensor.pyx"         # the class Tensor, as Python sees it
include "core/interface/exports.pyx"        # functions that extensions in Cython call
include "core/interface/closed_classes.pyx" # classes whose objects only the core makes
