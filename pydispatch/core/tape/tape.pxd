# The tape: nodes, derivatives, and the destinations of gradients.

cdef enum:
    MAX_RESIDUALS = 16                      # the most residuals of the formulas of one operator

cdef enum:              # kinds of residuals
    VALUE = 0               # an argument
    RESULT = 1
    SHAPE = 2               # of an argument
    DTYPE = 3

cdef enum:              # how tangents pass through an operator
    BY_FORMULAS = 0         # by the formulas of `tangents`, else those for gradients, which also serve
    LINEAR = 1              # the operator, applied to the tangents
    MULTILINEAR = 2         # the operator, with one argument at a time replaced by its tangent
    TRANSPOSED = 3          # by the transpose of the formulas for gradients

cdef enum:              # operators on a part of the first argument, which a key selects
    READS_PART = 1
    WRITES_PART = 2

cdef enum:              # how an operator squares its first argument
    ALWAYS = 1
    BY_EXPONENT = 2         # if its second argument is the number 2
    BY_ITSELF = 3           # if both arguments are the same value

cdef enum:              # flags of nodes
    COMPLEX = 1             # gradients are conjugated before and after the formulas
    RELEASED = 2            # its residuals were released
    HOLDS_ARRAYS = 4        # some residuals are worth releasing
    PACKED = 8              # residuals went through a user's hook
    SAME = 16               # both arguments of a symmetric operator are the same Tensor

cdef class Derivative:                  # the formulas of one operator, in a layout for recording
    cdef readonly str name              # of its nodes
    cdef readonly object operator
    cdef bint broadcasts                # whether gradients have to be summed over broadcast axes
    cdef bint in_place
    cdef int part                       # READS_PART or WRITES_PART of its first argument, or 0
    cdef int squares                    # how it squares its first argument, or 0 if it does not
    cdef bint has_kink                  # whether its derivative is a convention at a zero where the square's is known
    cdef bint symmetric                 # whether two arguments have the same formula
    cdef bint joint                     # whether one formula returns the gradients of all arguments, as a tuple
    cdef bint materializes              # whether it takes zeros, not None, for results without a gradient
    cdef readonly bint is_checked          # whether the gradients and tangents from formulas are checked
    cdef readonly tuple formulas        # per schema argument: a function, or None
    cdef tuple inputs                   # per schema argument: the residuals that its formula takes after the gradient
    cdef uint64_t differentiable        # the arguments that have a formula
    # the same in transforms, where an argument whose gradient is always zero is a constant
    cdef uint64_t differentiable_inside
    cdef uint64_t lists                 # the arguments that are lists
    cdef uint64_t needs[MAX_ARGUMENTS]  # per argument: the residuals that its formula takes
    cdef int n_residuals
    cdef int residual_kind[MAX_RESIDUALS]
    cdef int residual_argument[MAX_RESIDUALS]
    cdef int result_residual            # the index of the residual that is the result, or -1
    cdef int forward                    # how tangents pass through it
    cdef readonly Derivative tangents   # separate formulas for tangents
    cdef readonly tuple fused       # per schema argument: an equivalent of its formula for raw arrays, or None
    cdef readonly object source         # the declaration

cdef class GradientSlot:                       # one result of a node, or a leaf: where gradients arrive
    cdef readonly TapeNode node             # None for a leaf, or a view that is not tracked
    cdef readonly unsigned int index
    cdef unsigned int generation        # of the memory, when this was computed
    cdef readonly bint is_leaf
    cdef readonly bint retains          # whether the gradient is kept although it is not a leaf
    cdef public object creation         # the reason why this view must not be written to, or None
    cdef public object grad
    cdef public object hooks            # of a leaf
    cdef public object owner            # a weak reference to the Tensor
    cdef object __weakref__

cdef class TapeNode:                        # one recorded call
    cdef readonly uint64_t sequence     # later calls have higher ones
    cdef uint64_t mark                  # the last run of the engine that saw it
    cdef uint64_t arguments             # the tracked arguments, one bit each
    cdef readonly Derivative derivative
    cdef Interpreter interpreter              # None for the tape
    cdef object edge0                   # the destinations of the tracked arguments' gradients, in order
    cdef object edge1
    cdef tuple edges                    # all of them, if there are more than two
    cdef object residual0               # the first four residuals. If there are more, this is a list of all
    cdef object residual1
    cdef object residual2
    cdef object residual3
    cdef unsigned int flags
    cdef Memory memory                  # of a saved result
    cdef object targets                 # None, or per edge: None, or the (shape, dtype) that its gradient has to have
    cdef readonly object outputs        # for several results: the (shape, dtype) of each
    cdef public object notes            # hooks and the place where it was made, or None
    cdef object __weakref__

cdef class CustomNode(TapeNode):              # differentiated by users' functions
    cdef readonly object custom_derivative
    cdef readonly object context
    cdef readonly object inputs         # the (shape, dtype) of each edge's target, False for a non-array
    cdef readonly object returns        # the structure of gradients for the derivative, or None if nothing is a pytree

cdef bint is_leaf_edge(edge) noexcept    # return whether an edge leads to a leaf
cdef TapeNode node_of_edge(edge)
cdef PyObject* node_at(PyObject* edge) noexcept    # return the node that an edge leads to, None at a leaf
cdef int check_edges(tuple edges, bint optional) except -1
cdef uint64_t next_sequence() noexcept    # return the next number. Later nodes have higher ones
cdef Py_ssize_t n_edges(TapeNode node) noexcept    # return the number of tracked arguments
# return the edge of tracked argument k
cdef PyObject* edge_of(TapeNode node, Py_ssize_t k) noexcept
cdef int set_requires_grad(Tensor tensor, bint flag) except -1    # make a Tensor a leaf, or undo that
cdef int set_edge(Tensor tensor, edge) except -1
cdef Tensor followed_in(Tensor tensor)
cdef bint requires_grad_of(Tensor tensor) except -1
