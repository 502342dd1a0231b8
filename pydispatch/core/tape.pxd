# The tape: nodes, derivatives, and where gradients go.

cdef enum:
    MAX_RESIDUALS = 16                      # what the formulas of one operator save

cdef enum:              # what a residual is
    VALUE = 0               # an argument
    RESULT = 1
    SHAPE = 2               # of an argument
    DTYPE = 3

cdef enum:              # how tangents go through an operator
    BY_FORMULAS = 0         # those of `tangents`, else those for gradients, which serve as well
    LINEAR = 1              # as the arguments do
    MULTILINEAR = 2         # one after the other in place of its argument

cdef enum:              # flags of nodes
    COMPLEX = 1             # gradients are conjugated before and after the formulas
    RELEASED = 2            # what was saved is gone
    HOLDS_ARRAYS = 4        # something saved is worth releasing
    PACKED = 8              # residuals went through a user's hook
    SAME = 16               # both arguments of a symmetric operator are the same Tensor

cdef class Derivative:                  # the formulas of one operator, laid out for recording
    cdef readonly str name              # of its nodes
    cdef readonly object operator
    cdef bint broadcasts                # are gradients to be summed over broadcast axes?
    cdef bint in_place
    cdef bint symmetric                 # do two arguments have the same formula?
    cdef bint joint                     # does one formula give the gradients of all arguments, as a tuple?
    cdef bint materializes              # does it take zeros for results that took no part, or None?
    cdef readonly tuple formulas        # per schema argument: a function, or None
    cdef tuple inputs                   # per schema argument: which residuals its formula takes after the gradient
    cdef uint64_t differentiable        # the arguments that have a formula
    cdef uint64_t lists                 # those that are lists
    cdef uint64_t needs[MAX_ARGUMENTS]  # per argument: the residuals its formula takes
    cdef int n_residuals
    cdef int residual_kind[MAX_RESIDUALS]
    cdef int residual_argument[MAX_RESIDUALS]
    cdef int forward                    # how tangents go through it
    cdef readonly Derivative tangents   # of formulas of its own for that
    cdef readonly tuple fused       # per schema argument: what does the same as its formula on raw arrays, or None
    cdef readonly object source         # the declaration

cdef class GradientSlot:                       # one result of a node, or a leaf: where gradients arrive
    cdef readonly TapeNode node             # None: a leaf, or a view that is not tracked
    cdef readonly unsigned int index
    cdef unsigned int generation        # of the memory, when this was found
    cdef readonly bint is_leaf
    cdef readonly bint retains          # is the gradient kept, though it is no leaf?
    cdef public object creation         # why this view must not be written to, or None
    cdef public object grad
    cdef public object hooks            # of a leaf
    cdef public object owner            # a weak reference to the Tensor
    cdef object __weakref__

cdef class TapeNode:                        # one recorded call
    cdef readonly uint64_t sequence     # later calls have higher ones
    cdef uint64_t mark                  # the run of the engine that saw it last
    cdef uint64_t arguments             # the tracked arguments, one bit each
    cdef readonly Derivative derivative
    cdef Interpreter interpreter              # None: the tape
    cdef object edge0                   # where the gradients of the tracked arguments go, in order
    cdef object edge1
    cdef tuple edges                    # all of them, when there are more than two
    cdef object residual0               # the first four; of more than four, a list of all,
    cdef object residual1               # and here a list of the versions of their memories
    cdef object residual2
    cdef object residual3
    cdef unsigned int version0          # of the memory of each, when it was saved
    cdef unsigned int version1
    cdef unsigned int version2
    cdef unsigned int version3
    cdef unsigned int flags
    cdef Memory memory                  # of a saved result
    cdef object targets                 # None, or per edge: None, or the (shape, dtype) that its gradient is brought to
    cdef readonly object outputs        # of several results: the (shape, dtype) of each
    cdef public object notes            # hooks and where it was made; None
    cdef object __weakref__

cdef class CustomNode(TapeNode):              # differentiated by functions of users
    cdef readonly object custom_derivative
    cdef readonly object context
    cdef readonly object inputs         # the (shape, dtype) of each edge's target; False for what is no array
    cdef readonly object returns        # how gradients are nested for the derivative; None where nothing is a pytree

cdef bint is_leaf_edge(edge) noexcept    # does it lead to a leaf?
cdef TapeNode node_of_edge(edge)    # the node that an edge leads to
cdef PyObject* node_at(PyObject* edge) noexcept    # the node that an edge leads to; None at a leaf
# raise for what Python code passes, and gradients cannot be sent to
cdef int check_edges(tuple edges, bint optional) except -1
cdef uint64_t next_sequence() noexcept    # later nodes have higher numbers
cdef Py_ssize_t n_edges(TapeNode node) noexcept    # the number of tracked arguments
cdef PyObject* edge_of(TapeNode node, Py_ssize_t k) noexcept    # where the gradient of tracked argument k goes
cdef int set_requires_grad(Tensor tensor, bint flag) except -1    # make a Tensor a leaf, or no longer one
cdef Interpreter interpreter_of(Tensor tensor)    # the interpreter that a Tensor is a value of; None for the tape
# say where the gradient of a Tensor goes, noting how often its memory's has changed
cdef int set_edge(Tensor tensor, edge) except -1
# raise where a conversion would lose a gradient without a word
cdef int refuse_constant(Tensor tensor, str use) except -1
cdef bint requires_grad_of(Tensor tensor) except -1    # is the gradient of this Tensor asked for?
