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

import contextvars
import gc
import os
import sys

if getattr(sys.modules.get("pydispatch"), "__distribution__", None) != "pydispatch-numpy":
    raise ImportError(
        "the package `pydispatch` that Python found is not pydispatch-numpy: PyDispatcher and python-dispatch install "
        "an import package of the same name, and the one installed last (or removed last) has replaced our files.\n"
        "Install pydispatch-numpy again, last:  pip install --force-reinstall --no-deps pydispatch-numpy"
    )

import operator
import types
import weakref
from _thread import RLock

cimport cython
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.string cimport memset

import numpy

from pydispatch.exceptions import (
    AutogradError, ConversionError, DispatchTypeError, NoDataError, NoDerivativeError, StateOrderError,
)

cdef extern from "Python.h":
    void Py_DECREF(PyObject*)
    PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*)
    PyObject* PyVectorcall_Call(PyObject*, PyObject*, PyObject*)
    vectorcallfunc PyVectorcall_Function(PyObject*)
    Py_ssize_t PyVectorcall_NARGS(size_t) nogil
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    unsigned long Py_TPFLAGS_HAVE_VECTORCALL
    void PyType_Modified(PyTypeObject*)
    PyObject* PyContextVar_New(const char*, PyObject*)
    int PyContextVar_Get(PyObject*, PyObject*, PyObject**) except -1
    PyObject* set_quietly "PyContextVar_Set" (PyObject*, PyObject*)     # NULL for an error, not raised
    void PyErr_Clear()
    PyObject* PyErr_Occurred()
    void PyErr_Fetch(PyObject**, PyObject**, PyObject**)
    void PyErr_Restore(PyObject*, PyObject*, PyObject*)
    int PyObject_RichCompareBool(object, object, int) except -1
    int Py_EQ, Py_LT, Py_LE, Py_NE, Py_GT, Py_GE
    PyObject* PyTuple_GET_ITEM(PyObject*, Py_ssize_t)
    Py_ssize_t PyTuple_GET_SIZE(PyObject*)
    bint PyTuple_CheckExact(PyObject*)
    double PyFloat_AS_DOUBLE(PyObject*)
    PyTypeObject* Py_TYPE(PyObject*)
    bint PyType_IsSubtype(PyTypeObject*, PyTypeObject*)
    PyTypeObject PySlice_Type, PyTuple_Type, PyList_Type, PyType_Type, PyLong_Type, PyFloat_Type, PyBool_Type, PyComplex_Type, PyUnicode_Type
    PyObject* Py_None
    PyObject* Py_Ellipsis
    bint PyUnicode_CHECK_INTERNED(PyObject*) noexcept
    ctypedef struct vectorcallable "PyTypeObject":
        Py_ssize_t tp_vectorcall_offset
        PyObject* (*tp_call)(PyObject*, PyObject*, PyObject*)
        unsigned long tp_flags
        vectorcallfunc tp_vectorcall
        void* tp_init
        PyObject* (*tp_new)(PyTypeObject*, PyObject*, PyObject*)
        void (*tp_dealloc)(PyObject*) noexcept
        PyObject* tp_dict

cdef extern from *:
    """
    #define IN_OPERATOR " while calling an operator"
    #if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    /* These let C code be 10,000 calls deep, too many for frames of ours; 3.11 counts calls of C and Python together,
       and 3.14 looks at the stack itself. */
    static __thread int depth = 0;
    static inline int enter_recursive_call(void) {
        if (depth >= Py_GetRecursionLimit()) {
            PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded" IN_OPERATOR);
            return -1;
        }
        depth++;
        return 0;
    }
    #define leave_recursive_call() (depth--)
    #else
    #define enter_recursive_call() (Py_EnterRecursiveCall(IN_OPERATOR) ? -1 : 0)
    #define leave_recursive_call() Py_LeaveRecursiveCall()
    #endif
    #define own(result) (result)
    /* when the list cannot grow, Cython 3.3 releases what a comprehension has computed once too often: write a loop */
    #pragma GCC poison __Pyx_ListComp_AppendAndDecref
    #define new_object(type, arguments) ((type)->tp_new((type), (arguments), NULL))
    #if PY_VERSION_HEX >= 0x030C0000
        #define is_compact(number) PyUnstable_Long_IsCompact((PyLongObject*)(number))
        #define compact_value(number) PyUnstable_Long_CompactValue((PyLongObject*)(number))
    #else
        #define is_compact(number) (Py_SIZE(number) >= -1 && Py_SIZE(number) <= 1)
        #define compact_value(number) (Py_SIZE(number) * (Py_ssize_t)((PyLongObject*)(number))->ob_digit[0])
    #endif
    static inline PyObject* give(PyObject* value) { Py_INCREF(value); return value; }
    #define bit_length16(word) ((word) ? 32 - __builtin_clz((unsigned int)(word)) : 0)
    #define highest_bit(word) (63 - __builtin_clzll(word))
    #define lowest_bit(word) __builtin_ctzll(word)
    """
    int enter_recursive_call() except -1
    void leave_recursive_call()
    PyObject* new_object(PyTypeObject* type, PyObject* arguments) except NULL
    PyObject* new_or_null "new_object" (PyTypeObject* type, PyObject* arguments)
    bint is_compact(PyObject* number) noexcept      # is this int of one digit at most?
    Py_ssize_t compact_value(PyObject* number) noexcept
    PyObject* give(object value)        # a new reference
    object own(PyObject* result)        # takes over a new reference, or raises what the C call raised
    int bit_length16(uint64_t word) noexcept nogil
    int highest_bit(uint64_t word) noexcept nogil
    int lowest_bit(uint64_t word) noexcept nogil

cimport numpy as cnp
cnp.import_array()

cdef extern from *:
    """
    #define PyArray_IsScalarOfNumPy(value) PyObject_TypeCheck(value, &PyGenericArrType_Type)
    #define descr_of(array) ((PyObject*)PyArray_DESCR(array))
    #define new_from_descr(type, descr, ndim, dims, strides, data, flags, like) \
        PyArray_NewFromDescr(type, (PyArray_Descr*)(descr), ndim, dims, strides, data, flags, like)
    #define new_scalar(data, descr, base) PyArray_Scalar(data, (PyArray_Descr*)(descr), base)
    """

cdef extern from "numpy/arrayobject.h":
    PyTypeObject PyArray_Type
    ctypedef struct PyArrayObject:
        pass
    PyObject* PyArray_BASE(PyArrayObject*) nogil
    object PyArray_FromScalar(object, PyObject*)
    object PyArray_NewFromDescr "new_from_descr" (PyTypeObject*, PyObject* descr, int, cnp.npy_intp*, cnp.npy_intp*,
                                                  void*, int, PyObject*)     # takes over the descr
    int PyArray_SetBaseObject(PyArrayObject*, PyObject*) except -1
    void PyArray_CLEARFLAGS(PyArrayObject*, int) noexcept
    void* PyArray_DATA(PyArrayObject*) nogil
    cnp.npy_intp* PyArray_STRIDES(PyArrayObject*) nogil
    bint is_numpy_scalar "PyArray_IsScalarOfNumPy" (object) noexcept
    int PyArray_NDIM(PyArrayObject*) nogil
    cnp.npy_intp* PyArray_DIMS(PyArrayObject*) nogil
    int PyArray_TYPE(PyArrayObject*) nogil
    int PyArray_FLAGS(PyArrayObject*) nogil
    PyObject* PyArray_DESCR "descr_of" (PyArrayObject*) nogil
    bint PyArray_DescrCheck(PyObject*) noexcept
    bint PyTypeNum_ISCOMPLEX(int) nogil
    bint PyTypeNum_ISFLOAT(int) nogil
    int NPY_ARRAY_OWNDATA, NPY_ARRAY_WRITEABLE, NPY_ARRAY_C_CONTIGUOUS
    enum:
        MAX_AXES "NPY_MAXDIMS"


# --- locks -----------------------------------------------------------------------------------------------------------

cdef list locks = []


cdef class Lock:
    """A lock that its holder may take again. In a forked child it is free, unless the thread that forked holds it."""

    cdef object inner

    def __init__(self):
        self.inner = RLock()
        locks.append(self)

    def __enter__(self):
        self.inner.acquire()
        return self

    def __exit__(self, kind, error, trace):
        self.inner.release()

    def _is_owned(self):
        """Does this thread hold it? The name is that of Python's locks."""
        return self.inner._is_owned()

    cdef int free(self) except -1:
        """The threads that held it, or waited for it, are not in this process."""
        if not self.inner._is_owned():
            self.inner = RLock()
        return 0


cdef class Undo:
    """Takes back one thing that a block of `Registering` has done."""

    cdef Undo earlier
    cdef object function

    cdef int undo(self) except -1:
        self.function()
        return 0


@cython.final
cdef class Block:
    """A block whose registrations are made together."""

    cdef Block outer
    cdef Undo before            # what was done last when it began


@cython.final
cdef class Registering(Lock):
    """The lock of whoever registers. What was done in a block that an exception leaves is undone, the latest first."""

    cdef Block block            # the innermost that the holder is in
    cdef Undo last              # what was done last in the outermost

    def __enter__(self):
        cdef Block block = Block.__new__(Block)     # nothing fails once the lock is taken
        self.inner.acquire()
        block.outer = self.block
        block.before = self.last
        self.block = block
        return self

    def __exit__(self, kind, error, trace):
        cdef Block block = self.block
        if block is None or not self.inner._is_owned():
            raise RuntimeError("the lock was left by who had not entered it")
        self.block = block.outer
        try:
            if kind is not None:
                self.undo(block.before)
            while self.block is None and self.last is not None:     # one at a time: a long chain goes deep
                self.last = self.last.earlier
        finally:
            self.inner.release()

    def note(self, undo):
        """Say what takes back the next thing that the block does."""
        cdef Undo step = Undo.__new__(Undo)
        step.function = undo
        self.push(step)

    cdef void push(self, Undo step) noexcept:
        step.earlier = self.last
        self.last = step

    cdef int undo(self, Undo until) except -1:
        cdef Undo step
        interrupt = None
        while self.last is not None and self.last is not until:
            step = self.last
            try:
                step.undo()
            except Exception:
                pass        # of a listener; another exception is on its way
            except BaseException as error:
                interrupt = error
            self.last = step.earlier
        if interrupt is not None:
            raise interrupt
        return 0

    cdef int free(self) except -1:
        if self.block is not None and not self.inner._is_owned():
            Lock.free(self)
            self.block = None
            self.undo(None)
        return Lock.free(self)


def free_locks():
    """What other threads held is free in this process, and what they were about to register is not in force."""
    cdef Lock lock
    for lock in locks:
        lock.free()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=free_locks)
cdef Registering the_registering = Registering()
registering = the_registering


# --- keys ------------------------------------------------------------------------------------------------------------

cdef enum:
    FUNCTIONALITY_SHIFT = 16

cdef extern from *:
    """
    #define FUNCTIONALITY_BIT(rank) (UINT64_C(1) << ((rank) + 16))
    #define BACKEND_BITS UINT64_C(0xFFFF)
    #define RUNTIME_BACKEND_BITS UINT64_C(0x7FFE)
    #define META_BACKEND_BIT UINT64_C(0x8000)
    #define FUNCTIONALITY_BITS (((UINT64_C(1) << 22) - 1) << 16)
    #define KEY_BITS (BACKEND_BITS | FUNCTIONALITY_BITS)
    #define DENSE_BIT FUNCTIONALITY_BIT(0)
    #define SPARSE_BIT FUNCTIONALITY_BIT(1)
    #define BACKEND_SELECT_BIT FUNCTIONALITY_BIT(2)
    #define BELOW_BACKEND_SELECT_BITS (FUNCTIONALITY_BIT(2) - FUNCTIONALITY_BIT(0))
    #define PYTHON_BIT FUNCTIONALITY_BIT(3)
    #define ABOVE_PYTHON_BITS (FUNCTIONALITY_BITS & ~(FUNCTIONALITY_BIT(4) - 1))
    #define AUTOGRAD_OTHER_BIT FUNCTIONALITY_BIT(20)
    #define AUTOGRAD_BIT FUNCTIONALITY_BIT(21)
    #define PER_BACKEND_BITS (DENSE_BIT | SPARSE_BIT | AUTOGRAD_BIT)
    #define CPU_WORD (DENSE_BIT | 1)
    #define TENSOR_FLAG (UINT64_C(1) << 63)
    #define TRACKED_FLAG (UINT64_C(1) << 62)
    #define WRAPPER_FLAG (UINT64_C(1) << 61)
    #define SHARED_FLAG (UINT64_C(1) << 60)
    #define INFERENCE_FLAG (UINT64_C(1) << 59)
    #define SPECIAL_FLAGS (TRACKED_FLAG | WRAPPER_FLAG | SHARED_FLAG | INFERENCE_FLAG)
    """
    const uint64_t BACKEND_BITS
    const uint64_t RUNTIME_BACKEND_BITS     # all but CPU, the lowest, and Meta, the highest
    const uint64_t META_BACKEND_BIT
    const uint64_t FUNCTIONALITY_BITS
    const uint64_t KEY_BITS
    const uint64_t PER_BACKEND_BITS
    const uint64_t BACKEND_SELECT_BIT
    const uint64_t BELOW_BACKEND_SELECT_BITS
    const uint64_t PYTHON_BIT
    const uint64_t ABOVE_PYTHON_BITS
    const uint64_t DENSE_BIT
    const uint64_t SPARSE_BIT
    const uint64_t AUTOGRAD_BIT
    const uint64_t AUTOGRAD_OTHER_BIT
    const uint64_t CPU_WORD
    const uint64_t TENSOR_FLAG              # set in the word of every Tensor, so a union tells that there was one
    const uint64_t TRACKED_FLAG             # its gradient is asked for
    const uint64_t WRAPPER_FLAG             # it belongs to a transform
    const uint64_t SHARED_FLAG              # it is a view, or has views
    const uint64_t INFERENCE_FLAG           # it was made in inference mode
    const uint64_t SPECIAL_FLAGS            # a call with any of these takes more than finding a kernel

cdef int first_slot[N_FUNCTIONALITIES]
cdef int slot_spread[N_FUNCTIONALITIES]             # all ones where each backend has a slot of its own, else 0
cdef uint64_t above[N_BACKENDS]                     # per backend, the backends that it outranks
cdef list slot_words = [0] * N_SLOTS
cdef uint64_t named_bits = 0
cdef dict device_words = {}                         # name of a backend -> word of its dense arrays
cdef list slot_keys = [None] * N_SLOTS              # the named key of a slot; filled by keys.py


cdef int lay_out_slots() except -1:
    cdef int functionality, backend
    cdef Py_ssize_t slot = 1
    cdef uint64_t bit
    for functionality in range(N_FUNCTIONALITIES):
        first_slot[functionality] = slot
        bit = (<uint64_t>1) << (functionality + FUNCTIONALITY_SHIFT)
        slot_spread[functionality] = -1 if bit & PER_BACKEND_BITS else 0
        if bit & PER_BACKEND_BITS:
            for backend in range(N_BACKENDS):
                slot_words[slot] = bit | (<uint64_t>1) << backend
                slot += 1
        else:
            slot_words[slot] = bit
            slot += 1
    assert slot == N_SLOTS
    return 0

lay_out_slots()
memset(above, 0, sizeof(above))


cdef inline int highest_slot(uint64_t word) noexcept nogil:
    cdef int backend = bit_length16(word & BACKEND_BITS)
    cdef int functionality
    word &= FUNCTIONALITY_BITS
    if backend == 0:
        word &= ~PER_BACKEND_BITS       # a functionality of backends, without a backend, is no key
    if word == 0:
        return 0
    functionality = highest_bit(word) - FUNCTIONALITY_SHIFT
    return first_slot[functionality] + ((backend - 1) & slot_spread[functionality])


N_TABLE_SLOTS = N_SLOTS


def slots():
    """The layout, for keys.py: a word per slot."""
    return tuple(slot_words)


def functionality_slot(int functionality):
    """First slot of a functionality, by its rank."""
    if not 0 <= functionality < N_FUNCTIONALITIES:
        raise ValueError(f"no functionality has the rank {functionality}")
    return first_slot[functionality]


def name_slot(int slot, key):
    """Give a slot its key; iteration over key sets yields the named ones."""
    global named_bits
    cdef uint64_t word = slot_words[slot]
    slot_keys[slot] = key
    named_bits |= word
    if word & DENSE_BIT:
        device_words[key.name] = word


def unname_slot(int slot):
    """Take the key of a slot away, if it has one."""
    global named_bits
    key = slot_keys[slot]
    slot_keys[slot] = None
    named_bits = 0
    for other in range(N_SLOTS):
        if slot_keys[other] is not None:
            named_bits |= <uint64_t>slot_words[other]
    if key is not None:
        device_words.pop(key.name, None)


def rank_backend(int backend, uint64_t outranked):
    """Declare which run-time backends (bits) this one outranks."""
    if not 0 <= backend < N_BACKENDS:
        raise ValueError(f"no backend has the rank {backend}")
    above[backend] = outranked


@cython.final
@cython.freelist(32)
cdef class DispatchKeySet:
    """A set of dispatch keys in one word: backends times functionalities.

    Built from keys, names of keys, or other key sets. Because backends and functionalities are kept apart,
    `{CPU, AutogradB}` and `{B, AutogradCPU}` are the same set, and difference removes functionalities only.
    Alias keys are no members; what they stand for is `key.members`.
    """

    def __init__(self, *keys):
        if self.word:
            raise TypeError("a key set never changes; make a new one: DispatchKeySet(...)")
        for key in keys:
            self.word |= word_of_keys(key)

    @staticmethod
    def from_word(uint64_t word):
        """The set with these bits; bits that are not key bits are dropped."""
        return keyset(word & KEY_BITS)

    @staticmethod
    def full():
        """Every backend and every functionality."""
        return keyset(KEY_BITS)

    @staticmethod
    def full_after(key):
        """Every key of strictly lower priority than the functionality of `key`, on all backends."""
        cdef uint64_t functionality = word_of_keys(key) & FUNCTIONALITY_BITS
        if functionality == 0:
            return keyset(0)
        return keyset(BACKEND_BITS | (FUNCTIONALITY_BITS & (((<uint64_t>1) << highest_bit(functionality)) - 1)))

    @property
    def highest(self):
        """The key of highest priority: the highest functionality, on the highest backend of the whole set."""
        return slot_keys[highest_slot(self.word & named_bits)]

    def remove_backend(self, key):
        """The set without the backend that `key` is about."""
        return keyset(self.word & ~(word_of_keys(key) & BACKEND_BITS))

    def __or__(self, other):
        return keyset((<DispatchKeySet?>self).word | word_of_keys(other))

    def __and__(self, other):
        return keyset((<DispatchKeySet?>self).word & word_of_keys(other))

    def __xor__(self, other):
        return keyset((<DispatchKeySet?>self).word ^ word_of_keys(other))

    def __sub__(self, other):
        return keyset((<DispatchKeySet?>self).word & ~(word_of_keys(other) & FUNCTIONALITY_BITS))

    def __contains__(self, key):
        cdef uint64_t word = word_of_keys(key)
        return self.word & word == word

    def __bool__(self):
        return self.word != 0

    def __eq__(self, other):
        return isinstance(other, DispatchKeySet) and self.word == (<DispatchKeySet>other).word

    def __hash__(self):
        return hash(self.word)

    def __iter__(self):
        for slot, word in enumerate(slot_words):
            if word and self.word & word == word and slot_keys[slot] is not None:
                yield slot_keys[slot]

    def __len__(self):
        return sum(1 for _ in self)

    def __repr__(self):
        return f"DispatchKeySet({', '.join(map(name_of, self))})"

    def __reduce__(self):
        return python_side["keyset_from_names"], python_side["names_of_keyset"](self)


