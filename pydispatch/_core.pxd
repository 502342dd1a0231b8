# The header of the hot path: what a key set, a Tensor, the ambient state and an operator are made of, and what they cost.

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport uint64_t

cdef extern from "Python.h":
    ctypedef PyObject* (*vectorcallfunc)(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames)


# --- keys ------------------------------------------------------------------------------------------------------------
#
# A key set is one word:    bits 0-15 backends  |  bits 16-37 functionalities  |  bits 38-63 flags of the arguments.
# A runtime key is a functionality, or, for the per-backend ones, a functionality on a backend; each has a slot in every
# operator's table. Slots ascend in priority.

cdef enum:
    N_BACKENDS = 16
    N_FUNCTIONALITIES = 22
    FIRST_RUNTIME_FUNCTIONALITY = 4     # the names between Python and AutogradOther are given out at run time
    N_RUNTIME_FUNCTIONALITIES = 16
    N_SLOTS = 68                        # slot 0 is Undefined: nothing that could be dispatched on
    MAX_ARGUMENTS = 64                  # sets of arguments are words too

cdef class DispatchKeySet:              # 24 bytes
    cdef readonly uint64_t word


# --- values ----------------------------------------------------------------------------------------------------------

cdef class Version:                     # shared by the views of one memory; raised by every in-place operator
    cdef readonly long long count

cdef class Tensor:                      # 72 bytes with the collector's header
    cdef uint64_t word                  # the keys it brings to a call, and its flags
    cdef readonly object array          # the raw array; never replaced
    cdef object autograd
    cdef Version version                # None until it is written to or shared
    cdef object __weakref__


# --- ambient state ---------------------------------------------------------------------------------------------------

cdef class State:                       # immutable once pushed; the chain of parents is the stack of guards
    cdef readonly State parent
    cdef readonly object guard
    cdef uint64_t added                 # keys added to every call
    cdef uint64_t removed[N_BACKENDS + 1]       # functionalities switched off, by bit length of the backends seen
    cdef readonly object tracer
    cdef readonly str default_backend


# --- operators -------------------------------------------------------------------------------------------------------

cdef class Stack(list):                 # arguments on the way in, results on the way out
    pass

cdef class Signature:                   # a schema, laid out for binding
    cdef readonly object schema
    cdef Py_ssize_t n_arguments
    cdef Py_ssize_t n_positional        # keyword-only arguments come after these
    cdef uint64_t required              # sets of arguments, one bit each
    cdef uint64_t arrays
    cdef uint64_t mutable
    cdef unsigned char kind[MAX_ARGUMENTS]
    cdef tuple names
    cdef tuple single_names             # each name as a tuple, for calls with one keyword
    cdef tuple defaults
    cdef tuple converters
    cdef tuple sizes                    # of lists that a scalar is repeated to fill; else 0
    cdef Py_ssize_t n_returns
    cdef bint returns_fresh_tensor      # exactly one Tensor that shares memory with no argument: the common case
    cdef tuple return_converters
    cdef tuple return_is_tensor
    cdef tuple return_arrays            # may this result hold arrays?
    cdef tuple return_source            # per result: the mutable argument that it is, else -1
    cdef tuple return_views             # per result: the arguments whose memory it may share

cdef class TableEntry:                  # a kernel as one operator calls it under one key
    cdef object function
    cdef vectorcallfunc call            # its own entry point
    cdef int convention
    cdef uint64_t fill                  # arguments that are passed even when they equal their default
    cdef readonly object kernel
    cdef readonly str label             # the rule that chose it

cdef class Table:                       # immutable; replaced whole when a registration changes
    cdef Signature signature
    cdef PyObject* entries[N_SLOTS]     # borrowed from rows
    cdef uint64_t masks[N_BACKENDS + 1]         # functionalities that do not fall through, by bit length of the backends
    cdef readonly tuple rows
    cdef uint64_t last_word             # the last plain call outside of all guards: the word of its arguments,
    cdef PyObject* last_entry           # and the entry that it found

cdef class OpOverload:
    cdef vectorcallfunc vectorcall
    cdef Table table                    # None: stale, computed by the next call
    cdef readonly object name
    cdef readonly str removed_at        # where the last registration went away, else None
    cdef public list registrations
    cdef object __weakref__

cdef class OpOverloadPacket:
    cdef vectorcallfunc vectorcall
    cdef readonly str name
    cdef readonly tuple overloads       # those with a schema, in order of definition
    cdef object __weakref__
