# Wide loops: arithmetic on many elements with wider instructions than NumPy's own loops have, and the same bits.

cdef extern from "plans/src/wide_loops.h":
    PyUFuncGenericFunction wide_loop(int operation, bint is_double) noexcept nogil
    PyUFuncGenericFunction laid_out_loop(PyUFuncGenericFunction function, bint is_double) noexcept nogil

cdef extern from "plans/src/trigonometric_loops.h":
    PyUFuncGenericFunction trigonometric_loop(int operation, PyUFuncGenericFunction numpys) noexcept nogil

cdef extern from "plans/src/small_products.h":
    # NULL unless it gives the same bits as NumPy's loop, on matrices whose rows or columns are in C order
    PyUFuncGenericFunction small_product_loop(int n, PyUFuncGenericFunction numpys, void* data) noexcept nogil

cdef extern from "plans/src/small_inverses.h":
    PyUFuncGenericFunction small_inverse_loop(int n, bint is_inverse, PyUFuncGenericFunction numpys) noexcept nogil

cdef dict IS_INVERSE              # whether a function of LAPACK that small loops replace is the inverse
cdef void take_small_product(PlanStep* step) noexcept
cdef void take_small_inverse(PlanStep* step, bint is_inverse) noexcept
cdef int widen_loop(PlanStep* step, tuple loop) except -1
