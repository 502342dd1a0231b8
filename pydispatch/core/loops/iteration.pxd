# Iteration over small arrays of any layout, with loops in NumPy's order.

cdef enum:
    MOST_AXES = 8           # of an iteration, as NumPy serves arrays with more
    MOST_OPERANDS = 4
    SMALL_COPIES = 256      # copies of so many doubles fit on the C stack

cdef struct Iteration:      # axes that operands are stepped along together, the innermost first
    int n_operands
    int n_axes
    bint reduces                        # whether operand 0 is the result of a reduction
    int order[MOST_AXES]                # the original number of each axis, counted from the last
    cnp.npy_intp extents[MOST_AXES]
    cnp.npy_intp strides[MOST_AXES][MOST_OPERANDS]
    cnp.npy_intp sizes[MOST_OPERANDS]   # bytes per element, as a loop sees it
    int mask                            # the operand of bools that loops see as floats, or -1 if there is none
    int mask_type, mask_ndim            # the type of these numbers, the number of axes of the bools
    char* pointers[MOST_OPERANDS]

cdef cnp.npy_intp magnitude(cnp.npy_intp number) noexcept nogil
# put the axes along which memory is contiguous innermost, as NumPy does
cdef void order_axes(Iteration* iteration) noexcept nogil
# merge axes that every operand steps along alike
cdef void merge_axes(Iteration* iteration) noexcept nogil
# call the loop. Return False if there is not enough memory for copies. With `skips_first`, operand 0 starts as the
# first of the elements that are reduced
cdef bint run_iteration(
    Iteration* iteration, PyUFuncGenericFunction function, void* data, bint skips_first
) noexcept nogil
