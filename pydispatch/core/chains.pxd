# Formulas as loops that run one after the other.

cdef enum:
    MAX_STEPS = 8

cdef struct UfuncStep:                       # of a UfuncChain
    Loop loop
    PyObject* operator                  # whose kernel has the loop; NULL for a ufunc itself
    PyObject* table                     # of the operator, when the loop was found; owned
    int n_in
    int kind[2]                         # of the operands
    int value[2]
    double number[2]

cdef class UfuncChain:
    cdef UfuncStep steps[MAX_STEPS]
    cdef int n_steps, n_arguments
    cdef bint gradient_comes_first      # is the first argument used in the first step only?
    cdef tuple functions                # holds the operators

cdef class Product:
    cdef int left, right
    cdef bint left_turned, right_turned

# raise for what is no fused formula of a formula with so many arguments
cdef int check_fused(fused_formula, Py_ssize_t n_arguments) except -1
# what a formula gives for these arguments; the first one may be overwritten where `gradient_holders`, if not 0, are all
# references to it
cdef PyObject* run_fused(PyObject* fused_formula, PyObject* const* args, Py_ssize_t gradient_holders) except? NULL