cdef object name_of = operator.attrgetter("name")


cdef inline DispatchKeySet keyset(uint64_t word):
    cdef DispatchKeySet result = DispatchKeySet.__new__(DispatchKeySet)
    result.word = word
    return result


cdef uint64_t word_of_keys(keys) except? 0:
    if isinstance(keys, DispatchKeySet):
        return (<DispatchKeySet>keys).word
    return (<DispatchKeySet?>python_side["member"](keys)).word


# --- values ----------------------------------------------------------------------------------------------------------

cdef dict registered_array_types = {}       # type -> word
cdef dict words_by_type = {}                # address of a type -> word: a cache that keeps no type alive
cdef dict cached_types = {}                 # address -> weak reference that empties the cache


def register_array_type(type cls, uint64_t word):
    """Instances of `cls`, and of its subclasses, are raw arrays that bring these keys."""
    registered_array_types[cls] = word & KEY_BITS
    words_by_type.clear()
    cached_types.clear()


def forget_array_type(type cls):
    """Instances of `cls` are no raw arrays, unless those of a base are."""
    registered_array_types.pop(cls, None)
    words_by_type.clear()
    cached_types.clear()


def registered_word(type cls):
    """The word that exactly this type was registered with; 0 when it was not."""
    return registered_array_types.get(cls, 0)


cdef uint64_t resolve_type(cls) except? 1:
    cdef uint64_t word = 0
    for base in cls.__mro__:
        if base in registered_array_types:
            word = registered_array_types[base]
            break
    address = <size_t><PyObject*>cls
    cached_types[address] = weakref.ref(cls, lambda _: forget_type(address))
    words_by_type[address] = word
    return word


def forget_type(address):
    words_by_type.pop(address, None)
    cached_types.pop(address, None)


cdef inline uint64_t word_of_type(PyTypeObject* cls) except? 1:
    cached = words_by_type.get(<size_t>cls)
    if cached is None:
        return resolve_type(<object><PyObject*>cls)
    return <uint64_t>cached


cdef inline bint is_tensor_type(PyTypeObject* cls) noexcept:
    if cls == TENSOR_TYPE or cls == GRAD_TYPE or cls == BATCHED_TYPE or cls == JVP_TYPE:
        return True
    return cls != &PyArray_Type and PyType_IsSubtype(cls, <PyTypeObject*>Tensor)


cdef inline bint is_scalar_type(PyTypeObject* cls) noexcept:
    return cls == &PyFloat_Type or cls == &PyLong_Type or cls == &PyBool_Type or cls == &PyComplex_Type


cdef inline uint64_t word_of_array(PyObject* value) except? 1:
    """The word of one array; 0 for anything else."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    if cls == &PyArray_Type:
        return CPU_WORD
    if is_tensor_type(cls):
        return (<Tensor>value).word
    if is_scalar_type(cls) or value == Py_None:
        return 0
    return word_of_type(cls)


cdef uint64_t word_of_value(PyObject* value) except? 1:
    """The union over the arrays in a value: an array, or a container of such."""
    cdef uint64_t word = word_of_array(value)
    cdef Py_ssize_t i
    if word:
        return word
    if PyTuple_CheckExact(value):
        enter_recursive_call()
        try:
            for i in range(PyTuple_GET_SIZE(value)):
                word |= word_of_value(PyTuple_GET_ITEM(value, i))
        finally:
            leave_recursive_call()
    elif not holds_nothing(value):
        for leaf in array_leaves(<object>value):
            word |= word_of_array(<PyObject*>leaf)
    return word


cdef object array_leaves(value):
    """The arrays in a value, depth first: itself, or those in a container."""
    cdef list leaves
    if word_of_array(<PyObject*>value):
        return (value,)
    if holds_nothing(<PyObject*>value):
        return ()
    if type(value) is not tuple:
        return python_side["array_leaves"](value)
    leaves = []
    enter_recursive_call()
    try:
        for item in <tuple>value:
            if word_of_array(<PyObject*>item):
                leaves.append(item)
            elif not holds_nothing(<PyObject*>item):
                leaves.extend(array_leaves(item))
    finally:
        leave_recursive_call()
    return leaves


cdef enum:
    MAX_NESTING = 64


cdef inline bint holds_nothing(PyObject* value) noexcept:
    """Is this of a type whose objects are no arrays and contain none?"""
    cdef PyTypeObject* cls = Py_TYPE(value)
    return (is_scalar_type(cls) or value == Py_None or value == Py_Ellipsis or cls == &PyUnicode_Type
            or cls == &PySlice_Type or cls == &PyType_Type)


cdef bint is_settled(PyObject* value, bint arrays, int depth) noexcept:
    """Is this, down to the items of tuples, nothing that binding would convert? With `arrays` it may be or hold such.

    The quick yes, as far as tuples are nested as anybody nests them.
    """
    cdef Py_ssize_t i
    if holds_nothing(value):
        return True
    if PyTuple_CheckExact(value):
        for i in range(PyTuple_GET_SIZE(value)):
            if depth == MAX_NESTING or not is_settled(PyTuple_GET_ITEM(value, i), arrays, depth + 1):
                return False
        return True
    if is_tensor_type(Py_TYPE(value)):
        return arrays and (<Tensor>value).word != 0
    return arrays and Py_TYPE(value) != &PyList_Type


cdef bint are_arrays(PyObject* value) noexcept:
    """Is this a tuple of ndarrays and Tensors?"""
    cdef Py_ssize_t i
    cdef PyObject* item
    if not PyTuple_CheckExact(value):
        return False
    for i in range(PyTuple_GET_SIZE(value)):
        item = PyTuple_GET_ITEM(value, i)
        if Py_TYPE(item) != &PyArray_Type and not (is_tensor_type(Py_TYPE(item)) and (<Tensor>item).word):
            return False
    return True


def is_array(value):
    """Is this a Tensor, or an instance of a registered raw array type?"""
    return word_of_array(<PyObject*>value) != 0


def is_array_type(cls):
    """Are instances of `cls` Tensors or raw arrays?"""
    return isinstance(cls, type) and (issubclass(cls, Tensor) or word_of_type(<PyTypeObject*>cls) != 0)


def keys_of(value):
    """The key set that a value brings to a call: that of an array, or the union over a container."""
    return keyset(word_of_value(<PyObject*>value) & KEY_BITS)


def keys_of_all(list values):
    """The union of the key sets of the arrays among these values."""
    cdef uint64_t word = 0
    for value in values:
        word |= word_of_array(<PyObject*>value)
    return keyset(word & KEY_BITS)


@cython.final
@cython.freelist(64)
cdef class Memory:
    """What the views of one memory share: the count of in-place writes, and where the gradient of the whole goes."""

    @property
    def count(self):
        """How often this memory was written to in place."""
        return writes_to(self)

    def __repr__(self):
        return f"Memory({self.count} writes)"


@cython.freelist(256)
cdef class Tensor:
    """One raw array, with what an array cannot carry: dispatch keys, where its gradient goes, and the memory that it shares with views.

    `Tensor(array)` shares memory with `array`, which must be an instance of a registered array type; a NumPy scalar
    becomes 0-d. Hashes by identity; `==` is elementwise.

    Raises DispatchTypeError for anything that is not an array: `Tensor(numpy.asarray(values))` makes one of a list.
    """


    def __init__(self, array, *, bint requires_grad=False):
        cdef uint64_t word
        cdef PyTypeObject* given = Py_TYPE(<PyObject*>array)
        if self.word:
            raise DispatchTypeError("a Tensor's array is never replaced\nmake a new one: Tensor(array)")
        if isinstance(array, Wrapper):
            raise DispatchTypeError(
                f"Tensor wraps one raw array, and this is a value of {described_level((<Wrapper>array).interpreter)}\n"
                "use it as it is; it is a Tensor"
            )
        if isinstance(array, Tensor):
            self.memory = memory_of_detached(<Tensor>array)
            array = (<Tensor>array).array
        if isinstance(array, Shell):
            if not has_handler(Py_TYPE(<PyObject*>self)):
                raise DispatchTypeError(
                    f"{type(self).__name__} must define __pydispatch__ to wrap a {(<object>given).__name__}, which has no "
                    "data\n"
                    "define it, or wrap an array: Tensor(array)"
                )
            word = (<Shell>array).keys
        else:
            word = word_of_array(<PyObject*>array)
        if word == 0:
            raise DispatchTypeError(
                f"Tensor wraps one raw array, not {type(array).__name__}\n"
                f"write Tensor(numpy.asarray(...)), or register the type: pydispatch.register_array_type(...)"
            )
        fill_tensor(self, array, word)
        if Py_TYPE(<PyObject*>self) != TENSOR_TYPE and has_handler(Py_TYPE(<PyObject*>self)):
            self.word |= PYTHON_BIT
        if (<State>borrowed_state()).inference and self.memory is None:
            self.word |= INFERENCE_FLAG
        if requires_grad:
            set_requires_grad(self, True)

    @property
    def keys(self):
        """The key set that this Tensor brings to a call."""
        return keyset(self.word & KEY_BITS)

    @property
    def dispatches_to_python(self):
        """Does `__pydispatch__` of its class handle operators on it? Settled when the Tensor is made."""
        return self.word & PYTHON_BIT != 0

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        """Run the kernel of `func`; what a handler of a subclass calls with super(). See `modes.below_python`."""
        return below_python(func, *args, **({} if kwargs is None else kwargs))

    @property
    def _version(self):
        """How often this memory was written to in place, through any view of it."""
        return 0 if self.memory is None else writes_to(self.memory)

    @property
    def shape(self):
        """Tuple of dimensions."""
        return self.array.shape

    @property
    def dtype(self):
        """NumPy dtype of the elements."""
        return self.array.dtype

    @property
    def ndim(self):
        """Number of dimensions."""
        return self.array.ndim

    @property
    def size(self):
        """Number of elements."""
        return self.array.size

    @property
    def itemsize(self):
        """Bytes per element."""
        return self.array.itemsize

    @property
    def nbytes(self):
        """Bytes of all elements."""
        return self.array.nbytes

    @property
    def strides(self):
        """Bytes to step in each dimension."""
        return self.array.strides

    @property
    def requires_grad(self):
        """Is its gradient asked for? Settable on leaves."""
        return requires_grad_of(self)

    @requires_grad.setter
    def requires_grad(self, bint flag):
        set_requires_grad_of(self, flag)

    @property
    def grad(self):
        """What backward passes have added up; None before the first. Of what is no leaf only after retain_grad."""
        if self.edge is None:
            return None
        if is_leaf_edge(self.edge):
            return (<Place>self.edge).grad
        return python_side["kept_grad"](self)

    @grad.setter
    def grad(self, value):
        if value is not None:
            python_side["check_grad"](self, value)
        if not is_leaf_edge(self.edge):
            place_of(self)
        (<Place>self.edge).grad = value

    # the operators of the language; operators/ says which library operator each one is

    def __add__(self, other): return binary(ADD, self, other)
    def __radd__(self, other): return binary(ADD, other, self)
    def __iadd__(self, other): return binary(IADD, self, other)
    def __sub__(self, other): return binary(SUB, self, other)
    def __rsub__(self, other): return binary(SUB, other, self)
    def __isub__(self, other): return binary(ISUB, self, other)
    def __mul__(self, other): return binary(MUL, self, other)
    def __rmul__(self, other): return binary(MUL, other, self)
    def __imul__(self, other): return binary(IMUL, self, other)
    def __truediv__(self, other): return binary(TRUEDIV, self, other)
    def __rtruediv__(self, other): return binary(TRUEDIV, other, self)
    def __itruediv__(self, other): return binary(ITRUEDIV, self, other)
    def __floordiv__(self, other): return binary(FLOORDIV, self, other)
    def __rfloordiv__(self, other): return binary(FLOORDIV, other, self)
    def __ifloordiv__(self, other): return binary(IFLOORDIV, self, other)
    def __mod__(self, other): return binary(MOD, self, other)
    def __rmod__(self, other): return binary(MOD, other, self)
    def __imod__(self, other): return binary(IMOD, self, other)
    def __divmod__(self, other): return divide_with_remainder(self, other)
    def __rdivmod__(self, other): return divide_with_remainder(other, self)
    def __pow__(self, other, modulus): return NotImplemented if modulus is not None else binary(POW, self, other)
    def __rpow__(self, other, modulus): return NotImplemented if modulus is not None else binary(POW, other, self)
    def __ipow__(self, other): return binary(IPOW, self, other)
    def __matmul__(self, other): return binary(MATMUL, self, other)
    def __rmatmul__(self, other): return binary(MATMUL, other, self)
    def __and__(self, other): return binary(AND, self, other)
    def __rand__(self, other): return binary(AND, other, self)
    def __iand__(self, other): return binary(IAND, self, other)
    def __or__(self, other): return binary(OR, self, other)
    def __ror__(self, other): return binary(OR, other, self)
    def __ior__(self, other): return binary(IOR, self, other)
    def __xor__(self, other): return binary(XOR, self, other)
    def __rxor__(self, other): return binary(XOR, other, self)
    def __ixor__(self, other): return binary(IXOR, self, other)
    def __lshift__(self, other): return binary(LSHIFT, self, other)
    def __rlshift__(self, other): return binary(LSHIFT, other, self)
    def __ilshift__(self, other): return binary(ILSHIFT, self, other)
    def __rshift__(self, other): return binary(RSHIFT, self, other)
    def __rrshift__(self, other): return binary(RSHIFT, other, self)
    def __irshift__(self, other): return binary(IRSHIFT, self, other)
    def __neg__(self): return unary(NEG, self)
    def __pos__(self): return unary(POS, self)
    def __abs__(self): return unary(ABS, self)
    def __invert__(self): return unary(INVERT, self)
    def __lt__(self, other): return binary(LT, self, other)
    def __le__(self, other): return binary(LE, self, other)
    def __eq__(self, other): return binary(EQ, self, other)
    def __ne__(self, other): return binary(NE, self, other)
    def __gt__(self, other): return binary(GT, self, other)
    def __ge__(self, other): return binary(GE, self, other)

    def __hash__(self):
        return object.__hash__(self)

    def __getitem__(self, key):
        refuse_lists(key)
        return call_method(GETITEM if is_basic_key(key) else INDEX, self, key, NULL)

    def __setitem__(self, key, value):
        cdef bint is_basic
        refuse_lists(key)
        is_basic = is_basic_key(key)
        if is_basic and isinstance(value, Tensor) and self.memory is not None and (
                (<Tensor>value).memory is not None and counter_of(<Tensor>value) is counter_of(self)):
            python_side["write_own_view"](self, key, value)
        else:
            call_method(SETITEM if is_basic else INDEX_PUT, self, key, <PyObject*>value)

    def __len__(self):
        return len(self.array)

    def __iter__(self):
        if self.array.ndim == 0:
            raise TypeError("iteration over a 0-d Tensor")
        return (self[i] for i in range(len(self.array)))

    def __contains__(self, value):
        check_concrete(self, "a truth value")
        equal = self == value
        return isinstance(equal, Tensor) and bool(number_of(equal.any()))

    def __bool__(self):
        check_concrete(self, "bool()")
        return bool(number_of(self))

    def __int__(self):
        check_concrete(self, "int()")
        return int(number_of(self))

    def __float__(self):
        check_concrete(self, "float()")
        refuse_constant(self, "float()")
        return float(number_of(self))

    def __complex__(self):
        check_concrete(self, "complex()")
        refuse_constant(self, "complex()")
        return complex(number_of(self))

    def __index__(self):
        check_concrete(self, "an index")
        refuse_constant(self, "an index")
        return as_index(number_of(self))

    def __repr__(self):
        return python_side["tensor_repr"](self)

    def __str__(self):
        return python_side["tensor_str"](self)


cdef int fill_tensor(Tensor tensor, array, uint64_t word) except -1:
    if is_numpy_scalar(array):
        array = array_of_scalar(array)
    tensor.array = array
    tensor.word = word | TENSOR_FLAG | (AUTOGRAD_BIT if word & DENSE_BIT else AUTOGRAD_OTHER_BIT)
    return 0


cdef object float64_dtype = numpy.dtype("float64")
cdef object float64_scalar = numpy.float64
cdef PyObject* FLOAT64 = <PyObject*>float64_dtype
cdef PyTypeObject* FLOAT64_SCALAR = <PyTypeObject*><PyObject*>float64_scalar


cdef object array_of_double(double value):
    """A new 0-d array."""
    Py_INCREF(<object>FLOAT64)
    array = PyArray_NewFromDescr(&PyArray_Type, FLOAT64, 0, NULL, NULL, NULL, 0, NULL)
    (<double*>PyArray_DATA(<PyArrayObject*><PyObject*>array))[0] = value
    return array


cdef inline object array_of_scalar(value):
    """A new 0-d array of a NumPy scalar."""
    if Py_TYPE(<PyObject*>value) == FLOAT64_SCALAR:     # which is a Python float too
        return array_of_double(PyFloat_AS_DOUBLE(<PyObject*>value))
    return PyArray_FromScalar(value, NULL)


cdef PyTypeObject* TENSOR_TYPE = <PyTypeObject*>Tensor
cdef PyTypeObject* GRAD_TYPE = <PyTypeObject*>GradTensor
cdef PyTypeObject* LEVEL_TYPE = <PyTypeObject*>LevelTensor
cdef PyTypeObject* BATCHED_TYPE = <PyTypeObject*>BatchedTensor
cdef PyTypeObject* JVP_TYPE = <PyTypeObject*>JvpTensor
cdef tuple NO_ARGUMENTS = ()


cdef Tensor wrap(array):
    cdef Tensor tensor = Tensor.__new__(Tensor)
    if isinstance(array, Shell):
        raise DispatchTypeError("a Shell, which has no data, was to be the value of a plain Tensor\n"
                                "return a Tensor of the class that knows what it stands for")
    fill_tensor(tensor, array, word_of_array(<PyObject*>array))
    return tensor


cdef inline PyObject* wrap_ndarray(PyObject* array) except NULL:
    """A new Tensor of an exact ndarray; both are references that are handed over."""
    cdef PyObject* tensor = new_or_null(TENSOR_TYPE, <PyObject*>NO_ARGUMENTS)
    if tensor == NULL:
        Py_DECREF(array)
        return NULL
    (<Tensor>tensor).array = <object>array
    Py_DECREF(array)
    (<Tensor>tensor).word = CPU_WORD | AUTOGRAD_BIT | TENSOR_FLAG
    return tensor


cdef inline long long writes_to(Memory memory) noexcept:
    return memory.writes if memory.source is None else memory.source.writes


cdef long long total_writes(Tensor tensor) noexcept:
    """The writes at this level and, for a wrapper, those at the levels below."""
    cdef long long total = 0 if tensor.memory is None else writes_to(tensor.memory)
    if tensor.word & WRAPPER_FLAG and isinstance(tensor.array, Tensor):
        total += total_writes(<Tensor>tensor.array)
    return total


cdef Memory memory_of(Tensor tensor):
    if tensor.memory is None:
        tensor.memory = Memory.__new__(Memory)
    return tensor.memory


cdef Memory counter_of(Tensor tensor):
    """Where the writes are counted, and nothing else is known."""
    cdef Memory memory = memory_of(tensor)
    return memory if memory.source is None else memory.source


cdef Memory memory_of_detached(Tensor tensor):
    """Writes are counted together with those to `tensor`, but gradients go their own way."""
    cdef Memory detached = Memory.__new__(Memory)
    detached.source = counter_of(tensor)
    return detached


cdef int share_memory(Tensor view, Tensor source) except -1:
    """Make `view` one of the views of the memory of `source`."""
    cdef Memory memory = memory_of(source)
    if memory.array is None:
        # another object: nodes that saved a result count its writes in the first, and must not be led back to by it
        source.memory = memory = memory_of_detached(source)
        memory.array = raw_array(source)
        memory.edge = (<JvpTensor>source).tangent if isinstance(source, JvpTensor) else source.edge
        memory.is_leaf = is_leaf_edge(source.edge)
    view.memory = memory
    counter_of(view).half_swap = None
    source.word |= SHARED_FLAG
    view.word |= SHARED_FLAG | (source.word & INFERENCE_FLAG)
    return 0


cdef int count_write(Tensor tensor) except -1:
    cdef Memory memory = memory_of(tensor)
    if memory.source is not None:
        memory = memory.source
    memory.writes += 1
    return 0


def take_half_swap(Tensor tensor not None):
    """What the last write has noted, if nothing was written since and no view was made; it is forgotten."""
    cdef Memory counter = counter_of(tensor)
    noted, counter.half_swap = counter.half_swap, None
    return noted[1] if noted is not None and noted[0] == counter.writes else None


def note_half_swap(Tensor tensor not None, noted):
    """Keep something until the memory is written to, or another view of it is made."""
    cdef Memory counter = counter_of(tensor)
    counter.half_swap = (counter.writes, noted)


def has_other_views(Tensor tensor not None):
    """Does somebody else than this Tensor and one other have a view of its memory?"""
    return tensor.memory is not None and reference_count(<PyObject*>tensor.memory) > 2


cdef PyObject* bottom_of(Tensor tensor) except NULL:
    """The array at the bottom of all levels, which the Tensor keeps: where the value lies in memory, or would."""
    cdef PyObject* value = <PyObject*>tensor
    while is_tensor_type(Py_TYPE(value)):
        if Py_TYPE(value) == LEVEL_TYPE and (<LevelTensor>value).layout is not None:
            return <PyObject*>(<LevelTensor>value).layout
        if Py_TYPE(value) == BATCHED_TYPE:
            return layout_of(<BatchedTensor>value)
        value = <PyObject*>(<Tensor>value).array
    return value


cdef object memory_owner(value):
    """The object that the memory of an array of any level belongs to."""
    cdef PyObject* array = <PyObject*>value
    while is_tensor_type(Py_TYPE(array)):
        if Py_TYPE(array) == LEVEL_TYPE and (<LevelTensor>array).layout is not None:
            array = <PyObject*>(<LevelTensor>array).layout
        else:
            array = <PyObject*>(<Tensor>array).array
    return owner_of(<object>array)


cdef inline object raw_array(Tensor tensor):
    return <object>bottom_of(tensor)


cdef object owner_of(array):
    """The object at the end of the chain of `base`: two arrays with the same owner may share memory."""
    cdef PyObject* base
    while True:
        if Py_TYPE(<PyObject*>array) == &PyArray_Type:
            base = PyArray_BASE(<PyArrayObject*>array)
            if base == NULL:
                return array
            array = <object>base
        else:
            outer = getattr(array, "base", None)
            if outer is None:
                return array
            array = outer


@cython.binding(True)        # a method of Tensor
def detach(Tensor tensor):
    """The same values as a constant for every level: shares memory, and the count of writes to it."""
    if state_now().substitute is not None:
        tensor = live_value(tensor)
    return detached(tensor)


cdef object detached(Tensor tensor):
    if is_handled(tensor):
        return python_side["detach"](tensor)
    if Py_TYPE(<PyObject*>tensor) == TENSOR_TYPE:
        return Tensor(tensor)
    if not isinstance(tensor, Wrapper):
        return python_side["detached_subclass"](tensor)
    return wrap_at((<Wrapper>tensor).interpreter, detached_value(tensor.array), None)


cdef object detached_value(value):
    return detached(value) if isinstance(value, Tensor) else value


cdef enum:
    ADD, IADD, SUB, ISUB, MUL, IMUL, TRUEDIV, ITRUEDIV, FLOORDIV, IFLOORDIV, MOD, IMOD, POW, IPOW, MATMUL
    AND, IAND, OR, IOR, XOR, IXOR, LSHIFT, ILSHIFT, RSHIFT, IRSHIFT
    NEG, POS, ABS, INVERT, LT, LE, EQ, NE, GT, GE, GETITEM, INDEX, SETITEM, INDEX_PUT
    N_SPECIAL_METHODS

SPECIAL_METHODS = (
    "add", "iadd", "sub", "isub", "mul", "imul", "truediv", "itruediv", "floordiv", "ifloordiv", "mod", "imod",
    "pow", "ipow", "matmul", "and", "iand", "or", "ior", "xor", "ixor", "lshift", "ilshift", "rshift", "irshift",
    "neg", "pos", "abs", "invert", "lt", "le", "eq", "ne", "gt", "ge", "getitem", "index", "setitem", "index_put",
)
cdef list special_methods = [None] * N_SPECIAL_METHODS


def set_special_methods(**operators):
    """Say which operator stands behind each operator of the language, by the names in SPECIAL_METHODS."""
    for name, operator in operators.items():
        special_methods[SPECIAL_METHODS.index(name)] = operator


cdef dict universal_functions = {}      # of NumPy's: the operator that each is


def set_universal_functions(dict operators not None):
    """Say which operator is called where one of NumPy's universal functions is called with a Tensor."""
    universal_functions.update(operators)


