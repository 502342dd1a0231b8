# The order in which NumPy takes loops over small arrays of any layout.

cdef enum:
    MOST_AXES = 8           # of an iteration; arrays of more are left to NumPy
    MOST_OPERANDS = 4
    SMALL_COPIES = 256      # copies of so many doubles lie on the stack

cdef struct Iteration:      # axes that operands are stepped along together, the innermost one first
    int n_operands
    int n_axes
    bint reduces                        # is operand 0 one that others are added up in?
    int order[MOST_AXES]                # which axis each was, counted from the last
    cnp.npy_intp extents[MOST_AXES]
    cnp.npy_intp strides[MOST_AXES][MOST_OPERANDS]
    cnp.npy_intp sizes[MOST_OPERANDS]   # of an element, as a loop sees it
    int mask                            # an operand of bools that loops see as floating-point numbers; -1: none
    int mask_type, mask_ndim            # of these numbers; of the array of bools
    char* pointers[MOST_OPERANDS]

cdef cnp.npy_intp magnitude(cnp.npy_intp number) noexcept nogil
# put the axes along which memory is contiguous innermost, as NumPy does
cdef void order_axes(Iteration* iteration) noexcept nogil
# make one axis of those that every operand steps along alike
cdef void merge_axes(Iteration* iteration) noexcept nogil
# call the loop, no if there is no memory for copies; with `skips_first` operand 0 began as the first of what is reduced
cdef bint run_iteration(
    Iteration* iteration, PyUFuncGenericFunction function, void* data, bint skips_first
) noexcept nogil
