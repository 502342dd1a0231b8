# Wide loops: arithmetic on many elements with wider instructions than NumPy's own loops have, and the same bits.

cdef extern from "plans/src/wide_loops.h":
    PyUFuncGenericFunction wide_loop(int operation, bint is_double) noexcept nogil
    PyUFuncGenericFunction laid_out_loop(PyUFuncGenericFunction function, bint is_double) noexcept nogil

cdef int widen_loop(PlanStep* step, tuple loop) except -1