def extend(type cls, **attributes):
    """Add attributes to an extension type, whose namespace Python code cannot write to."""
    namespace = <dict>(<vectorcallable*>cls).tp_dict
    namespace.update(attributes)
    PyType_Modified(<PyTypeObject*>cls)


cdef inline bint is_operand(PyObject* value) except -1:
    return (Py_TYPE(value) == TENSOR_TYPE or Py_TYPE(value) == &PyArray_Type or Py_TYPE(value) == &PyFloat_Type
            or is_other_operand(value))


cdef bint is_other_operand(PyObject* value) except -1:
    # sequences are let through, so that the operator says that lists are not arrays; so are Tensors never initialised
    return (word_of_array(value) != 0 or is_scalar_type(Py_TYPE(value)) or is_tensor_type(Py_TYPE(value))
            or isinstance(<object>value, (int, float, complex, list, tuple)))


cdef inline object binary(int method, left, right):
    if not is_operand(<PyObject*>left) or not is_operand(<PyObject*>right):
        return NotImplemented
    return call_method(method, left, right, NULL)


cdef inline object call_method(int method, first, second, PyObject* third):
    """Call the operator behind one of the language, of two or three arguments."""
    cdef PyObject* args[4]
    args[1] = <PyObject*>first
    args[2] = <PyObject*>second
    args[3] = third
    return own(PyObject_Vectorcall(<PyObject*>special_methods[method], &args[1],
                                   (2 if third == NULL else 3) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))


cdef inline object unary(int method, value):
    cdef PyObject* args[2]
    args[1] = <PyObject*>value
    return own(PyObject_Vectorcall(<PyObject*>special_methods[method], &args[1], 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))


cdef object divide_with_remainder(left, right):
    quotient = binary(FLOORDIV, left, right)
    return quotient if quotient is NotImplemented else (quotient, binary(MOD, left, right))


cdef int refuse_lists(key) except -1:
    if isinstance(key, tuple):
        for item in <tuple>key:
            refuse_list(item)
        return 0
    return refuse_list(key)


cdef inline int refuse_list(item) except -1:
    if isinstance(item, list):
        raise DispatchTypeError(
            f"a Tensor was indexed with the list {item!r}; lists are not arrays\nwrite tensor[np.array({item!r})]"
        )
    return 0


cdef bint is_basic_key(key) except -1:
    """Does NumPy call this basic indexing: integers, slices, None and Ellipsis?"""
    if isinstance(key, tuple):
        for item in <tuple>key:
            if not is_basic_key_item(item):
                return False
        return True
    return is_basic_key_item(key)


cdef inline bint is_basic_key_item(item) except -1:
    if is_basic_item(<PyObject*>item) or isinstance(item, slice):
        return True
    if isinstance(item, (int, numpy_integer)):
        return not isinstance(item, bool)
    return not word_of_array(<PyObject*>item) and hasattr(item, "__index__")


cdef inline bint is_basic_item(PyObject* item) noexcept:
    """The same for exact types; the quick yes."""
    cdef PyTypeObject* cls = Py_TYPE(item)
    return cls == &PyLong_Type or cls == &PySlice_Type or item == Py_None or item == Py_Ellipsis


cdef object as_index = operator.index
cdef object numpy_generic = numpy.generic
cdef object numpy_integer = numpy.integer
cdef object numpy_asarray = numpy.asarray


# --- ambient state ---------------------------------------------------------------------------------------------------

@cython.final
@cython.freelist(64)
cdef class Entry:
    """One place in the stack of transforms and modes."""


@cython.final
@cython.trashcan(True)
cdef class State:
    """One node of the ambient state: what one guard changed, on top of its parent. Immutable."""

    def derive(self, guard, *, DispatchKeySet added=None, removed=(), bint replace=False, tracer=None,
               str default_backend=None, grad=None, forward=None, inference=None,
               anomaly=None, checks_nan=None, saved_hooks=None, bint without_modes=False):
        """The state inside `guard`. `removed` holds slots; `replace` forgets what the parents added and removed."""
        cdef State new = copy_of_state(self)
        cdef int slot, backends
        cdef uint64_t word
        new.parent = self
        new.guard = guard
        if replace:
            new.added = 0
            memset(new.removed, 0, sizeof(new.removed))
        if added is not None:
            new.added |= added.word
        for slot in removed:
            word = slot_words[slot]
            for backends in range(N_BACKENDS + 1):
                if not word & PER_BACKEND_BITS or word & BACKEND_BITS == backend_of_length(backends):
                    new.removed[backends] |= word & FUNCTIONALITY_BITS
        if tracer is not None:
            new.tracer = tracer
        if default_backend is not None:
            new.default_backend = default_backend
        if grad is not None:
            new.grad = grad
        if forward is not None:
            new.forward = forward
        if inference is not None:
            new.inference = inference
        if anomaly is not None:
            new.anomaly = anomaly
        if checks_nan is not None:
            new.checks_nan = checks_nan
        if saved_hooks is not None:
            new.saved_hooks = saved_hooks
        if without_modes:
            mute_modes(new)
        settle_plainness(new)
        return new

    @property
    def stack(self):
        """The transforms and modes that are active, innermost first."""
        cdef Entry entry = self.entry
        cdef list levels = []
        while entry is not None:
            if not is_muted(self, entry):
                levels.append(entry.level)
            entry = entry.outer
        return tuple(levels)

    @property
    def included(self):
        """The keys added to every call."""
        return keyset(self.added)

    @property
    def excluded(self):
        """The keys taken from every call, as a tuple of runtime keys."""
        return tuple(key for slot, key in enumerate(slot_keys) if key is not None and excludes_slot(self, slot))


cdef State copy_of_state(State state):
    cdef State new = State.__new__(State)
    new.entry = state.entry
    new.top = state.top
    new.muted = state.muted
    new.call_state = state.call_state
    new.added = state.added
    new.removed = state.removed
    new.plain = state.plain
    new.grad = state.grad
    new.forward = state.forward
    new.inference = state.inference
    new.anomaly = state.anomaly
    new.checks_nan = state.checks_nan
    new.saved_hooks = state.saved_hooks
    new.tracer = state.tracer
    new.substitute = state.substitute
    new.derives = state.derives
    new.default_backend = state.default_backend
    return new


cdef void settle_plainness(State state) noexcept:
    cdef int backends
    cdef uint64_t removed = 0
    for backends in range(N_BACKENDS + 1):
        removed |= state.removed[backends]
    state.plain = state.top is None and state.tracer is None and state.substitute is None and not state.inference and state.added == BACKEND_SELECT_BIT and removed == 0


cdef State lowered_state(State state):
    """The same without the innermost entry; what a transform had switched on for itself is as it was around it."""
    cdef State new = state.lowered
    if new is None:
        new = copy_of_state(state)
        set_entry(new, state.entry.outer)
        if state.substitute is not None and not isinstance(state.top, ActiveMode):
            new.substitute = SubstituteBelow(state.substitute, state.top)
        if isinstance(state.top, Grad):
            new.grad = state.grad and state.top.entered.grad
        if isinstance(state.top, Jvp):
            new.forward = state.forward and state.top.entered.forward
        settle_plainness(new)
        state.lowered = new
    return new


cdef State with_tape(State state, bint on):
    """The same with the tape on, or off."""
    cdef State new
    if state.grad == on:
        return state
    new = state.recording if on else state.silent
    if new is None:
        new = copy_of_state(state)
        new.parent = state.parent
        new.guard = state.guard
        new.grad = on
        if on:
            state.recording = new
        else:
            state.silent = new
    return new


cdef inline uint64_t backend_of_length(Py_ssize_t length) noexcept:
    """The bit of the highest of backends whose bit length this is; 0 for none."""
    return ((<uint64_t>1) << length) >> 1


cdef bint excludes_slot(State state, Py_ssize_t slot) except -1:
    cdef uint64_t word = slot_words[slot]
    return state.removed[bit_length16(word & BACKEND_BITS)] & word & FUNCTIONALITY_BITS != 0


cdef State root = State.__new__(State)
root.added = BACKEND_SELECT_BIT
memset(root.removed, 0, sizeof(root.removed))
root.default_backend = "CPU"
root.plain = True
root.grad = True
root.forward = True
cdef PyObject* ambient = PyContextVar_New(b"pydispatch.state", <PyObject*>root)

# Inside one operator call the state changes without the context variable, which is slow to write: a cell per thread,
# pushed and popped within one C function, holds for code that runs in the context in which it was pushed. That is our own
# code alone. Code of users may copy the context, and what runs in the copy, in another thread maybe, has to find the state
# that it was copied in; so before a handler, a kernel or a hook of theirs runs, the state goes to the variable (`show`).

cdef extern from *:
    """
    typedef struct { PyObject* context; PyObject* state; } Cell;
    #if defined(_MSC_VER)
    static __declspec(thread) Cell cell = {NULL, NULL};
    #else
    static __thread Cell cell __attribute__((tls_model("initial-exec"))) = {NULL, NULL};
    #endif
    #define context_now() (PyThreadState_GET()->context)
    """
    ctypedef struct Cell:
        PyObject* context
        PyObject* state
    Cell cell
    PyObject* context_now() noexcept


cdef inline PyObject* borrowed_state() noexcept:
    """The ambient state; whoever holds it now goes on holding it until the state is changed."""
    cdef PyObject* state
    if cell.state != NULL and cell.context == context_now():
        return cell.state
    state = state_of_context()
    if (<State>state).instead is not None and <PyObject*>(<State>state).instead_in == context_now():
        return <PyObject*>(<State>state).instead
    return state


cdef inline State state_now():
    return <State>borrowed_state()


cdef int set_state(State state) except -1:
    if not set_in_cell(state):
        forget_shown(state_now())
        write_or_raise(state)
    return 0


cdef inline bint set_in_cell(State state) noexcept:
    cdef PyObject* old = cell.state
    if old == NULL or cell.context != context_now():
        return False
    cell.state = give(state)
    Py_DECREF(old)
    return True


cdef bint set_in_context(State state) noexcept:
    """No: there is no memory for that."""
    cdef PyObject* token = set_quietly(ambient, <PyObject*>state)
    if token != NULL:
        Py_DECREF(token)
        return True
    PyErr_Clear()
    return state_of_context() == <PyObject*>state       # where there was none for the token only


cdef void leave_for(State state) noexcept:
    """Set the state around what is left."""
    if not set_in_cell(state):
        forget_shown(state_now())
        put_back_in_context(state)


cdef void put_back_in_context(State state) noexcept:
    """Where there is no memory for that, the one in the context refers to it."""
    cdef State inner
    if not set_in_context(state):
        inner = <State>state_of_context()
        inner.instead = state
        inner.instead_in = <object>context_now()


cdef inline PyObject* state_of_context() noexcept:
    cdef PyObject* state
    PyContextVar_Get(ambient, NULL, &state)
    Py_DECREF(state)
    return state


# Writing the variable makes a new mapping of all variables of the context, in 100 ns. It is kept beside the state that was
# there, and put in force again where that is still the context's mapping.

