# Calls of compiled graphs and functions: guards find the plan for the arguments.

cdef class GuardedCall:
    cdef vectorcallfunc vectorcall
    cdef readonly object fast, general
    cdef readonly tuple expected

cdef struct Expected:           # a leaf of an argument, or a pytree node, which its children follow
    int kind
    Py_ssize_t n                # axes of an array, children, or the sign of a number
    PyObject* what              # the dtype, keys, value or type, borrowed from the guard of the variant
    cnp.npy_intp* shape
    cnp.npy_intp* strides       # NULL if any layout in memory will do

cdef class Variant:
    cdef readonly Plan plan
    cdef readonly tuple guard
    cdef readonly object output
    cdef readonly tuple links
    cdef tuple output_items     # the items of `output`, with numbers for kinds, or None if `output` is not a tuple
    cdef Expected* expected
    cdef cnp.npy_intp* extents
    cdef Py_ssize_t n_arguments, n_arrays
    cdef size_t key
    cdef bint has_numbers       # whether it takes any number at some place, so that arguments do not have its key

cdef class CompiledFunction:
    cdef vectorcallfunc vectorcall
    cdef list in_order          # its variants, the most recently used one first while there are few
    cdef list with_numbers
    cdef dict by_key            # lists of the others
    cdef object replaced        # without the GIL: lists that readers may still use
    cdef readonly Py_ssize_t hits
    cdef dict __dict__
    cdef object __weakref__
    cdef int replace_variants(self, list variants) except -1

# return the offset of the vectorcall slot in objects of the class
cdef Py_ssize_t vectorcall_offset_of_compiled() noexcept
