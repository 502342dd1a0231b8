# cython: allow_none_for_extension_args=False, auto_pickle=False, binding=False, embedsignature=True, embedsignature.format=clinic
"""The hot path: key sets, Tensor, the ambient state, and the one call path of every operator.

    op(*args, **kwargs)
      bind      arguments to the schema, one value per schema argument; types checked
      keys      union of the arguments' key sets, + include, - exclude, & not-fall-through
      table     the entry of the highest key
      strip     arguments equal to their defaults are dropped
      kernel    runs, on raw arrays or on what was passed
      finish    results checked and wrapped; mutated arguments keep their identity

One routine per step; every way to call enters at a step and leaves at the end.
"""

# The table of contents. Each part lies in core/NAME.pyx; its header, core/NAME.pxd, declares what other parts may use of
# it. All parts are one translation unit: a call from one to another costs what a call within one costs. `_core.pyi` says
# what Python sees.

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
    AutogradError, ConversionError, DispatchTypeError, NoDataError, NoDerivativeError, StateOrderError,
)

cimport cython
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.math cimport log, log1p
from libc.string cimport memcmp, memcpy, memset

cimport numpy as cnp

cnp.import_array()

# Values: what a call is about.
include "core/capi.pyx"                 # what the core uses of C, Python and NumPy
include "core/keys.pyx"                 # key sets: which kernels a value asks for, in one word
include "core/values.pyx"               # Tensors, and what is read off a value: its keys and its array
include "core/arrays.pyx"               # array types: NumPy's, those of backends, and arrays without data
include "core/memory.pyx"               # memory that views share: writes are counted there
include "core/shapes.pyx"               # shapes and dtypes: compared, checked, and brought to one another
include "core/pytrees.pyx"              # pytrees: taken apart into leaves, and put together again

# What surrounds a call.
include "core/state.pyx"                # the ambient state, per thread and context
include "core/contexts.pyx"             # what code that runs in a copy of the context sees
include "core/guards.pyx"               # context managers that change the state

# A call, step by step.
include "core/signature.pyx"            # schemas, laid out for binding
include "core/table.pyx"                # dispatch tables: from a key to the kernel that runs
include "core/binding.pyx"              # arguments to the schema
include "core/results.pyx"              # results of kernels: checked and wrapped
include "core/calls.pyx"                # a call, from the vectorcall slot to its result
include "core/operators.pyx"            # operators and their overloads: what users call
include "core/registrations.pyx"        # locks, and changes that come into force as one or not at all
include "core/special_methods.pyx"      # what Python and NumPy call of a Tensor

# The stack, and the tape under it.
include "core/stack.pyx"                # transforms and modes, innermost first
include "core/substitution.pyx"         # captured values
include "core/tape.pyx"                 # nodes, derivatives, and where gradients go
include "core/recording.pyx"            # a call becomes a node
include "core/in_place.pyx"             # writes in place and views, on the tape

# A transform per file: interpreter, wrapper, default rule, entry point.
include "core/entry_points.pyx"         # what entry points share
include "core/grad.pyx"
include "core/jvp.pyx"
include "core/vmap.pyx"
include "core/transform.pyx"            # transforms written in Python

# Dispatch to Python.
include "core/modes.pyx"
include "core/subclasses.pyx"

# The backward pass.
include "core/functions.pyx"            # calls that functions of users differentiate
include "core/queue.pyx"                # the engine's heap and its table of addresses
include "core/engine.pyx"
include "core/profiling.pyx"            # what runs, how long, and with how much memory

# Kernels and formulas without NumPy's way to them.
include "core/kept_arrays.pyx"          # small arrays that are used again when they are no longer held
include "core/loops.pyx"                # NumPy's inner loops, called directly on small arrays
include "core/iteration.pyx"            # the order in which NumPy takes loops over arrays of any layout
include "core/elementwise.pyx"          # loops element by element, for every type and layout
include "core/c_functions.pyx"          # functions in C as universal functions
include "core/folds.pyx"                # loops that reduce, along any axes
include "core/chains.pyx"               # formulas as loops that run one after the other
include "core/scans.pyx"                # steps of loops that are one operator
include "core/kernels.pyx"              # kernels in C
include "core/operations.pyx"           # loops over few elements as code of our own
include "core/wide_loops.pyx"           # arithmetic on many elements, by wider instructions than NumPy's
include "core/steps.pyx"                # what a plan does: loops, one after the other without Python
include "core/shared_rows.pyx"          # rows of blocks that threads share
include "core/kept_memory.pyx"          # memory of large results, which is used again
include "core/plan_checks.pyx"          # each step of a plan stays in the memory that it is given
include "core/small_loops.pyx"          # rows of loops over few elements, which a plan runs as one
include "core/joined_loops.pyx"         # loops in blocks, which go through registers together
include "core/plans.pyx"                # plans: steps with the memory that they work in
include "core/compiled.pyx"             # calls of compiled functions, guarded by what was traced

# NumPy's interface.
include "core/array_functions.pyx"      # functions that take what NumPy's take

# The way to Python and out of it.
include "core/upcalls.pyx"              # what the core asks of Python
include "core/exports.pyx"              # what extensions in Cython call
include "core/closed_classes.pyx"       # classes whose objects only the core makes