cdef extern from *:
    """
    typedef struct { PyObject_HEAD PyObject* previous; PyObject* variables; } LaidOutContext;     /* checked below */
    #define variables_at(context) (&((LaidOutContext*)(context))->variables)
    #define version_at_hand() (&PyThreadState_GET()->context_ver)
    """
    PyObject** variables_at(PyObject* context) noexcept
    uint64_t* version_at_hand() noexcept        # of what context variables remember of their values

cdef object some_context = contextvars.Context()     # a copy of the current one would make one where there is none
cdef bint are_contexts_known = any(
    type(value).__name__ == "hamt" and <PyObject*>value == variables_at(<PyObject*>some_context)[0]
    for value in gc.get_referents(some_context))


cdef struct Shown:          # what there was before
    Cell cell
    PyObject* value         # of the variable; owned
    PyObject* variables     # the context's mapping, or NULL; owned
    PyObject* shown         # the one in its place; owned


cdef int show(Shown* around, State state) except -1:
    """Make this the state, in the context variable; `hide` is to follow."""
    PyContextVar_Get(ambient, NULL, &around.value)
    around.variables = around.shown = NULL
    if around.value != <PyObject*>state:
        try:
            write_variable(around, <State>around.value, state)
        except:
            Py_XDECREF(around.variables)
            Py_DECREF(around.value)
            raise
    around.cell = cell
    cell.context = cell.state = NULL
    return 0


cdef int write_or_raise(State state) except -1:
    if not set_in_context(state):
        raise MemoryError
    return 0


cdef int write_variable(Shown* around, State before, State state) except -1:
    cdef PyObject* context = context_now()
    cdef PyObject** place
    if context == NULL or not are_contexts_known:
        write_or_raise(state)
        return 0
    place = variables_at(context)
    if before.shown == <PyObject*>state and <PyObject*>before.variables == place[0]:
        around.variables = place[0]
        place[0] = give(before.shown_variables)
        version_at_hand()[0] += 1
    else:
        around.variables = give(<object>place[0])
        write_or_raise(state)
        before.variables = <object>around.variables
        before.shown_variables = <object>place[0]
        before.shown = <PyObject*>state
    around.shown = give(<object>place[0])
    return 0


cdef void hide(Shown* around) noexcept:
    """What was the state before `show` is the state again. Guards that were not left meanwhile are dropped."""
    global cell
    cdef PyObject* value
    cdef PyObject** place
    cell = around.cell
    if around.variables != NULL:
        place = variables_at(context_now())
        if place[0] == around.shown:
            place[0] = around.variables
            version_at_hand()[0] += 1
            Py_DECREF(around.shown)     # the context's reference
            Py_DECREF(around.shown)
            Py_DECREF(around.value)
            return
        Py_DECREF(around.variables)
        Py_DECREF(around.shown)
    PyContextVar_Get(ambient, NULL, &value)
    Py_DECREF(value)
    if value != around.value:
        put_back_in_context(<State>around.value)
    Py_DECREF(around.value)


cdef void forget_shown(State state) noexcept:
    """Let go of the mappings beside a state that is left: they hold it."""
    cdef State shown
    while state.shown != NULL:
        shown = <State>state.shown
        state.shown = NULL
        state.variables = state.shown_variables = None
        state = shown


cdef int show_deeper(Shown* around, State state) except -1:
    """The same as `show` for a call inside of a call, which counts."""
    show(around, state)
    try:
        enter_recursive_call()
    except:
        hide(around)
        raise
    return 0


cdef inline void hide_deeper(Shown* around) noexcept:
    """After `show_deeper`."""
    hide(around)
    leave_recursive_call()


cdef object call_shown(function, tuple args):
    """Call a function of users, where a cell may be in force."""
    cdef Shown around
    if cell.state == NULL:
        return function(*args)
    show(&around, state_now())
    try:
        return function(*args)
    finally:
        hide(&around)


cdef int push_cell(Cell* around, State state) except -1:
    make_context()
    put_cell(around, state)
    return 0


cdef inline int go_deeper(Cell* around, State state) except -1:
    """The same for a call inside of a call, which counts; all that can fail comes before anything is changed."""
    make_context()
    enter_recursive_call()
    put_cell(around, state)
    return 0


cdef inline int make_context() except -1:
    """Threads begin without a context of their own."""
    if context_now() == NULL:
        write_or_raise(state_now())
    return 0


cdef inline void put_cell(Cell* around, State state) noexcept:
    around[0] = cell
    cell.context = context_now()
    cell.state = give(state)


cdef void pop_cell(Cell* around) noexcept:
    cdef PyObject* old = cell.state
    cell.context = around.context
    cell.state = around.state
    Py_XDECREF(old)


cdef inline void come_back(Cell* around) noexcept:
    """After `go_deeper`."""
    pop_cell(around)
    leave_recursive_call()


def current_state():
    """The ambient state of this context."""
    return state_now()


def trace_from_start(tracer):
    """Install a tracer in the state that every context starts from; before the first call, which may be remembered."""
    root.tracer = tracer
    settle_plainness(root)


# Python looks for signals when it calls a function that is written in Python, and when that goes on after a call. What
# enters and leaves a `with` block is therefore written in C: no KeyboardInterrupt comes between the two and the block.

cdef class Guard:
    """A change of the ambient state: a context manager."""

    def __init__(self, str text, **changes):
        self.text = text
        self.changes = changes

    cpdef State inside(self, State state):
        """The state inside, for the one around; may refuse, by raising."""
        return state.derive(self, **self.changes)

    def __enter__(self):
        set_state(self.inside(state_now()))
        return self

    def __exit__(self, kind, error, trace):
        leave(self)

    def __repr__(self):
        return self.text


cdef class Switch(Guard):
    """A guard that switches `what` at once, for the rest of the surrounding block, until it is entered."""

    what = "grad"

    def __init__(self, mode):
        self.text = f"{type(self).__name__}({mode})"
        self.changes = changes = {self.what: bool(mode)}
        self.around = state_now()
        self.switched = beside(self.around, changes)
        set_state(self.switched)

    cdef State take_back(self, State state):
        """The state without what was switched when this was made."""
        if self.around is not None:
            if state is self.switched:
                state = self.around
            else:
                state = beside(state, {name: getattr(self.around, name) for name in self.changes})
            self.around = self.switched = None
        return state

    def hold(self):
        """From here on change nothing but in a `with` block."""
        set_state(self.take_back(state_now()))

    cpdef State inside(self, State state):
        """The state inside."""
        return self.take_back(state).derive(self, **self.changes)


cdef void (*dealloc_of_switch)(PyObject*) noexcept


cdef void drop_switch(PyObject* switch) noexcept:
    """Whom an interrupt hits between making and entering has switched nothing. Cython's own __dealloc__ sees no error."""
    cdef PyObject* kind
    cdef PyObject* error
    cdef PyObject* trace
    if PyErr_Occurred() != NULL and (<Switch>switch).around is not None:
        PyErr_Fetch(&kind, &error, &trace)
        if borrowed_state() == <PyObject*>(<Switch>switch).switched:
            set_state((<Switch>switch).around)
        PyErr_Restore(kind, error, trace)
    dealloc_of_switch(switch)


cdef int put_in_dealloc(type cls) except -1:
    global dealloc_of_switch
    cdef vectorcallable* slots = <vectorcallable*>cls
    dealloc_of_switch = slots.tp_dealloc
    slots.tp_dealloc = drop_switch
    return 0

put_in_dealloc(Switch)


cdef State beside(State state, dict changes):
    """The state with these changes, in the same block."""
    cdef State new = state.derive(state.guard, **changes)
    new.parent = state.parent
    return new


cdef class Setting:
    """A context variable has another value in a `with` block; `shown` is what comes after `as`."""

    def __init__(self, variable, value, shown=None):
        self.variable = variable
        self.value = value
        self.shown = shown

    def __enter__(self):
        self.token = self.variable.set(self.value)
        return self.shown

    def __exit__(self, kind, error, trace):
        self.variable.reset(self.token)


cdef int leave(guard) except -1:
    """Take the innermost entry of a guard, or of a mode's ActiveMode, out of the ambient state.

    When other guards were entered after it, exactly this entry is taken out and StateOrderError is raised.
    """
    cdef State state = state_now()
    cdef list later = None          # to leave in order takes no memory
    while state.parent is not None and state.guard is not guard:
        later = keep_in(later, state.guard)
        state = state.parent
    if state.parent is None:
        raise StateOrderError(
            f"{guard!r} was left in a context in which it was not entered\n"
            "enter and leave a guard in the same thread or task; do not hold one across the yield of a generator"
        )
    state = state.parent
    if later is not None:
        for other in reversed(later):
            state = (state_at_level(other, state) if isinstance(other, Interpreter)
                     else state.derive(other, **other.changes))
    leave_for(state)
    if later is not None:
        raise StateOrderError(
            f"{guard!r} was left while {later[0]!r}, entered after it, is still active; only its own entry was removed\n"
            "leave guards in the reverse order of entering: nest `with` statements"
        )
    return 0


# --- signatures ------------------------------------------------------------------------------------------------------

cdef enum:
    OTHER = 0           # converted in Python
    ARRAY = 1
    INT = 2
    FLOAT = 3
    BOOL = 4
    STR = 5
    ANYTHING = 6
    INTS = 7            # a tuple of them; shapes and axes
    ARRAYS = 8
    SCALAR = 9
    NUMPY_DTYPE = 10
    KIND = 15           # the bits of these; beside them are
    OPTIONAL = 16
    WRITTEN = 32        # an array that is written to, which a number is not

cdef dict kinds = {
    "Tensor": ARRAY, "int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "Any": ANYTHING | OPTIONAL,
    "Tensor?": ARRAY | OPTIONAL, "int?": INT | OPTIONAL, "float?": FLOAT | OPTIONAL, "bool?": BOOL | OPTIONAL,
    "str?": STR | OPTIONAL, "int[]": INTS, "int[]?": INTS | OPTIONAL, "Tensor[]": ARRAYS,
    "Scalar": SCALAR, "Scalar?": SCALAR | OPTIONAL, "ScalarType": NUMPY_DTYPE, "ScalarType?": NUMPY_DTYPE | OPTIONAL,
}


@cython.final
cdef class Signature:
    """A schema laid out for the call path."""

    def __cinit__(self, schema):
        cdef Py_ssize_t i
        arguments = schema.arguments
        if len(arguments) > MAX_ARGUMENTS:
            raise ValueError(f"at most {MAX_ARGUMENTS} arguments")
        self.schema = schema
        self.n_arguments = len(arguments)
        self.n_positional = sum(1 for argument in arguments if not argument.kw_only)
        self.names = tuple(sys.intern(argument.name) for argument in arguments)
        self.single_names = tuple((name,) for name in self.names)
        self.defaults = tuple(argument.default if argument.has_default else None for argument in arguments)
        self.converters = tuple(argument.convert for argument in arguments)
        self.sizes = tuple(argument.size or 0 for argument in arguments)
        self.device = -1
        for i, argument in enumerate(arguments):
            text = str(argument.type)
            self.kind[i] = kinds.get(text, OPTIONAL if text.endswith("?") else OTHER)
            if self.device < 0 and text in ("Device", "Device?"):
                self.device = i
            if not argument.has_default:
                self.required |= bit(i)
            if argument.type.contains_arrays:
                self.arrays |= bit(i)
                if self.kind[i] & KIND != ARRAY:
                    self.lists = True
            if argument.mutable:
                self.mutable |= bit(i)
                self.kind[i] |= WRITTEN
        returns = schema.returns
        self.n_returns = len(returns)
        self.return_converters = tuple(result.convert for result in returns)
        self.return_is_tensor = tuple(str(result.type) in ("Tensor", "Tensor?") for result in returns)
        self.return_is_list = tuple(str(result.type) == "Tensor[]" for result in returns)
        self.return_arrays = tuple(result.type.contains_arrays for result in returns)
        self.return_source = tuple(mutated_argument(arguments, result) for result in returns)
        self.return_views = tuple(aliased_arguments(arguments, result) for result in returns)
        self.detaches = str(schema.name) == "np::detach"
        self.view_of = -1
        if len(returns) == 1 and str(returns[0].type) == "Tensor" and len(self.return_views[0]) == 1 and not self.detaches:
            i = self.return_views[0][0]
            self.view_of = i if self.kind[i] & ~WRITTEN == ARRAY and self.return_source[0] == -1 else -1
        self.returns_fresh_tensor = (len(returns) == 1 and str(returns[0].type) == "Tensor"
                                     and self.return_source[0] == -1 and not self.return_views[0])

    @property
    def array_arguments(self):
        """Names of the arguments that bring keys."""
        return tuple(name for i, name in enumerate(self.names) if self.arrays & bit(i))


cdef inline uint64_t bit(Py_ssize_t i) noexcept:
    return (<uint64_t>1) << i


def mutated_argument(arguments, result):
    """The position of the mutable argument that a result is, by its alias set; -1 if it is none."""
    if result.mutable:
        for i, argument in enumerate(arguments):
            if argument.mutable and alias_sets(argument.alias) & alias_sets(result.alias):
                return i
    return -1


def aliased_arguments(arguments, result):
    """The positions of the arguments whose memory a result may share, by its alias set."""
    if result.alias is None or result.mutable:
        return ()
    sets = alias_sets(result.alias)
    return tuple(
        i for i, argument in enumerate(arguments)
        if argument.type.contains_arrays
        and ("*" in sets or alias_sets(argument.alias) & sets or "*" in alias_sets(argument.alias))
    )


def alias_sets(alias):
    """The sets that a value, or what it contains, belongs to before or after the call."""
    if alias is None:
        return frozenset()
    return alias.before | alias.after | alias_sets(alias.contained)


# --- tables ----------------------------------------------------------------------------------------------------------

cdef enum:      # how a kernel is called
    RAW = 1             # arrays are unwrapped first
    TAKES_KEYSET = 2
    TAKES_OPERATOR = 4
    BOXED = 8
    FALLTHROUGH = 16    # never called
    ASKS_DEVICE = 32    # runs only when no argument brings a backend, or the schema has a device
    COUNTS_DEPTH = 64   # CPython counts the depth of recursion when it calls such an object
    FRESH = 128         # its results must not share memory with its arguments, which is looked after
    HANDLERS = 256      # stands for the handlers of the arguments' classes
    COMPOSITE = 512     # is made of other operators, which every level sees
    FOREIGN = 1024      # is not of the library, and may copy the context

CONVENTION = {
    "raw": RAW, "keyset": TAKES_KEYSET, "operator": TAKES_OPERATOR, "boxed": BOXED, "fallthrough": FALLTHROUGH,
    "asks_device": ASKS_DEVICE, "fresh": FRESH, "handlers": HANDLERS,
    "composite": COMPOSITE, "foreign": FOREIGN,
}


cdef tuple SELF_COUNTING = (types.FunctionType, types.BuiltinFunctionType) if sys.version_info < (3, 12) or (
    sys.version_info >= (3, 14)) else (types.FunctionType,)


@cython.final
cdef class TableEntry:
    """How one operator calls one kernel: the function, the calling convention, the arguments never stripped."""

    def __cinit__(self, function, *, str convention, fill, Signature signature, kernel, str label):
        cdef Py_ssize_t i
        self.function = function
        self.call = PyVectorcall_Function(<PyObject*>function)
        if self.call == NULL:
            self.call = PyObject_Vectorcall
        self.convention = COUNTS_DEPTH if type(function) in SELF_COUNTING else 0
        for word in convention.split():
            self.convention |= CONVENTION[word]
        for i, name in enumerate(signature.names):
            if name in fill:
                self.fill |= bit(i)
        self.kernel = kernel
        self.label = label
        if not signature.mutable:
            find_loop(&self.loop, function)

    @property
    def is_fallthrough(self):
        """Is this a marker that the key is to be passed over?"""
        return self.convention & FALLTHROUGH != 0

    @property
    def is_raw(self):
        """Does the kernel see raw arrays in place of Tensors?"""
        return self.convention & RAW != 0

    @property
    def is_composite(self):
        """Is it made of other operators, which every level sees in its place?"""
        return self.convention & COMPOSITE != 0

    @property
    def asks_handlers(self):
        """Does it stand for the handlers of the arguments' classes?"""
        return self.convention & HANDLERS != 0

    @property
    def asks_device(self):
        """Does it run only when no argument says the backend, or a device is asked for?"""
        return self.convention & ASKS_DEVICE != 0


@cython.final
cdef class Table:
    """What one operator does under each key: an immutable snapshot of the registrations in force."""

    def __cinit__(self, Signature signature, tuple rows, bint asks_device, rule=None, bint makes=False, dict rules=None,
                  Batching batching=None, bint draws=False):
        cdef Py_ssize_t slot, backends
        cdef TableEntry entry
        cdef uint64_t word, functionality
        self.signature = signature
        self.rows = rows
        self.rule = rule
        self.rules = rules
        self.makes = makes
        self.batching = batching
        self.draws = draws
        self.last_word = ~<uint64_t>0       # no arguments have this
        if len(rows) != N_SLOTS:
            raise ValueError(f"a table has {N_SLOTS} rows, not {len(rows)}")
        if batching is not None and batching.signature is not signature:
            raise ValueError("a way of batching is for the signature that it was made with")
        check_formulas(rule, signature)
        self.masks[0] = FUNCTIONALITY_BITS & ~PER_BACKEND_BITS
        for backends in range(1, N_BACKENDS + 1):
            self.masks[backends] = FUNCTIONALITY_BITS
        for slot in range(N_SLOTS):
            entry = rows[slot]
            self.entries[slot] = NULL if entry is None else <PyObject*>entry
            if entry is None or slot == 0:
                continue
            word = slot_words[slot]
            functionality = word & FUNCTIONALITY_BITS
            for backends in range(N_BACKENDS + 1):
                if word & PER_BACKEND_BITS and word & BACKEND_BITS != backend_of_length(backends):
                    continue
                if entry.convention & (FALLTHROUGH | HANDLERS) or (
                        entry.convention & ASKS_DEVICE and backends and not asks_device):
                    self.masks[backends] &= ~functionality
                self.asks_handlers |= entry.convention & HANDLERS != 0

    @property
    def schema(self):
        """The schema that calls are bound to."""
        return self.signature.schema

    @property
    def array_arguments(self):
        """Names of the arguments that bring keys."""
        return self.signature.array_arguments

    def mask(self, DispatchKeySet keys):
        """The keys of this set that do not fall through, given the backend of the set."""
        return keyset((keys.word & self.masks[bit_length16(keys.word & BACKEND_BITS)]) | keys.word & BACKEND_BITS)

    def masks_by_backend(self):
        """One word per bit length of the backends: the functionalities that do not fall through."""
        return tuple(self.masks[i] for i in range(N_BACKENDS + 1))

    def slot(self, DispatchKeySet keys):
        """The slot of the highest key."""
        return highest_slot(keys.word)


