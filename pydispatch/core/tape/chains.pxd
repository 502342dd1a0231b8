# Formulas as chains of loops.

cdef enum:
    MAX_STEPS = 8

cdef struct UfuncStep:                       # a step of a UfuncChain
    Loop loop
    PyObject* operator                  # the operator whose kernel has the loop, or NULL for a ufunc
    PyObject* table                     # the operator's table when the loop was found (owned)
    int n_in
    int kind[2]                         # of the operands
    int value[2]
    double number[2]

cdef class UfuncChain:
    cdef UfuncStep steps[MAX_STEPS]
    cdef int n_steps, n_arguments
    cdef bint gradient_comes_first      # whether only the first step uses the first argument
    cdef tuple functions                # keeps the operators alive

cdef class Product:
    cdef int left, right
    cdef bint left_turned, right_turned

cdef int check_fused(fused_formula, Py_ssize_t n_arguments) except -1
# return the result of a fused formula, or NULL if the formula has to be called. The first argument may be overwritten
# if `gradient_holders`, unless 0, are all references to it
cdef PyObject* run_fused(PyObject* fused_formula, PyObject* const* args, Py_ssize_t gradient_holders) except? NULL