# --- the call path: bind ---------------------------------------------------------------------------------------------

cdef struct Frame:
    PyObject* const* values     # one per schema argument; NULL, or past the count: not passed
    Py_ssize_t count
    size_t offset_flag          # PY_VECTORCALL_ARGUMENTS_OFFSET when values[-1] may be written to
    bint direct                 # values can go to a kernel as they are: none missing, none of them a container
    PyObject* names             # NULL, or the names of keyword-only values that follow the `count` positional ones
    Py_ssize_t n_names
    uint64_t word               # union of the arguments' words
    uint64_t owned              # which of `storage` hold a reference of their own
    PyObject* kept              # what was made for the kernel, or NULL
    PyObject* original          # the state of a call that modes have declined; NULL before
    PyObject* storage[MAX_ARGUMENTS + 1]
    PyObject* raw[MAX_ARGUMENTS + 1]    # of a direct frame: the values with raw arrays in place of Tensors


cdef inline void release(Frame* frame) noexcept:
    cdef int i
    while frame.owned:
        i = highest_bit(frame.owned)
        frame.owned &= ~bit(i)
        Py_XDECREF(frame.storage[i + 1])
    Py_XDECREF(frame.kept)
    frame.kept = NULL


cdef inline bint fits(unsigned char kind, PyObject* value) noexcept:
    """Does the value need no conversion? The quick yes; a no asks the converter."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    if value == Py_None:
        return kind & OPTIONAL != 0
    if kind & KIND == ARRAY:
        return (cls == &PyArray_Type or (is_scalar_type(cls) and not kind & WRITTEN)
                or (is_tensor_type(cls) and (<Tensor>value).word))
    kind &= KIND
    if kind == INT:
        return cls == &PyLong_Type
    if kind == FLOAT:
        return cls == &PyFloat_Type
    if kind == BOOL:
        return cls == &PyBool_Type
    if kind == STR:
        return cls == &PyUnicode_Type
    if kind == INTS:
        return cls == &PyTuple_Type and are_ints(value)
    if kind == SCALAR:
        return is_scalar_type(cls)
    if kind == NUMPY_DTYPE:
        return PyArray_DescrCheck(value)
    return kind == ANYTHING and is_settled(value, False, 0)    # what holds no arrays for sure


cdef inline bint fits_as_container(unsigned char kind, PyObject* value) except -1:
    """The same for what may hold arrays."""
    kind &= KIND
    return kind == ANYTHING and is_settled(value, True, 0) or kind == ARRAYS and are_arrays(value)


cdef inline bint are_ints(PyObject* values) noexcept:
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(values)):
        if Py_TYPE(PyTuple_GET_ITEM(values, i)) != &PyLong_Type:
            return False
    return True


cdef object converted_in_c(unsigned char kind, size, PyObject* value):
    """What the converter would make of the commonest values that need one; None leaves it to that."""
    if kind == INTS and Py_TYPE(value) == &PyLong_Type and size == 1:
        return (<object>value,)
    if (kind == INTS or kind == ARRAYS) and Py_TYPE(value) == &PyList_Type:
        items = tuple(<list><object>value)
        if are_ints(<PyObject*>items) if kind == INTS else are_arrays(<PyObject*>items):
            return items
    if kind == NUMPY_DTYPE and (Py_TYPE(value) == &PyType_Type or Py_TYPE(value) == &PyUnicode_Type):
        return known_dtypes.get(<object>value)
    return None


cdef dict known_dtypes = {cls: numpy.dtype(cls) for cls in (bool, int, float, complex, *numpy.sctypeDict.values())}
# numpy.sctypeDict holds dtypes of other packages too (ml_dtypes, which JAX imports), whose names numpy may not know
known_dtypes = {cls: dtype for cls, dtype in known_dtypes.items() if dtype.isbuiltin == 1}
known_dtypes.update({
    name: numpy.dtype(name) for dtype in list(known_dtypes.values()) for name in (dtype.name, dtype.str[1:])
})


cdef object convert(op, Signature signature, Py_ssize_t i, PyObject* value):
    cdef unsigned char kind = signature.kind[i] & KIND
    if kind == ARRAY and word_of_array(value) and not (signature.kind[i] & WRITTEN and is_numpy_scalar(<object>value)):
        return <object>value
    converted = converted_in_c(kind, signature.sizes[i], value)
    if converted is not None:
        return converted
    if is_tensor_type(Py_TYPE(value)) and (<Tensor>value).word == 0:
        raise DispatchTypeError(
            f"operator {op.name}: argument {signature.names[i]!r} (position {i + 1}) is a {type(<object>value).__name__} "
            "that was never initialised\ncall super().__init__(array) in its __init__"
        )
    try:
        return signature.converters[i](<object>value)
    except (TypeError, ValueError, OverflowError) as error:
        reason = error
    raise python_side["binding_error"](op, signature.schema, "type", i, <object>value, reason) from None


cdef inline bint bind_directly(
    Frame* frame, PyObject* signature, PyObject* const* args, size_t nargsf, PyObject* kwnames
) noexcept:
    """Steps 1 and 3 at once for the common call: nothing to convert, arrays and no containers.

    Nothing has to be released. No means that `bind_in_general` has to do it, or say what is wrong.
    """
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf)
    frame.owned = 0
    frame.kept = NULL
    frame.original = NULL
    frame.direct = True
    frame.names = NULL
    frame.n_names = 0
    frame.word = 0
    frame.values = args
    frame.count = n
    frame.offset_flag = nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET
    if n > (<Signature>signature).n_positional or n == MAX_ARGUMENTS:
        return False
    if kwnames == NULL:
        return (<Signature>signature).required >> n == 0 and all_fit(frame, signature, args, &frame.raw[1], 0, n)
    return bind_names_directly(frame, signature, args, n, kwnames)


cdef inline bint all_fit(
    Frame* frame, PyObject* signature, PyObject* const* values, PyObject** raw, Py_ssize_t i, Py_ssize_t stop
) noexcept:
    """Can the arguments i to stop have these values without conversion? Notes their keys and raw arrays on the way."""
    cdef uint64_t word = 0
    cdef PyTypeObject* cls
    while i < stop:
        raw[i] = values[i]
        cls = Py_TYPE(values[i])
        if (<Signature>signature).kind[i] & KIND == ARRAY and cls == &PyArray_Type:
            word |= CPU_WORD
        elif ((<Signature>signature).kind[i] & KIND == ARRAY and (cls == TENSOR_TYPE or cls == GRAD_TYPE
                or cls == BATCHED_TYPE or cls == JVP_TYPE) and (<Tensor>values[i]).word):
            word |= (<Tensor>values[i]).word
            raw[i] = <PyObject*>(<Tensor>values[i]).array
        elif not fits_otherwise((<Signature>signature).kind[i], values[i], &word, &raw[i]):
            return False
        i += 1
    frame.word |= word
    return True


cdef bint fits_otherwise(unsigned char kind, PyObject* value, uint64_t* word, PyObject** raw) noexcept:
    """The same for one value that is no array, of a subclass, or for an argument that takes anything."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    if fits(kind, value):
        if not is_scalar_type(cls) and kind & KIND == ARRAY and value != Py_None:
            word[0] |= (<Tensor>value).word
            raw[0] = <PyObject*>(<Tensor>value).array
        return True
    if kind & KIND != ANYTHING:
        return False
    if cls == &PyArray_Type:
        word[0] |= CPU_WORD
        return True
    if cls != TENSOR_TYPE or not (<Tensor>value).word:
        return False
    word[0] |= (<Tensor>value).word
    raw[0] = <PyObject*>(<Tensor>value).array
    return True


cdef bint bind_names_directly(
    Frame* frame, PyObject* signature, PyObject* const* args, Py_ssize_t n, PyObject* kwnames
) noexcept:
    """The same with keywords: all of them name positional arguments, or all keyword-only ones in schema order."""
    cdef Py_ssize_t n_positional = (<Signature>signature).n_positional, k, i, last = n - 1
    cdef uint64_t passed = bit(n) - 1
    frame.n_names = PyTuple_GET_SIZE(kwnames)
    for k in range(frame.n_names):
        i = interned_position(signature, PyTuple_GET_ITEM(kwnames, k))
        if i < 0 or passed & bit(i):
            return False
        passed |= bit(i)
        if i < n_positional:
            frame.storage[i + 1] = args[n + k]
            if not all_fit(frame, signature, &args[n + k - i], &frame.raw[1], i, i + 1):
                return False
        elif i < last or not all_fit(frame, signature, &args[n + k - i], &frame.raw[1 + n + k - i], i, i + 1):
            return False
        elif may_be_default(signature, i, args[n + k]):
            return False
        last = max(i, last)
    if (<Signature>signature).required & ~passed or not all_fit(frame, signature, args, &frame.raw[1], 0, n):
        return False
    if last < n_positional:
        bind_positions(frame, signature, args, n, last + 1, passed)
        return True
    if passed & (bit(n_positional) - 1) != bit(n) - 1:
        return False    # both kinds of keywords at once
    if (<Signature>signature).mutable or not (<Signature>signature).returns_fresh_tensor:
        return False    # what comes after has to find a keyword argument again
    frame.names = kwnames
    return n == 0 or not may_be_default(signature, n - 1, args[n - 1])


cdef inline void bind_positions(
    Frame* frame, PyObject* signature, PyObject* const* args, Py_ssize_t n, Py_ssize_t count, uint64_t passed
) noexcept:
    """What was passed by name is in its place: put positional values before it, and defaults in between."""
    cdef Py_ssize_t i
    for i in range(n):
        frame.storage[i + 1] = args[i]
    for i in range(n, count):
        if not passed & bit(i):
            frame.storage[i + 1] = PyTuple_GET_ITEM(<PyObject*>(<Signature>signature).defaults, i)
            frame.raw[i + 1] = frame.storage[i + 1]
    frame.values = &frame.storage[1]
    frame.count = count
    frame.n_names = 0
    frame.offset_flag = PY_VECTORCALL_ARGUMENTS_OFFSET


cdef inline Py_ssize_t interned_position(PyObject* signature, PyObject* name) noexcept:
    cdef PyObject* names = <PyObject*>(<Signature>signature).names
    cdef Py_ssize_t i
    for i in range((<Signature>signature).n_arguments):
        if PyTuple_GET_ITEM(names, i) == name:
            return i
    return -1


cdef inline bint may_be_default(PyObject* signature, Py_ssize_t i, PyObject* value) noexcept:
    """Is a value that fits its default? Yes also where only Python code could tell."""
    cdef unsigned char kind = (<Signature>signature).kind[i] & KIND
    cdef PyObject* default = PyTuple_GET_ITEM(<PyObject*>(<Signature>signature).defaults, i)
    if (<Signature>signature).required & bit(i):
        return False
    if kind == ANYTHING:
        return True
    if kind == INTS and value != Py_None and default != Py_None:
        return PyTuple_GET_SIZE(value) == PyTuple_GET_SIZE(default)
    return equals_default(kind, value, default)     # of numbers and strings, which cannot fail


cdef int bind(Frame* frame, op, Signature signature, PyObject* const* args, size_t nargsf, PyObject* kwnames) except -1:
    """Step 1, and the arguments' part of step 3. What the frame owns is to be released."""
    if bind_directly(frame, <PyObject*>signature, args, nargsf, kwnames) and frame.names == NULL:
        return 0
    return bind_in_general(frame, op, signature, args, PyVectorcall_NARGS(nargsf), kwnames)


cdef int bind_in_general(
    Frame* frame, op, Signature signature, PyObject* const* args, Py_ssize_t n, PyObject* kwnames
) except -1:
    cdef Py_ssize_t i, k
    cdef PyObject** values = &frame.storage[1]
    if n > signature.n_positional:
        raise python_side["binding_error"](op, signature.schema, "too many", n, None, None)
    for i in range(n):
        values[i] = args[i]
    for i in range(n, signature.n_arguments):
        values[i] = NULL
    if kwnames != NULL:
        for k in range(PyTuple_GET_SIZE(kwnames)):
            i = position_of(signature, PyTuple_GET_ITEM(kwnames, k))
            if i < 0:
                raise python_side["binding_error"](op, signature.schema, "unknown", <object>PyTuple_GET_ITEM(kwnames, k),
                                                   <object>args[n + k], None)
            if values[i] != NULL:
                raise python_side["binding_error"](op, signature.schema, "twice", i, <object>args[n + k], None)
            values[i] = args[n + k]
    return convert_all(frame, op, signature)


cdef int bind_values(Frame* frame, op, Signature signature, tuple values) except -1:
    """Step 1 for a boxed call: every argument has a value."""
    cdef Py_ssize_t i
    for i in range(signature.n_arguments):
        frame.storage[i + 1] = PyTuple_GET_ITEM(<PyObject*>values, i)
    return convert_all(frame, op, signature)


cdef int convert_all(Frame* frame, op, Signature signature) except -1:
    cdef Py_ssize_t i
    cdef PyObject** values = &frame.storage[1]
    frame.values = values
    frame.count = signature.n_arguments
    frame.offset_flag = PY_VECTORCALL_ARGUMENTS_OFFSET
    frame.direct = False
    frame.names = NULL
    frame.n_names = 0
    frame.owned = 0
    frame.kept = NULL
    frame.original = NULL
    try:
        for i in range(signature.n_arguments):
            if values[i] == NULL:
                if signature.required & bit(i):
                    raise python_side["binding_error"](op, signature.schema, "missing", i, None, None)
            elif not fits(signature.kind[i], values[i]) and not fits_as_container(signature.kind[i], values[i]):
                converted = convert(op, signature, i, values[i])
                Py_INCREF(converted)
                values[i] = <PyObject*>converted
                frame.owned |= bit(i)
        collect_keys(frame, signature)
    except BaseException:
        release(frame)
        raise
    return 0


cdef inline int collect_keys(Frame* frame, Signature signature) except -1:
    """Step 3, the arguments' part: the union of their words."""
    cdef uint64_t word = 0
    cdef Py_ssize_t i
    cdef PyObject* value
    for i in range(frame.count):
        if signature.arrays & bit(i):
            value = frame.values[i]
            if value != NULL:
                if signature.kind[i] & KIND == ARRAY:
                    word |= word_of_array(value)
                else:
                    word |= word_of_value(value)
    frame.word = word
    return 0


cdef Py_ssize_t position_of(Signature signature, PyObject* name) except -2:
    cdef Py_ssize_t i = interned_position(<PyObject*>signature, name)
    if i < 0 and not PyUnicode_CHECK_INTERNED(name) and <object>name in signature.names:
        i = signature.names.index(<object>name)
    return i


cdef inline PyObject* value_at(Frame* frame, Py_ssize_t i) noexcept:
    return frame.values[i] if i < frame.count else NULL


# --- the call path: keys and table -----------------------------------------------------------------------------------

cdef inline uint64_t effective_keys(PyObject* op, PyObject* table, PyObject* state, uint64_t word) except? 1:
    """Step 3, the ambient part: + include, - exclude, & not-fall-through."""
    cdef uint64_t runtime, asked = word & PYTHON_BIT
    word |= (<State>state).added
    runtime = word & RUNTIME_BACKEND_BITS
    if runtime & (runtime - 1) and runtime & ~above[highest_bit(runtime)] & ~bit(highest_bit(runtime)):
        raise python_side["mixed_backends"](<object>op, keyset(word & KEY_BITS))
    if asked and (<Table>table).asks_handlers:      # which only arguments bring, and no guard
        asked &= ~(<State>state).removed[bit_length16(word & BACKEND_BITS)]
        return usable_keys(table, state, word) | asked
    return usable_keys(table, state, word)


cdef inline uint64_t usable_keys(PyObject* table, PyObject* state, uint64_t word) noexcept:
    cdef uint64_t backends = word & BACKEND_BITS
    cdef int length = bit_length16(backends)
    cdef uint64_t mask = (<Table>table).masks[length]
    if not word & (DENSE_BIT | SPARSE_BIT):     # no array says the backend, so it may have to be chosen
        mask |= (<Table>table).masks[0] & BACKEND_SELECT_BIT
    return backends | (word & ~(<State>state).removed[length] & mask)


def effective_keyset(op, Table table, State state, DispatchKeySet keys):
    """The key set that a call whose arguments bring `keys` is dispatched on."""
    return keyset(effective_keys(<PyObject*>op, <PyObject*>table, <PyObject*>state, keys.word) & KEY_BITS)


def usable_keyset(Table table, State state, DispatchKeySet keys):
    """The keys of this set that guards do not exclude and that do not fall through."""
    return keyset(usable_keys(<PyObject*>table, <PyObject*>state, keys.word))


cdef inline Table table_of(OpOverload op):
    if op.table is None:
        return <Table?>python_side["build_table"](op)
    return op.table


# --- the call path: strip, kernel, finish ----------------------------------------------------------------------------

cdef inline bint is_default(PyObject* signature, Py_ssize_t i, PyObject* value) except -1:
    """Is a value that was passed, and converted, the default? Values of different kinds are not equal."""
    if (<Signature>signature).required & bit(i):
        return False
    return equals_default(
        (<Signature>signature).kind[i] & KIND, value, PyTuple_GET_ITEM(<PyObject*>(<Signature>signature).defaults, i))


cdef bint equals_default(unsigned char kind, PyObject* value, PyObject* default) except -1:
    if kind == ARRAY or default == Py_None or value == Py_None:
        return value == default
    if kind == FLOAT:
        return PyFloat_AS_DOUBLE(value) == PyFloat_AS_DOUBLE(default)
    if kind == INT and is_compact(value) and is_compact(default):
        return compact_value(value) == compact_value(default)
    if kind == INT or kind == STR:
        return value == default or PyObject_RichCompareBool(<object>value, <object>default, Py_EQ)
    if kind == BOOL:
        return value == default
    return same_value(<object>value, <object>default)


cdef bint same_value(value, default) except -1:
    """Equality that tells 1 from 1.0 and True, never holds for NaN, and never asks an array."""
    if type(value) is not type(default):
        return False
    if isinstance(value, tuple):
        return len(value) == len(default) and all(same_value(a, b) for a, b in zip(value, default))
    if isinstance(value, dict):
        return value.keys() == default.keys() and all(same_value(value[key], default[key]) for key in value)
    if word_of_array(<PyObject*>value):
        return False
    return bool(value == default)


cdef object run(OpOverload op, Table table, Frame* frame, uint64_t keys, State state, str how):
    """Steps 4 to 7, for a frame that is bound and a key set that is chosen."""
    cdef int slot = highest_slot(keys)
    cdef PyObject* found = table.entries[slot]
    if found == NULL or (slot == 0 and (<TableEntry>found).convention & FALLTHROUGH):
        raise python_side["no_kernel"](
            op, table, slot_keys[slot], keyset(keys & KEY_BITS), arguments_of(frame, table.signature))
    if (<TableEntry>found).convention & FALLTHROUGH:
        raise python_side["ran_fallthrough"](op, slot_keys[slot], <object>found)
    return run_entry(op, table, <TableEntry>found, frame, keys, state, how)


cdef inline object run_entry(
    OpOverload op, Table table, TableEntry entry, Frame* frame, uint64_t keys, State state, str how
):
    """Steps 5 to 7, and telling a tracer."""
    if state.tracer is None:
        return result_of_entry(op, table, entry, frame, keys, state, how)
    state.tracer.enter(how, op, slot_keys[highest_slot(keys)], entry)
    try:
        return result_of_entry(op, table, entry, frame, keys, state, how)
    finally:
        state.tracer.leave()


cdef inline object result_of_entry(
    OpOverload op, Table table, TableEntry entry, Frame* frame, uint64_t keys, State state, str how
):
    if not entry.convention & (HANDLERS | ASKS_DEVICE):
        return finish(op, table.signature, entry, frame, call_kernel(op, table.signature, entry, frame, keys))
    if entry.convention & ASKS_DEVICE:
        return run(op, table, frame, keys_on_backend(table, frame, keys, state), state, "redispatch")
    if not frame.word & PYTHON_BIT:     # asked for the Python key, which no argument has
        raise python_side["ran_fallthrough"](op, slot_keys[highest_slot(keys)], entry)
    return call_handlers(op, table, frame, keys, state, how)


cdef uint64_t keys_on_backend(Table table, Frame* frame, uint64_t keys, State state) except? 1:
    """The keys below BackendSelect, where that has chosen the backend: the device asked for, else the ambient default."""
    cdef PyObject* device = Py_None
    keys &= BACKEND_BITS | BELOW_BACKEND_SELECT_BITS
    if table.signature.device >= 0:
        device = value_passed(frame, table.signature, table.signature.device)
    if device == Py_None and not keys & ~BACKEND_BITS:
        device = <PyObject*>state.default_backend
    if device != Py_None:
        keys = keys & ~BACKEND_BITS | <uint64_t>device_words[<object>device]
    return usable_keys(<PyObject*>table, <PyObject*>state, keys)


cdef PyObject* value_passed(Frame* frame, Signature signature, Py_ssize_t i) noexcept:
    """The value of an argument, its default if it was not passed; of a direct frame too."""
    cdef Py_ssize_t k
    for k in range(frame.n_names):
        if PyTuple_GET_ITEM(frame.names, k) == PyTuple_GET_ITEM(<PyObject*>signature.names, i):
            return frame.values[frame.count + k]
    if i < frame.count and frame.values[i] != NULL:
        return frame.values[i]
    return PyTuple_GET_ITEM(<PyObject*>signature.defaults, i)


cdef object call_kernel(OpOverload op, Signature signature, TableEntry entry, Frame* frame, uint64_t keys):
    """Steps 5 and 6."""
    cdef bint unwrap = entry.convention & RAW and frame.word & TENSOR_FLAG
    if frame.direct and is_plain(<PyObject*>entry):
        return own(call_directly(<PyObject*>signature, <PyObject*>entry, frame))
    if entry.convention & BOXED:
        result = call_boxed_kernel(op, signature, entry, frame, keys, unwrap)
    else:
        result = call_with_arguments(op, signature, entry, frame, keys, unwrap)
    if entry.convention & FRESH:
        check_fresh(signature, entry, frame, result)
    return result


cdef inline bint is_plain(PyObject* entry) noexcept:
    """Does the kernel get the arguments and nothing else?"""
    return (<TableEntry>entry).convention & ~(RAW | COUNTS_DEPTH | FRESH | COMPOSITE | FOREIGN) == 0 and (
        <TableEntry>entry).fill == 0


cdef inline PyObject* call_directly(PyObject* signature, PyObject* entry, Frame* frame) except NULL:
    """Steps 5 and 6 for a frame whose values can go as they are, but for a shorter count."""
    cdef Py_ssize_t n = frame.count
    cdef PyObject* result
    while n > 0 and is_default(signature, n - 1, frame.values[n - 1]):      # never so when names follow
        n -= 1
    if (<TableEntry>entry).loop.kind and n == (<TableEntry>entry).loop.n_in and frame.names == NULL:
        result = call_loop(&(<TableEntry>entry).loop,
                           &frame.raw[1] if frame.word & TENSOR_FLAG else <PyObject**>frame.values)
        if result != NULL:
            return result
    if (<TableEntry>entry).convention & FRESH:
        return call_for_fresh(signature, entry, frame, n)
    if not (<TableEntry>entry).convention & RAW or not frame.word & TENSOR_FLAG:
        return invoke(entry, frame.values, n | frame.offset_flag, frame.names)
    if (<Signature>signature).mutable:
        count_writes(<Signature>signature, frame)
    return invoke(entry, &frame.raw[1], n | PY_VECTORCALL_ARGUMENTS_OFFSET, frame.names)


cdef PyObject* call_for_fresh(PyObject* signature, PyObject* entry, Frame* frame, Py_ssize_t n) except NULL:
    """The same for kernels whose results must not share memory with arguments."""
    if frame.word & TENSOR_FLAG and (<Signature>signature).mutable:
        count_writes(<Signature>signature, frame)
    cdef PyObject* result = invoke(entry, &frame.raw[1], n | PY_VECTORCALL_ARGUMENTS_OFFSET, frame.names)
    if not is_fresh_array(<Signature>signature, frame, result):
        try:
            check_fresh(<Signature>signature, <TableEntry>entry, frame, <object>result)
        except:
            Py_DECREF(result)
            raise
    return result


cdef inline bint is_fresh_array(Signature signature, Frame* frame, PyObject* result) noexcept:
    """The quick yes, for one ndarray and arguments that are ndarrays and numbers; a no asks `check_fresh`."""
    cdef Py_ssize_t i
    cdef PyObject* owner
    if not signature.returns_fresh_tensor or signature.lists or Py_TYPE(result) != &PyArray_Type:
        return False
    owner = owner_of_ndarray(result)
    if owner == NULL:
        return False
    for i in range(frame.count + frame.n_names):
        if Py_TYPE(frame.raw[i + 1]) == &PyArray_Type:
            if owner_of_ndarray(frame.raw[i + 1]) == owner:
                return False
        elif not is_scalar_type(Py_TYPE(frame.raw[i + 1])) and frame.raw[i + 1] != Py_None:
            return False
    return True


cdef inline PyObject* owner_of_ndarray(PyObject* array) noexcept:
    """The array at the end of the chain of `base`; NULL when something else is in it."""
    cdef PyObject* base = PyArray_BASE(<PyArrayObject*>array)
    while base != NULL:
        if Py_TYPE(base) != &PyArray_Type:
            return NULL
        array = base
        base = PyArray_BASE(<PyArrayObject*>array)
    return array


cdef int check_fresh(Signature signature, TableEntry entry, Frame* frame, result) except -1:
    """Raise for a result that shares memory with an array argument, or with another result, undeclared."""
    cdef Py_ssize_t i, k, n = signature.n_returns
    cdef list seen = []
    cdef PyObject* value
    if n == 1 and Py_TYPE(<PyObject*>result) == &PyArray_Type and signature.returns_fresh_tensor:
        owner = owner_of(result)
        for i in range(frame.count):
            value = frame.values[i]
            if value != NULL and signature.kind[i] & KIND == ARRAY and word_of_array(value):
                if owner_of(unwrap_value(<object>value)) is owner:
                    raise python_side["aliasing_error"](signature.schema, entry.kernel, 0, signature.names[i])
        if signature.n_arguments == frame.count and not signature.lists:
            return 0
    results = (result,) if n == 1 else tuple(result) if isinstance(result, (tuple, list)) else ()
    for i, item in enumerate(results):
        if i >= n:
            break
        if signature.return_source[i] >= 0:
            value = value_at(frame, signature.return_source[i])
            if value != NULL and item is not unwrap_value(<object>value):
                raise python_side["aliasing_error"](signature.schema, entry.kernel, i, None)
            continue
        if signature.return_views[i]:
            continue
        for leaf in array_leaves(item):
            owner = owner_of(leaf)
            for k in range(frame.count):
                value = frame.values[k]
                if value == NULL or not signature.arrays & bit(k):
                    continue
                for other in array_leaves(unwrap_value(<object>value)):
                    if owner_of(other) is owner:
                        raise python_side["aliasing_error"](signature.schema, entry.kernel, i, signature.names[k])
            for other in seen:
                if other is owner:
                    raise python_side["aliasing_error"](signature.schema, entry.kernel, i, "another result")
            seen.append(owner)
    return 0


cdef inline PyObject* invoke(PyObject* entry, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    """Step 6."""
    if cell.state == NULL and (<TableEntry>entry).convention & COUNTS_DEPTH:
        return (<TableEntry>entry).call(<PyObject*>(<TableEntry>entry).function, args, nargsf, kwnames)
    return invoke_in_general(entry, args, nargsf, kwnames)


cdef PyObject* invoke_in_general(
    PyObject* entry, PyObject* const* args, size_t nargsf, PyObject* kwnames
) except NULL:
    """Step 6 where the kernel has to see the state. One that does not itself count the depth of recursion is counted."""
    cdef PyObject* result
    if cell.state != NULL and (<TableEntry>entry).convention & FOREIGN:
        return invoke_shown(entry, args, nargsf, kwnames)
    if (<TableEntry>entry).convention & COUNTS_DEPTH:
        result = (<TableEntry>entry).call(<PyObject*>(<TableEntry>entry).function, args, nargsf, kwnames)
    else:
        enter_recursive_call()
        result = (<TableEntry>entry).call(<PyObject*>(<TableEntry>entry).function, args, nargsf, kwnames)
        leave_recursive_call()
    if result == NULL:
        check_raised((<TableEntry>entry).function)
    return result


cdef int check_raised(function) except -1:
    """A ufunc of NumPy's that finds no memory may return NULL without an exception."""
    if PyErr_Occurred() == NULL:
        raise SystemError(f"{function!r} returned NULL without an exception")
    return 0


cdef PyObject* invoke_shown(PyObject* entry, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    """Step 6 where a cell is in force, for a kernel of users."""
    cdef Shown around
    show(&around, state_now())
    try:
        return give(own((<invoke_kernel>invoke)(entry, args, nargsf, kwnames)))
    finally:
        hide(&around)

ctypedef PyObject* (*invoke_kernel)(PyObject*, PyObject* const*, size_t, PyObject*) except NULL


cdef object call_with_arguments(
    OpOverload op, Signature signature, TableEntry entry, Frame* frame, uint64_t keys, bint unwrap
):
    """Steps 5 and 6 in general: an array of arguments is laid out anew."""
    cdef PyObject* laid_out[MAX_ARGUMENTS + 3]      # one spare in front, a key set, the operator, the arguments
    cdef Py_ssize_t n = 1, i, positional = signature.n_positional
    cdef DispatchKeySet key_set
    cdef tuple names = None
    if unwrap and signature.mutable:
        count_writes(signature, frame)
    if entry.convention & TAKES_KEYSET:
        key_set = keyset(keys & KEY_BITS)
        laid_out[n] = <PyObject*>key_set
        n += 1
    if entry.convention & TAKES_OPERATOR:
        laid_out[n] = <PyObject*>op
        n += 1
    while positional > 0 and is_stripped(signature, entry, frame, positional - 1):
        positional -= 1
    for i in range(positional):
        laid_out[n] = argument_at(signature, frame, i, unwrap)
        n += 1
    positional = n - 1
    for i in range(signature.n_positional, signature.n_arguments):
        if not is_stripped(signature, entry, frame, i):
            laid_out[n] = argument_at(signature, frame, i, unwrap)
            n += 1
            name = <tuple>signature.single_names[i]
            names = name if names is None else names + name
    return own(invoke(<PyObject*>entry, &laid_out[1], positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                      NULL if names is None else <PyObject*>names))


cdef inline bint is_stripped(Signature signature, TableEntry entry, Frame* frame, Py_ssize_t i) except -1:
    cdef PyObject* value
    if entry.fill & bit(i):
        return False
    value = value_at(frame, i)
    return value == NULL or is_default(<PyObject*>signature, i, value)


cdef inline PyObject* argument_at(Signature signature, Frame* frame, Py_ssize_t i, bint unwrap) except NULL:
    """The value a kernel gets; a container that had to be made for it is kept alive by the frame."""
    cdef PyObject* value = value_at(frame, i)
    if value == NULL:
        return PyTuple_GET_ITEM(<PyObject*>signature.defaults, i)
    if not unwrap or not signature.arrays & bit(i):
        return value
    if is_tensor_type(Py_TYPE(value)):
        return <PyObject*>(<Tensor>value).array
    if signature.kind[i] & KIND == ARRAY:
        return value
    return keep(frame, unwrap_value(<object>value))


cdef PyObject* keep(Frame* frame, value) except NULL:
    if frame.kept == NULL:
        frame.kept = give(value)
    else:
        both = (<object>frame.kept, value)
        Py_DECREF(frame.kept)
        frame.kept = give(both)
    return <PyObject*>value


cdef object call_boxed_kernel(
    OpOverload op, Signature signature, TableEntry entry, Frame* frame, uint64_t keys, bint unwrap
):
    cdef Stack stack = Stack()
    cdef Py_ssize_t i
    if unwrap and signature.mutable:
        count_writes(signature, frame)
    for i in range(signature.n_arguments):
        stack.append(<object>argument_at(signature, frame, i, unwrap))
    enter_recursive_call()
    try:
        call_shown(entry.function, (op, keyset(keys & KEY_BITS), stack) if entry.convention & TAKES_KEYSET else (op, stack))
    finally:
        leave_recursive_call()
    if len(stack) != signature.n_returns:
        raise python_side["result_error"](op, signature.schema, entry.kernel, "stack", None, tuple(stack), None)
    if signature.n_returns == 0:
        return None
    return stack[0] if signature.n_returns == 1 else tuple(stack)


cdef int count_writes(Signature signature, Frame* frame) except -1:
    cdef Py_ssize_t i
    cdef PyObject* value
    for i in range(frame.count):
        if signature.mutable & bit(i) and frame.values[i] != NULL:
            value = frame.values[i]
            if is_tensor_type(Py_TYPE(value)):
                count_write(<Tensor>value)
            elif signature.kind[i] & KIND != ARRAY:
                for leaf in array_leaves(<object>value):
                    if isinstance(leaf, Tensor):
                        count_write(leaf)
    return 0


cdef object unwrap_value(value):
    """The value with raw arrays in place of Tensors, inside containers too."""
    if isinstance(value, Tensor):
        return (<Tensor>value).array
    if type(value) is tuple:
        return unwrap_items(value)
    if value is None or is_scalar_type(Py_TYPE(<PyObject*>value)) or word_of_array(<PyObject*>value):
        return value
    return python_side["map_arrays"](unwrap_value, value)


cdef tuple unwrap_items(tuple values):
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(<PyObject*>values)
    cdef tuple unwrapped = PyTuple_New(n)
    enter_recursive_call()
    try:
        for i in range(n):
            item = unwrap_value(<object>PyTuple_GET_ITEM(<PyObject*>values, i))
            Py_INCREF(item)
            PyTuple_SET_ITEM(unwrapped, i, item)
    finally:
        leave_recursive_call()
    return unwrapped


cdef inline object finish(OpOverload op, Signature signature, TableEntry entry, Frame* frame, result):
    """Step 7."""
    if signature.returns_fresh_tensor:
        if Py_TYPE(<PyObject*>result) == &PyArray_Type:
            return wrap(result) if frame.word & TENSOR_FLAG else result
        if Py_TYPE(<PyObject*>result) == TENSOR_TYPE and frame.word & TENSOR_FLAG:
            return result
        if is_numpy_scalar(result):     # what a ufunc makes of 0-d arrays
            return wrap(result) if frame.word & TENSOR_FLAG else result
    elif signature.view_of >= 0 and Py_TYPE(<PyObject*>result) == &PyArray_Type:
        return finish_view(signature, frame, result) if frame.word & TENSOR_FLAG else result
    return finish_all(op, signature, entry.kernel, frame, result, True)


cdef object finish_view(Signature signature, Frame* frame, array):
    """A new Tensor of an ndarray that may lie in the memory of one argument."""
    cdef Tensor tensor = <Tensor>own(wrap_ndarray(give(array)))
    cdef PyObject* source = value_at(frame, signature.view_of)
    if source != NULL and is_tensor_type(Py_TYPE(source)) and have_one_owner(<PyObject*>array, <Tensor>source):
        share_memory(tensor, <Tensor>source)
    return tensor


cdef inline bint have_one_owner(PyObject* array, Tensor source) except -1:
    """Does an ndarray belong to the memory of a Tensor?"""
    cdef PyObject* owner = owner_of_ndarray(array)
    if owner == NULL or Py_TYPE(<PyObject*>source.array) != &PyArray_Type:
        return memory_owner(source) is owner_of(<object>array)
    return owner_of_ndarray(<PyObject*>source.array) == owner


cdef object finish_all(OpOverload op, Signature signature, maker, Frame* frame, result, bint raw_out):
    """Step 7 in general. `maker` is the kernel, or whose handler it was; `raw_out` unwraps Tensors for raw arguments."""
    cdef Py_ssize_t i
    if signature.n_returns == 0:
        if result is not None:
            raise python_side["result_error"](op, signature.schema, maker, "count", None, result, None)
        return None
    if signature.n_returns == 1:
        return finish_one(op, signature, maker, frame, 0, result, raw_out)
    if not isinstance(result, (tuple, list)) or len(result) != signature.n_returns:
        raise python_side["result_error"](op, signature.schema, maker, "count", None, result, None)
    finished = []
    for i in range(signature.n_returns):
        finished.append(finish_one(op, signature, maker, frame, i, result[i], raw_out))
    return tuple(finished)


cdef object finish_one(OpOverload op, Signature signature, maker, Frame* frame, Py_ssize_t i, result, bint raw_out):
    cdef Py_ssize_t source = signature.return_source[i]
    cdef PyObject* value
    if not signature.return_is_tensor[i] or not word_of_array(<PyObject*>result):
        result = convert_result(op, signature, maker, frame, i, result)
    if source >= 0:
        value = value_at(frame, source)
        if value != NULL and value != Py_None:
            return <object>value
    if not signature.return_arrays[i]:
        return result
    if frame.word & TENSOR_FLAG:
        return wrap_value(signature, frame, i, result)
    return unwrap_value(result) if raw_out else result


cdef object convert_result(op, Signature signature, maker, Frame* frame, Py_ssize_t i, result):
    if signature.return_is_list[i] and type(result) is list:
        items = tuple(<list>result)
        if are_arrays(<PyObject*>items):
            return items
    try:
        return signature.return_converters[i](
            result, frame.word & META_BACKEND_BIT != 0 or getattr(maker, "is_fake", False))
    except (TypeError, ValueError, OverflowError) as error:
        reason = error
    raise python_side["result_error"](op, signature.schema, maker, "type", i, result, reason) from None


cdef object wrap_value(Signature signature, Frame* frame, Py_ssize_t i, value):
    """The value with Tensors in place of raw arrays, inside containers too; views share the version of their base."""
    cdef Tensor tensor
    if isinstance(value, Tensor) or value is None or is_scalar_type(Py_TYPE(<PyObject*>value)):
        return value
    if word_of_array(<PyObject*>value):
        tensor = wrap(value)
        if signature.return_views[i]:
            share_with_base(signature, frame, i, tensor)
        return tensor
    if type(value) is tuple:
        wrapped = []
        enter_recursive_call()
        try:
            for item in <tuple>value:
                wrapped.append(wrap_value(signature, frame, i, item))
        finally:
            leave_recursive_call()
        return tuple(wrapped)
    return python_side["map_arrays"](lambda leaf: wrap_value(signature, frame, i, leaf), value)


cdef int share_with_base(Signature signature, Frame* frame, Py_ssize_t i, Tensor view) except -1:
    cdef PyObject* value
    owner = memory_owner(view)
    for position in signature.return_views[i]:
        value = value_at(frame, position)
        if value == NULL:
            continue
        candidates = (<object>value,) if word_of_array(value) else array_leaves(<object>value)
        for candidate in candidates:
            if isinstance(candidate, Tensor) and memory_owner(candidate) is owner:
                if signature.detaches:
                    view.memory = memory_of_detached(candidate)
                    return 0
                return share_memory(view, candidate)
    return 0


cdef tuple arguments_of(Frame* frame, Signature signature):
    """(name, value) of what was passed, for messages."""
    cdef Py_ssize_t i
    cdef list arguments = []
    for i in range(min(frame.count, signature.n_arguments)):
        if frame.values[i] != NULL:
            arguments.append((signature.names[i], <object>frame.values[i]))
    return tuple(arguments)


# --- operators -------------------------------------------------------------------------------------------------------

cdef PyObject* call_operator(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef PyObject* result
    if fast_lane(self, args, nargsf, kwnames, &result):
        return result
    return give(call_in_general(<OpOverload>self, args, nargsf, kwnames))


cdef inline bint fast_lane(
    PyObject* op, PyObject* const* args, size_t nargsf, PyObject* kwnames, PyObject** result
) except -1:
    """A common call: the steps below, without counting a reference at each of them. No: nothing has happened yet.

    The result is NULL when the call raised.
    """
    cdef PyObject* table = <PyObject*>(<OpOverload>op).table
    cdef PyObject* state
    cdef PyObject* entry
    cdef Frame frame
    if table == Py_None or not bind_directly(&frame, <PyObject*>(<Table>table).signature, args, nargsf, kwnames):
        return False
    state = borrowed_state()
    if (<State>state).plain and frame.word == (<Table>table).last_word:
        entry = (<Table>table).last_entry
    else:
        entry = plain_entry(op, table, state, frame.word)
    if entry == NULL:
        return other_lanes(op, table, state, &frame, result)
    Py_INCREF(<object>table)    # and with it the entry, should the kernel remove itself
    result[0] = (<direct_call>run_directly)(op, table, entry, &frame)
    Py_DECREF(table)
    return True


cdef bint other_lanes(PyObject* op, PyObject* table, PyObject* state, Frame* frame, PyObject** result) except -1:
    """A call that is bound, and takes more than to call a kernel."""
    cdef PyObject* entry
    cdef Table held = <Table>table
    if recording_lane(op, table, state, frame, result):
        return True
    entry = further_entry(op, table, state, frame)
    if entry != NULL:
        result[0] = (<direct_call>run_directly)(op, table, entry, frame)
    elif not batching_lane(op, table, state, frame, result):
        if frame.names != NULL:
            return False
        result[0] = (<bound_call>call_bound_frame)(op, table, frame)
    return True


cdef PyObject* plain_entry(PyObject* op, PyObject* table, PyObject* state, uint64_t word) except? NULL:
    """Steps 3 and 4 of the fast lane; NULL for what takes more than calling a function.

    Outside of all guards the answer depends on the arguments' word alone, and the last one is kept: to compare a word
    is a guess that the processor makes ahead, where to find the entry is a chain of dependent look-ups.
    """
    cdef PyObject* entry
    if (word & SPECIAL_FLAGS or (<State>state).top is not None or (<State>state).tracer is not None
            or (<State>state).inference or (<State>state).substitute is not None):
        return NULL
    entry = (<Table>table).entries[highest_slot(effective_keys(op, table, state, word))]
    if entry == NULL or not is_plain(entry):
        return NULL
    if (<State>state).plain:
        (<Table>table).last_word = word
        (<Table>table).last_entry = entry
    return entry


cdef PyObject* further_entry(PyObject* op, PyObject* table, PyObject* state, Frame* frame) except? NULL:
    """The same outside of all guards where the backend has to be chosen, or arguments are views of constants."""
    cdef uint64_t word = frame.word & ~SHARED_FLAG
    cdef PyObject* entry
    if not (<State>state).plain or word & SPECIAL_FLAGS:
        return NULL
    if frame.word & SHARED_FLAG and not all_constant(frame, <Signature>(<Table>table).signature):
        return NULL
    entry = plain_entry(op, table, state, word)
    if entry == NULL:
        entry = (<Table>table).entries[highest_slot(effective_keys(op, table, state, word))]
        if entry == NULL or not (<TableEntry>entry).convention & ASKS_DEVICE:
            return NULL
        word = effective_keys(op, table, state, word)
        entry = (<Table>table).entries[highest_slot(keys_on_backend(<Table>table, frame, word, <State>state))]
        if entry == NULL or not is_plain(entry):
            return NULL
    frame.word &= ~SHARED_FLAG
    return entry


cdef bint all_constant(Frame* frame, Signature signature) except -1:
    """Has nothing among the arguments ever been on the tape? Then it does not matter which of them are views."""
    cdef Py_ssize_t i
    cdef PyObject* value
    for i in range(frame.count + frame.n_names):
        value = frame.values[i]
        if value == NULL:
            continue
        if is_tensor_type(Py_TYPE(value)):
            if not is_constant(<Tensor>value):
                return False
        elif (not frame.direct and signature.arrays & bit(i) and signature.kind[i] & KIND != ARRAY
                and not holds_constants(value)):
            return False
    return True


cdef bint holds_constants(PyObject* value) except -1:
    """The same of a value that may be or hold arrays."""
    cdef Py_ssize_t i
    if is_tensor_type(Py_TYPE(value)):
        return is_constant(<Tensor>value)
    if PyTuple_CheckExact(value):
        for i in range(PyTuple_GET_SIZE(value)):
            if not holds_constants(PyTuple_GET_ITEM(value, i)):
                return False
        return True
    for leaf in array_leaves(<object>value) if not word_of_array(value) else ():
        if isinstance(leaf, Tensor) and not is_constant(<Tensor>leaf):
            return False
    return True


cdef inline bint is_constant(Tensor tensor) noexcept:
    """Has neither the Tensor nor the memory that it lies in ever been on the tape?"""
    cdef Memory memory = tensor.memory
    return tensor.edge is None and (memory is None or (
        memory.edge is None and memory.generation == 0 and not memory.is_leaf))


cdef PyObject* call_bound_frame(PyObject* op, PyObject* table, Frame* frame) except NULL:
    """The rest of a call that is bound already, and takes more than the fast lane."""
    return give(call_bound(<OpOverload>op, <Table>table, frame))


# the same functions, for callers that pass the exception on as NULL, or have something to do before
ctypedef PyObject* (*bound_call)(PyObject*, PyObject*, Frame*) noexcept
ctypedef PyObject* (*direct_call)(PyObject*, PyObject*, PyObject*, Frame*) noexcept


cdef inline PyObject* run_directly(PyObject* op, PyObject* table, PyObject* entry, Frame* frame) except NULL:
    """Steps 5 to 7 of the fast lane."""
    cdef PyObject* signature = <PyObject*>(<Table>table).signature
    cdef PyObject* result = call_directly(signature, entry, frame)
    if (<Signature>signature).returns_fresh_tensor and Py_TYPE(result) == &PyArray_Type:
        return wrap_ndarray(result) if frame.word & TENSOR_FLAG else result
    return give(finish(<OpOverload>op, <Signature>signature, <TableEntry>entry, frame, own(result)))


cdef object call_in_general(OpOverload op, PyObject* const* args, size_t nargsf, PyObject* kwnames):
    cdef Table table = table_of(op)
    cdef Frame frame
    bind(&frame, op, table.signature, args, nargsf, kwnames)
    return call_bound(op, table, &frame)


cdef object call_bound(OpOverload op, Table table, Frame* frame):
    try:
        return dispatch(op, table, frame, state_now(), "call")
    finally:
        release(frame)


cdef object dispatch(OpOverload op, Table table, Frame* frame, State state, str how):
    """Steps 2 to 7."""
    if state.substitute is not None and frame.word & TENSOR_FLAG and (
            note_rule(op, table, state) or means_others(frame, table.signature, state)):
        args, kwargs = arguments_with(frame, table.signature, state.substitute)
        return op(*args, **kwargs)
    if state.plain and frame.word & SPECIAL_FLAGS == SHARED_FLAG and all_constant(frame, table.signature):
        frame.word &= ~SHARED_FLAG
    if frame.word & SPECIAL_FLAGS or state.top is not None or state.inference:
        return call_through_levels(op, table, frame, state, how)
    return run(op, table, frame, effective_keys(<PyObject*>op, <PyObject*>table, <PyObject*>state, frame.word), state, how)


cdef object call_packet(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames):
    """Step 1 for a packet: the first overload whose arguments convert is called."""
    cdef OpOverloadPacket packet = <OpOverloadPacket>self
    cdef OpOverload op
    cdef Table table
    cdef Frame frame
    cdef PyObject* result
    cdef PyObject* bound
    cdef tuple overloads = packet.overloads     # held, should a kernel remove its own operator
    if overloads and fast_lane(PyTuple_GET_ITEM(<PyObject*>overloads, 0), args, nargsf, kwnames, &result):
        return own(result)
    if len(overloads) == 1:
        return call_in_general(overloads[0], args, nargsf, kwnames)
    op = bind_first(&frame, &bound, packet, args, nargsf, kwnames)
    table = <Table>own(bound)
    return call_bound(op, table, &frame)


cdef OpOverload bind_first(
    Frame* frame, PyObject** bound, OpOverloadPacket packet, PyObject* const* args, size_t nargsf, PyObject* kwnames
):
    """The first overload that takes the arguments, and the frame of its call; `bound` becomes a reference to its table.

    One that makes a number of an array comes after all that take it as it is: which overload is called does not depend
    on whether an array happens to have one element.
    """
    cdef OpOverload op
    cdef Table table
    cdef list second = None
    for op in packet.overloads:
        table = table_of(op)
        if not takes_names(table.signature, PyVectorcall_NARGS(nargsf), kwnames):
            continue
        if takes_array_as_number(table.signature, args, nargsf, kwnames):
            second = keep_in(second, op)
        elif could_bind(frame, op, table.signature, args, nargsf, kwnames):
            bound[0] = give(table)
            return op
    for op in second or ():
        table = table_of(op)
        if could_bind(frame, op, table.signature, args, nargsf, kwnames):
            bound[0] = give(table)
            return op
    raise refusal(packet, args, nargsf, kwnames)


cdef inline bint could_bind(
    Frame* frame, op, Signature signature, PyObject* const* args, size_t nargsf, PyObject* kwnames
) except -1:
    """Bind, or say no. The names are to be looked at first: a refusal by `bind` is an exception, and slow."""
    try:
        bind(frame, op, signature, args, nargsf, kwnames)
    except DispatchTypeError:
        return False
    return True


cdef bint takes_array_as_number(
    Signature signature, PyObject* const* args, size_t nargsf, PyObject* kwnames
) except -1:
    """Is an array among the arguments, or in a container there, where the schema has none?"""
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf), i, k
    for k in range(n + (0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames))):
        i = k if k < n else position_of(signature, PyTuple_GET_ITEM(kwnames, k - n))
        if 0 <= i < signature.n_arguments and not signature.arrays & bit(i) and holds_true_array(args[k]):
            return True
    return False


cdef bint holds_true_array(PyObject* value) except -1:
    """Is this, or does it contain, an array that is no NumPy scalar?"""
    if holds_nothing(value):
        return False
    for leaf in array_leaves(<object>value):
        if not is_numpy_scalar(leaf):
            return True
    return False


cdef object refusal(OpOverloadPacket packet, PyObject* const* args, size_t nargsf, PyObject* kwnames):
    """The error of a call that no overload takes: why each of them does not."""
    cdef OpOverload op
    cdef Frame frame
    refusals = []
    for op in packet.overloads:
        try:
            bind(&frame, op, table_of(op).signature, args, nargsf, kwnames)
        except DispatchTypeError as error:
            refusals.append(error)
        else:
            release(&frame)
    return python_side["no_overload"](packet, refusals)


cdef bint takes_names(Signature signature, Py_ssize_t n, PyObject* kwnames) except -1:
    """Could a call with n positional arguments and these names be bound? Asked before binding, which raises."""
    cdef uint64_t passed
    cdef Py_ssize_t i, k
    if n > signature.n_positional:
        return False
    passed = bit(n) - 1 if n < MAX_ARGUMENTS else ~<uint64_t>0
    if kwnames != NULL:
        for k in range(PyTuple_GET_SIZE(kwnames)):
            i = position_of(signature, PyTuple_GET_ITEM(kwnames, k))
            if i < 0 or passed & bit(i):
                return False
            passed |= bit(i)
    return signature.required & ~passed == 0


cdef tuple flatten_call(tuple args, dict kwargs):
    """(values, names) as vectorcall wants them."""
    if not kwargs:
        return args, None
    return args + tuple(kwargs.values()), tuple(kwargs)


cdef int bind_tuple(Frame* frame, op, Signature signature, tuple values, names) except -1:
    cdef Py_ssize_t n = len(values) - (0 if names is None else len(names))
    return bind(frame, op, signature, items_of(values), n, NULL if names is None else <PyObject*>names)


cdef extern from *:
    """
    #define items_of(tuple) (((PyTupleObject*)(tuple))->ob_item)
    """
    PyObject* const* items_of(tuple values)


@cython.final
cdef class OpOverload:
    """One operator: a name with an overload name, a schema, and kernels under dispatch keys. Call it.

    Made by registration, looked up in `pydispatch.ops`. When its last registration is removed it goes stale, and
    calling it raises StaleOperatorError. Pickles by name.
    """

    def __cinit__(self, name):
        self.vectorcall = <vectorcallfunc>call_operator
        self.name = name
        self.registrations = []

    def __call__(self, *args, **kwargs):
        return own(PyVectorcall_Call(<PyObject*>self, <PyObject*>args, <PyObject*>kwargs))

    def redispatch(self, DispatchKeySet keyset, /, *args, **kwargs):
        """Call the kernel of the highest key of `keyset`, which is used as it is: no argument and no guard adds to it.

        From a kernel registered with `with_keyset=True`: `op.redispatch(keys & DispatchKeySet.full_after(key), ...)`.
        """
        cdef Table table = table_of(self)
        cdef Frame frame
        values, names = flatten_call(args, kwargs)
        bind_tuple(&frame, self, table.signature, values, names)
        try:
            return run(self, table, &frame, keyset.word, state_now(), "redispatch")
        finally:
            release(&frame)

    def call_entry(self, TableEntry entry, DispatchKeySet keyset, /, *args, **kwargs):
        """Call one entry of a table, past or present, as if it had been chosen for `keyset`."""
        cdef Table table = table_of(self)
        cdef Frame frame
        values, names = flatten_call(args, kwargs)
        bind_tuple(&frame, self, table.signature, values, names)
        try:
            return run_entry(self, table, entry, &frame, keyset.word, state_now(), "kernel")
        finally:
            release(&frame)

    def call_boxed(self, stack, /):
        """Take one value per schema argument off the end of `stack`, call, and push the results.

        When the call raises, the stack is as it was.
        """
        cdef Table table = table_of(self)
        cdef Frame frame
        cdef Py_ssize_t n = table.signature.n_arguments
        if not isinstance(stack, list):
            raise DispatchTypeError(
                f"operator {self.name}: the stack is a {type(stack).__name__}, expected a pydispatch.Stack or list\n"
                "write op.call_boxed(Stack(values))"
            )
        if len(stack) < n:
            raise python_side["binding_error"](self, table.signature.schema, "short stack", len(stack), None, None)
        values = tuple(stack[len(stack) - n:])
        bind_values(&frame, self, table.signature, values)
        try:
            result = dispatch(self, table, &frame, state_now(), "boxed")
        finally:
            release(&frame)
        if n:
            del stack[len(stack) - n:]
        if table.signature.n_returns == 1:
            stack.append(result)
        elif result is not None:
            stack.extend(result)

    def bind(self, args=(), kwargs=None):
        """One value per schema argument, converted, defaults filled in; the tuple that `strip_defaults` takes."""
        cdef Table table = table_of(self)
        cdef Signature signature = table.signature
        cdef Frame frame
        cdef Py_ssize_t i
        cdef list bound = []
        values, names = flatten_call(tuple(args), dict(kwargs or {}))
        bind_tuple(&frame, self, signature, values, names)
        try:
            for i in range(signature.n_arguments):
                bound.append(<object>value_by_position(&frame, signature, i))
            return tuple(bound)
        finally:
            release(&frame)

    def strip_defaults(self, values):
        """(args, kwargs) as a kernel gets them, from one value per schema argument.

        Trailing positional arguments equal to their default are dropped, keyword-only ones each by itself.
        """
        cdef Table table = table_of(self)
        cdef Signature signature = table.signature
        cdef Frame frame
        cdef Py_ssize_t i, positional = signature.n_positional
        values = tuple(values)
        if len(values) != signature.n_arguments:
            raise python_side["binding_error"](self, table.signature.schema, "values", len(values), None, None)
        bind_values(&frame, self, signature, values)
        try:
            while positional > 0 and is_default(<PyObject*>signature, positional - 1, frame.values[positional - 1]):
                positional -= 1
            return (
                tuple([<object>frame.values[i] for i in range(positional)]),
                {signature.names[i]: <object>frame.values[i]
                 for i in range(signature.n_positional, signature.n_arguments)
                 if not is_default(<PyObject*>signature, i, frame.values[i])},
            )
        finally:
            release(&frame)

    def fill_defaults(self, args=(), kwargs=None, *, by_name=False):
        """(args, kwargs) with every argument present: positional where possible, or all `by_name`."""
        cdef Signature signature = table_of(self).signature
        values = self.bind(args, kwargs)
        n = 0 if by_name else signature.n_positional
        return values[:n], dict(zip(signature.names[n:], values[n:]))

    def py_impl(self, where):
        """A decorator that registers a kernel for a dispatch key, or `kernel(mode_or_class, *args, **kwargs)` for a
        class of modes or of Tensors. Raises RegistrationError for the Python key, which belongs to the handlers.
        """
        return python_side["py_impl"](self, where)

    @property
    def live_table(self):
        """The table that the next call uses, or None when that call will compute it."""
        return self.table

    def install_table(self, Table table or None):
        """Publish a table; None marks the operator stale, so that the next call computes one."""
        self.table = table

    def __reduce__(self):
        if self.name.namespace is None:
            reduced = python_side["reduce_derived"](self)
            if reduced is not None:
                return reduced
        return python_side["find_operator"], (str(self.name),)

    def __repr__(self):
        return f"<OpOverload {self.name}>"


def overload_name(OpOverload op):
    """What an overload is called in its packet."""
    return op.name.overload or "default"


@cython.final
cdef class OpOverloadPacket:
    """The overloads of one operator name; calling it calls the first whose arguments convert.

    `packet.default` is the overload without a name, `packet.<overload>` any other.
    """

    def __cinit__(self, str name):
        self.vectorcall = <vectorcallfunc>call_packet
        self.name = name
        self.overloads = ()

    def __call__(self, *args, **kwargs):
        return own(PyVectorcall_Call(<PyObject*>self, <PyObject*>args, <PyObject*>kwargs))

    def resolve(self, *args, **kwargs):
        """The overload that a call with these arguments runs."""
        cdef OpOverload op
        cdef Frame frame
        cdef Py_ssize_t n = len(args)
        cdef PyObject* table
        values, names = flatten_call(args, kwargs)
        op = bind_first(&frame, &table, self, items_of(values), n, NULL if names is None else <PyObject*>names)
        release(&frame)
        Py_DECREF(table)
        return op

    def __getattr__(self, attribute):
        for op in self.overloads:
            if attribute == overload_name(op):
                return op
        if len(self.overloads) == 1 and hasattr(OpOverload, attribute):
            return getattr(self.overloads[0], attribute)
        raise python_side["no_such_overload"](self, attribute)

    def __dir__(self):
        return [*object.__dir__(self), *map(overload_name, self.overloads)]

    def __reduce__(self):
        return python_side["find_packet"], (self.name,)

    def __repr__(self):
        return f"<OpOverloadPacket {self.name} ({', '.join(map(overload_name, self.overloads))})>"


# Registrations come into force and go out of it here, since no interrupt comes in between, nor another thread.

@cython.final
cdef class Change(Undo):
    """What one operator gets registered, or loses. To undo it is to go back: both sides are there, nothing is made."""

    cdef dict operators
    cdef str name
    cdef OpOverload op
    cdef OpOverloadPacket packet    # None: it keeps its operators
    cdef dict family                # where the packet is under its name
    cdef tuple handles              # what comes into force, or goes out of it
    cdef bint comes
    cdef list registrations         # of the operator on the other side
    cdef tuple overloads            # of the packet there
    cdef str removed_at
    cdef bint is_taken

    cdef int take(self) except -1:
        the_registering.push(self)
        self.cross()
        self.is_taken = True
        return 0

    cdef int undo(self) except -1:
        if self.is_taken:
            self.cross()
        else:
            self.drop_empty()
        return 0

    cdef int cross(self) except -1:
        if self.registrations:      # what can fail comes first
            self.operators[self.name] = self.op
        if self.overloads:
            self.family[self.op.name.name] = self.packet
        self.op.registrations, self.registrations = self.registrations, self.op.registrations
        self.op.removed_at, self.removed_at = self.removed_at, self.op.removed_at
        self.op.table = None
        if self.packet is not None:
            self.packet.overloads, self.overloads = self.overloads, self.packet.overloads
        for handle in self.handles:
            handle.active = self.comes
        self.comes = not self.comes
        self.drop_empty()
        return 0

    cdef int drop_empty(self) except -1:
        if not self.op.registrations:
            self.operators.pop(self.name, None)
        if self.packet is not None and not self.packet.overloads:
            self.family.pop(self.op.name.name, None)
        return 0


cdef Change change_of(OpOverload op, tuple handles, OpOverloadPacket packet, dict operators, dict packets, str name):
    cdef Change change = Change.__new__(Change)
    change.op, change.handles, change.packet, change.operators, change.name = op, handles, packet, operators, name
    if packet is not None:
        change.family = packets.setdefault(op.name.namespace or "", {})
    return change


def put_in_force(dict operators, dict packets, str name, OpOverload op, tuple handles, OpOverloadPacket packet or None):
    """Add registrations to an operator, which may be new; all or none. `packet` gets it where one is its definition."""
    cdef Change change = change_of(op, handles, packet, operators, packets, name)
    change.comes = True
    change.registrations = [*op.registrations, *handles]
    change.overloads = None if packet is None else (*packet.overloads, op)
    for handle in handles:
        handle.operator = op
    change.take()


def put_out_of_force(dict operators, dict packets, str name, handle, OpOverloadPacket packet or None, str site):
    """Take a registration from its operator, which is retired with the last one; `packet` loses the operator."""
    cdef OpOverload op = handle.operator
    cdef Change change = change_of(op, (handle,), packet, operators, packets, name)
    cdef list overloads = []
    change.registrations = []
    for other in op.registrations:      # a new list, since somebody may be reading the old one
        if other is not handle:
            change.registrations.append(other)
    if packet is not None:
        for other in packet.overloads:
            if other is not op:
                overloads.append(other)
        change.overloads = tuple(overloads)
    if not change.registrations:
        change.removed_at = site
    change.take()


cdef class RegistrationGuard:
    """A registration of an operator that is in force inside a `with` block; `register()` makes it.

    Like that of a Guard, the block is left in C, so that no interrupt leaves the registration behind.
    """

    cdef dict operators
    cdef str name
    cdef list entered

    def __init__(self, dict operators not None, str name not None):
        self.operators, self.name, self.entered = operators, name, []

    def register(self):
        raise NotImplementedError(f"{type(self).__name__} defines no register")

    def __enter__(self):
        with the_registering:
            self.entered.append(self.register())

    def __exit__(self, kind, error, trace):
        interrupt = wait_for_registering()
        try:
            with the_registering:
                handle = self.entered[len(self.entered) - 1]
                if handle.active:
                    put_out_of_force(self.operators, {}, self.name, handle, None, handle.site)
                self.entered.pop()
        finally:
            the_registering.inner.release()
        if interrupt is not None:
            raise interrupt


cdef wait_for_registering():
    """Take the lock, while other threads hold it and signals come too; what these raised last."""
    interrupt = None
    while True:
        try:
            the_registering.inner.acquire()
            return interrupt
        except MemoryError:
            raise
        except BaseException as error:
            interrupt = error


cdef class Stack(list):
    """The argument stack of boxed calls: values are pushed left to right; a kernel pops them and pushes its results."""

    def push(self, *values):
        """Put values on top, the last one topmost."""
        self.extend(values)

    def pop_arguments(self, Py_ssize_t n):
        """Take the top n values off, as a tuple in the order they were pushed."""
        if n > len(self):
            raise IndexError(f"pop of {n} values from a stack of {len(self)}")
        if n == 0:
            return ()
        values = tuple(self[len(self) - n:])
        del self[len(self) - n:]
        return values


cdef int make_vectorcallable(type cls, Py_ssize_t offset) except -1:
    """Give a class the slot that Cython has no syntax for."""
    cdef vectorcallable* slots = <vectorcallable*>cls
    slots.tp_vectorcall_offset = offset
    slots.tp_call = PyVectorcall_Call
    slots.tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL
    PyType_Modified(<PyTypeObject*>cls)
    return 0

cdef OpOverload some_overload = OpOverload(None)
make_vectorcallable(OpOverload, <char*>&some_overload.vectorcall - <char*><PyObject*>some_overload)
cdef OpOverloadPacket some_packet = OpOverloadPacket("")
make_vectorcallable(OpOverloadPacket, <char*>&some_packet.vectorcall - <char*><PyObject*>some_packet)


include "_trees.pxi"
include "_shells.pxi"
include "_loops.pxi"
include "_levels.pxi"
include "_batching.pxi"
include "_forward.pxi"
include "_handlers.pxi"
include "_tape.pxi"
include "_rules.pxi"
include "_engine.pxi"
include "_fronts.pxi"
include "_kernels.pxi"


# --- classes whose objects only the core makes ---------------------------------------------------------------------------

cdef PyObject* refuse_new(PyTypeObject* cls, PyObject* args, PyObject* kwargs) except NULL:
    raise TypeError(f"{(<object><PyObject*>cls).__name__} objects are made by operators and transforms")


cdef int close_class(type cls) except -1:
    """Have Python refuse to make objects of a class; `Class.__new__(Class)` in Cython does not ask the type."""
    (<vectorcallable*>cls).tp_new = <newfunc>refuse_new
    PyType_Modified(<PyTypeObject*>cls)
    return 0

ctypedef PyObject* (*newfunc)(PyTypeObject*, PyObject*, PyObject*) noexcept


cdef int close_classes(classes) except -1:
    for cls in classes:
        close_class(cls)
    return 0

close_classes((
    Undo, Block, Change, Memory, State, Entry, Place, Node, Run, PullBack, Wrapper, GradTensor, JvpTensor, BatchedTensor,
    LevelTensor))


# --- the Python half -------------------------------------------------------------------------------------------------

# What the core asks of Python when it leaves the fast lane, by the module that answers.
cdef dict python_side = dict.fromkeys((
    # keys.py
    "member", "names_of_keyset", "keyset_from_names",
    # registry.py
    "find_operator", "find_packet",
    # tables.py
    "build_table",
    # messages.py
    "aliasing_error", "binding_error", "result_error", "no_handler", "no_kernel", "mixed_backends",
    "ran_fallthrough", "no_overload", "no_such_overload",
    # library.py
    "py_impl",
    # tree.py
    "array_leaves", "map_arrays",
    # tensor.py
    "write_own_view", "tensor_repr", "tensor_str", "detached_subclass", "item", "detach", "ufunc_refusal",
    # autograd/anomaly.py
    "note_origin", "tell_origin", "check_nan",
    # autograd/backward.py
    "backward", "grad", "grad_results",
    # autograd/derivatives.py
    "settle_rule",
    # autograd/forward.py
    "propagate", "part_of", "part_replaced",
    # autograd/function.py
    "author_of", "apply_in_general", "finish_in_general", "wrap_outputs",
    # autograd/hooks.py
    "before_node", "after_node", "before_leaf", "after_leaf", "move_retained",
    # autograd/levels.py
    "unbatched_write", "not_a_batch", "number_error", "batch_dims", "zeros_like", "reshape", "moveaxis", "add_to",
    "detach_error", "warn_untracked", "overlaps_itself", "check_passed_once", "described_level", "misplaced_error",
    "opaque_autograd_kernel", "write_error", "copy", "sum", "broadcast_to",
    # autograd/rules.py
    "author_is_met", "record_rule", "apply_tape_rule", "checked_gradient", "zeros_beside", "needless_gradient",
    "materialize",
    # autograd/saved.py
    "copy_kept", "pack", "Packed", "modified_error", "inference_error", "released_error",
    # autograd/tensors.py
    "kept_grad", "check_grad",
    # autograd/views.py
    "view_node", "written_node",
    # custom/derived.py
    "batch_by_default", "reduce_derived",
    # func/batching.py
    "grads_of_batch", "moved", "mapped_in_general",
    # func/forward.py
    "propagated", "pushed",
    # func/reverse.py
    "enter_constants", "check_differentiable", "check_aux", "as_scalar", "one_beside", "differentiate_in_general",
    "as_gradient", "as_passed", "leave_aux", "as_raw_constant", "as_cotangent", "recorded", "pulled", "zeros_for",
    # operators/batching.py
    "example_error",
))


def connect(**functions):
    """Name functions that the core asks. TypeError for a name that it does not know."""
    unknown = sorted(functions.keys() - python_side.keys())
    if unknown:
        raise TypeError(f"connect: the core asks for no {', '.join(unknown)}\ndeclare the name in python_side first")
    python_side.update(functions)


def check_connected():
    """RuntimeError unless every function that the core asks for has been named."""
    missing = sorted([name for name, function in python_side.items() if function is None])
    if missing:
        raise RuntimeError(f"the core asks for {', '.join(missing)}, which no module connects\n"
                           "call _core.connect in the module that has it, or list it in loading.CONNECTED")


def connected(str name):
    """The function that was named so last."""
    return python_side[name]


cdef PyObject* call_target(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    return PyObject_Vectorcall(<PyObject*>(<Callee>self).target, args, nargsf, kwnames)


cdef class Callee:
    """Something that is called in the place of its `target`, without a frame or a tuple in between."""

    def __cinit__(self, *args, **kwargs):
        self.vectorcall = <vectorcallfunc>call_target

    def __call__(self, *args, **kwargs):
        return own(PyVectorcall_Call(<PyObject*>self, <PyObject*>args, <PyObject*>kwargs))

cdef Callee some_callee = Callee.__new__(Callee)
make_vectorcallable(Callee, <char*>&some_callee.vectorcall - <char*><PyObject*>some_callee)


def keep_vectorcall(type cls):
    """Have the objects of a subclass of Callee called as directly; before 3.12 Python does not pass that on."""
    if not issubclass(cls, Callee):
        raise TypeError(f"{cls.__name__} is no subclass of Callee")
    make_vectorcallable(cls, <char*>&some_callee.vectorcall - <char*><PyObject*>some_callee)
    return cls


cdef bint is_array_like(PyArrayObject* array, PyObject* shape, PyObject* dtype) except -1:
    """Has an array of NumPy's this shape, a tuple of ints, and this dtype?"""
    cdef Py_ssize_t ndim = PyTuple_GET_SIZE(shape), axis
    if PyArray_NDIM(array) != ndim:
        return False
    for axis in range(ndim):
        if PyArray_DIMS(array)[axis] != <Py_ssize_t>(<object>PyTuple_GET_ITEM(shape, axis)):
            return False
    return <void*>PyArray_DESCR(array) == <void*>dtype or <object>PyArray_DESCR(array) == <object>dtype


def is_like(value not None, tuple shape, cnp.dtype dtype):
    """Has an array, or a value that stands for one, this shape and dtype?"""
    cdef object array = (<Tensor>value).array if type(value) is Tensor else value
    if cnp.PyArray_Check(array):
        return is_array_like(<PyArrayObject*><PyObject*>array, <PyObject*>shape, <PyObject*>dtype)
    return tuple(value.shape) == shape and value.dtype == dtype


cdef PyObject* call_guarded(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef PyObject* function = <PyObject*>(<GuardedCall>self).fast
    cdef PyObject* expected = <PyObject*>(<GuardedCall>self).expected
    cdef PyObject* spec
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(expected)
    if PyVectorcall_NARGS(nargsf) != n or kwnames != NULL:
        function = <PyObject*>(<GuardedCall>self).general
        n = 0
    for i in range(n):
        spec = PyTuple_GET_ITEM(expected, i)
        if Py_TYPE(args[i]) != &PyArray_Type or spec != Py_None and not is_array_like(
                <PyArrayObject*>args[i], PyTuple_GET_ITEM(spec, 0), PyTuple_GET_ITEM(spec, 1)):
            function = <PyObject*>(<GuardedCall>self).general
            break
    return PyObject_Vectorcall(function, args, nargsf, kwnames)


@cython.final
cdef class GuardedCall:
    """Calls `fast` with positional arguments that are all arrays of NumPy's as expected, `general` with any others.

    `expected` has for each argument its shape and dtype, or None where any will do.
    """

    def __cinit__(self, fast not None, general not None, tuple expected):
        self.vectorcall = <vectorcallfunc>call_guarded
        for spec in expected:
            if spec is not None:
                shape, dtype = spec
                if type(spec) is not tuple or type(shape) is not tuple or not isinstance(dtype, numpy.dtype):
                    raise TypeError(f"expected has {spec!r} for an argument, which is no (shape, dtype)")
        self.fast, self.general, self.expected = fast, general, expected

    def __call__(self, *args, **kwargs):
        return own(PyVectorcall_Call(<PyObject*>self, <PyObject*>args, <PyObject*>kwargs))

cdef GuardedCall some_guarded_call = GuardedCall(len, len, ())
make_vectorcallable(GuardedCall, <char*>&some_guarded_call.vectorcall - <char*><PyObject*>some_guarded_call)


@cython.final
cdef class UniversalFunctions:
    """`Tensor.__array_ufunc__`: calls the operator that a universal function of NumPy's is.

    NumPy looks for it in the class. Masked arrays ask the object, and leave `array + tensor` to it where that has None.
    """

    def __get__(self, tensor, owner):
        return self if tensor is None else None

    def __call__(self, tensor, ufunc, method, *inputs, **kwargs):
        operator = universal_functions.get(ufunc) if method == "__call__" and not kwargs else None
        if operator is None:
            raise python_side["ufunc_refusal"](ufunc, method, inputs, kwargs)
        for value in inputs:
            if not is_operand(<PyObject*>value):
                return NotImplemented
        return operator(*inputs)


@cython.final
cdef class Method:
    """An operator as a method of Tensor: the Tensor is its first argument."""

    def __cinit__(self, operator, str name):
        self.operator = operator
        self.__name__ = name

    def __get__(self, tensor, owner):
        return self if tensor is None else PyMethod_New(self.operator, tensor)

    def __call__(self, *args, **kwargs):
        return self.operator(*args, **kwargs)

cdef extern from "Python.h":
    object PyMethod_New(object function, object self)


def second_argument(first, second):
    """Return the second argument: the kernel that costs nothing, for measuring what dispatch costs."""
    return second


def first_of_five(first, a=0, b=0, c=0, d=0):
    """Return the first argument: the same, with defaults."""
    return first
