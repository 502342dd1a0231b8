# The header of the hot path: what a key set, a Tensor, the ambient state and an operator are made of, and what they cost.

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport uint64_t

cimport numpy as cnp

cdef extern from "Python.h":
    ctypedef PyObject* (*vectorcallfunc)(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames)


# --- keys ------------------------------------------------------------------------------------------------------------
#
# A key set is one word:    bits 0-15 backends  |  bits 16-37 functionalities  |  bits 38-63 flags of the arguments.
# A runtime key is a functionality, or, for the per-backend ones, a functionality on a backend; each has a slot in every
# operator's table. Slots ascend in priority.

cdef enum:
    N_BACKENDS = 16
    N_FUNCTIONALITIES = 22
    FIRST_RUNTIME_FUNCTIONALITY = 4     # the names between Python and AutogradOther are given out at run time
    N_RUNTIME_FUNCTIONALITIES = 16
    N_SLOTS = 68                        # slot 0 is Undefined: nothing that could be dispatched on
    MAX_ARGUMENTS = 64                  # sets of arguments are words too

cdef class DispatchKeySet:              # 24 bytes
    cdef readonly uint64_t word


# --- values ----------------------------------------------------------------------------------------------------------
#
# A Tensor wraps one value of the level below. The tape is the lowest level, so below an ordinary Tensor is a raw array;
# below the wrapper of a transform is an ordinary Tensor, a raw array, or a wrapper of the next transform.

cdef class Memory:                      # what the views of one memory share
    cdef long long writes               # counts the in-place writes
    cdef Memory source                  # of a detached Tensor: the memory whose writes are counted
    cdef readonly object array          # once there are views: the array that all of them lie in,
    cdef object edge                    # where the gradient of the whole of it goes,
    cdef bint is_leaf                   # whether that is a leaf,
    cdef unsigned int generation        # and how often that has changed
    cdef object half_swap               # where writes are counted: what a write of a view of this memory may have begun

cdef class Tensor:                      # 72 bytes with the collector's header
    cdef uint64_t word                  # the keys it brings to a call, and its flags
    cdef readonly object array          # the value below; never replaced
    cdef object edge                    # where its gradient goes: None, a Node (its only result), or a Place
    cdef Memory memory                  # None until it is written to or shared
    cdef object __weakref__

cdef class WrapperTensor(Tensor):       # around another Tensor, for subclasses with a handler
    cdef object inner

cdef class Wrapper(Tensor):             # a value of a transform's level
    cdef readonly Interpreter interpreter

cdef class GradTensor(Wrapper):         # of `grad` and `vjp`
    pass

cdef class JvpTensor(Wrapper):          # of `jvp`: a value with a tangent, or None for zero
    cdef object tangent
    cdef unsigned int generation        # of the memory, when the tangent was found

cdef class BatchedTensor(Wrapper):      # of `vmap`: a batch, along the first axis of its array
    cdef object layout                  # an array that lies in memory as one example does; made on demand

cdef class LevelTensor(Wrapper):        # of a transform written in Python
    cdef public object note             # what the transform knows of it
    cdef public object layout           # None, or an array that lies in memory as the value would outside of transforms

cdef class MetaArray:                   # an array without data
    cdef readonly tuple shape
    cdef readonly object dtype
    cdef object owner                   # the array that owns the memory, of a view
    cdef tuple steps                    # the strides; None: those of C order
    cdef object __weakref__

cdef class Shell(MetaArray):            # what a wrapper without memory holds
    cdef uint64_t keys                  # of the backend that it pretends to be of
    cdef public bint fake               # is it a FakeTensor's? Errors say so


# --- ambient state ---------------------------------------------------------------------------------------------------

cdef class Interpreter:                 # one running transform or mode
    cdef readonly bint alive
    cdef readonly State entered         # the state around it
    cdef uint64_t serial                # transforms that are entered later have higher ones
    cdef readonly str name              # of the transform or mode
    cdef readonly object site           # where it was called
    cdef public tuple arguments         # of the function that is transformed, while it runs; or None

cdef class Grad(Interpreter):           # of `grad` and `vjp`
    pass

cdef class Jvp(Interpreter):            # of `jvp`
    pass

cdef class Vmap(Interpreter):           # of `vmap`
    cdef readonly Py_ssize_t batch_size
    cdef readonly str randomness        # "error", "same" or "different"

cdef class Transform(Interpreter):      # a transform written in Python
    cdef readonly bint watches          # does it see what formulas do with constants?

cdef class ActiveMode(Interpreter):     # one entering of a mode
    cdef readonly object mode
    cdef bint whole                     # does it see composite operators whole?
    cdef bint is_on_already             # and entering it again changes nothing

cdef class Mode:
    pass

cdef class Guard:
    cdef str text
    cdef public dict changes            # what State.derive is called with
    cpdef State inside(self, State state)

cdef class Switch(Guard):
    cdef State around                   # until it is entered: what was there,
    cdef State switched                 # and what it made of it
    cdef State take_back(self, State state)

cdef class Setting:
    cdef object variable
    cdef object value
    cdef object shown
    cdef object token

cdef class Entry:                       # of the stack; never changed
    cdef Interpreter level
    cdef Entry outer                    # the next one below,
    cdef int depth                      # and how many there are with this one

cdef class State:                       # immutable once pushed; the chain of parents is the stack of guards
    cdef readonly State parent
    cdef readonly object guard
    cdef Entry entry                    # the innermost entry of the stack; None for an empty one
    cdef readonly Interpreter top       # its transform or mode
    cdef int muted                      # modes of this depth and less are passed over
    cdef uint64_t added                 # keys added to every call
    cdef uint64_t removed[N_BACKENDS + 1]       # functionalities switched off, by bit length of the backends seen
    cdef bint plain                     # keys as outside of all guards, no transform, no tracer
    cdef readonly bint grad             # does the tape record?
    cdef readonly bint forward          # do tangents propagate?
    cdef readonly bint inference        # is what is made here never to be differentiated?
    cdef readonly bint checks_nan
    cdef readonly bint anomaly          # do nodes remember where they were made?
    cdef readonly object saved_hooks    # (pack, unpack), a message that forbids them, or None
    cdef readonly object tracer
    cdef readonly object substitute     # what says which Tensor is meant by one among the arguments of a call; or None
    cdef bint derives                   # are values of levels of `grad` and `jvp` that are not active what they hold?
    cdef readonly str default_backend
    cdef State call_state               # inside of a handler: the state of the call that it handles
    cdef State lowered                  # made on demand: the same without the innermost transform or mode,
    cdef State recording                # this one with the tape on,
    cdef State silent                   # or off,
    cdef State handling                 # and in the handler of a subclass
    cdef object variables               # a mapping of the context variables with this state in it,
    cdef object shown_variables         # the same with another one in its place,
    cdef PyObject* shown                # which is this
    cdef State instead                  # what was to replace this one when it was left, without memory for that,
    cdef object instead_in              # in this context


# --- the tape --------------------------------------------------------------------------------------------------------

cdef enum:
    MAX_SLOTS = 16                      # what the formulas of one operator save

cdef class Derivative:                  # the formulas of one operator, laid out for recording
    cdef readonly str name              # of its nodes
    cdef readonly object operator
    cdef bint broadcasts                # are gradients to be summed over broadcast axes?
    cdef bint in_place
    cdef bint symmetric                 # do two arguments have the same formula?
    cdef readonly tuple formulas        # per schema argument: a function, or None
    cdef tuple inputs                   # per schema argument: which slots its formula takes after the gradient
    cdef uint64_t differentiable        # the arguments that have a formula
    cdef uint64_t lists                 # those that are lists
    cdef uint64_t needs[MAX_ARGUMENTS]  # per argument: the slots its formula takes
    cdef int n_slots
    cdef int slot_kind[MAX_SLOTS]
    cdef int slot_argument[MAX_SLOTS]
    cdef int forward                    # how tangents go through it
    cdef readonly Derivative tangents   # of formulas of its own for that
    cdef readonly tuple shortcuts       # per schema argument: what does the same as its formula on plain arrays, or None
    cdef readonly object source         # the declaration

cdef class Place:                       # one result of a node, or a leaf: where gradients arrive
    cdef readonly Node node             # None: a leaf, or a view that is not tracked
    cdef readonly unsigned int index
    cdef unsigned int generation        # of the memory, when this was found
    cdef readonly bint is_leaf
    cdef readonly bint retains          # is the gradient kept, though it is no leaf?
    cdef public object creation         # why this view must not be written to, or None
    cdef public object grad
    cdef public object hooks            # of a leaf
    cdef public object owner            # a weak reference to the Tensor
    cdef object __weakref__

cdef class Node:                        # one recorded call
    cdef readonly uint64_t sequence     # later calls have higher ones
    cdef uint64_t mark                  # the run of the engine that saw it last
    cdef uint64_t arguments             # the tracked arguments, one bit each
    cdef readonly Derivative derivative
    cdef Interpreter level              # None: the tape
    cdef object edge0                   # where the gradients of the tracked arguments go, in order
    cdef object edge1
    cdef tuple edges                    # all of them, when there are more than two
    cdef object saved0                  # the first slots; a list of all when there are more than four
    cdef object saved1
    cdef object saved2
    cdef object saved3
    cdef unsigned int writes0           # how often each memory had been written to
    cdef unsigned int writes1
    cdef unsigned int writes2
    cdef unsigned int writes3
    cdef unsigned int flags
    cdef Memory memory                  # of a saved result
    cdef object targets                 # None, or per edge: None, or the (shape, dtype) that its gradient is brought to
    cdef readonly object outputs        # of several results: the (shape, dtype) of each
    cdef public object notes            # hooks and where it was made; None
    cdef object __weakref__

cdef class Context:                     # of one call of a Function or custom operator, for its author
    cdef dict __dict__
    cdef object __weakref__
    cdef readonly tuple needs_input_grad
    cdef public bint materialize
    cdef public tuple dirty
    cdef public tuple non_differentiable
    cdef Interpreter level
    cdef tuple to_save
    cdef tuple for_forward
    cdef tuple saved                    # values, how often each had been written to, which output it is or -1
    cdef tuple writes
    cdef tuple indices
    cdef tuple depends_on
    cdef object node                    # a weak reference
    cdef public object _recorded        # a graph that backward goes over, let go of with what is saved
    cdef readonly bint _keeps_graph     # is what was saved kept for another time, by the run that is going on?
    cdef bint released
    cdef bint as_saved                  # do saved values come back as they are, or as those of the level below?
    cdef readonly object substitute     # that of the call, which holds for the author's functions later, too; or None

cdef class RuleNode(Node):              # differentiated by functions of its author
    cdef readonly object rule
    cdef readonly object context
    cdef readonly object inputs         # the (shape, dtype) of each edge's target; False for what is no array
    cdef readonly object returns        # how gradients are nested for the rule; None where nothing is a container


cdef class PullBack:                    # what `vjp` gives
    cdef Grad level
    cdef object root                    # where the cotangent goes; None where the output depends on no primal
    cdef object value                   # the output at the level below
    cdef tuple targets
    cdef tuple primals


# --- operators -------------------------------------------------------------------------------------------------------

cdef class Stack(list):                 # arguments on the way in, results on the way out
    pass

cdef class Signature:                   # a schema, laid out for binding
    cdef readonly object schema
    cdef Py_ssize_t n_arguments
    cdef Py_ssize_t n_positional        # keyword-only arguments come after these
    cdef uint64_t required              # sets of arguments, one bit each
    cdef uint64_t arrays
    cdef uint64_t mutable
    cdef unsigned char kind[MAX_ARGUMENTS]
    cdef tuple names
    cdef tuple single_names             # each name as a tuple, for calls with one keyword
    cdef tuple defaults
    cdef tuple converters
    cdef tuple sizes                    # of lists that a scalar is repeated to fill; else 0
    cdef Py_ssize_t n_returns
    cdef bint returns_fresh_tensor      # exactly one Tensor that shares memory with no argument: the common case
    cdef tuple return_converters
    cdef tuple return_is_tensor
    cdef tuple return_is_list           # is this result one array after the other?
    cdef tuple return_arrays            # may this result hold arrays?
    cdef tuple return_source            # per result: the mutable argument that it is, else -1
    cdef tuple return_views             # per result: the arguments whose memory it may share
    cdef Py_ssize_t device              # the argument that names the backend; -1 without one
    cdef Py_ssize_t view_of             # the argument that the only result may be a view of; -1 where it is otherwise
    cdef bint lists                     # are there array arguments that are containers?
    cdef bint detaches                  # is the result a view whose gradient goes its own way?

cdef extern from "numpy/ufuncobject.h":
    ctypedef void (*PyUFuncGenericFunction)(char**, const cnp.npy_intp*, const cnp.npy_intp*, void*) noexcept

cdef struct Loop:                       # what a ufunc does in the end, with float64
    int kind                            # NO_LOOP: there is none
    int n_in
    PyUFuncGenericFunction function
    void* data
    const char* name

cdef enum:
    MAX_STEPS = 8

cdef struct Step:                       # of a Chain
    Loop loop
    PyObject* operator                  # whose kernel has the loop; NULL for a ufunc itself
    PyObject* table                     # of the operator, when the loop was found; owned
    int n_in
    int kind[2]                         # of the operands
    int value[2]
    double number[2]

cdef class Chain:
    cdef Step steps[MAX_STEPS]
    cdef int n_steps, n_arguments
    cdef tuple functions                # holds the operators

cdef class Product:
    cdef int left, right
    cdef bint left_turned, right_turned

cdef class TableEntry:                  # a kernel as one operator calls it under one key
    cdef object function
    cdef vectorcallfunc call            # its own entry point
    cdef int convention
    cdef Loop loop                      # where the function is a ufunc
    cdef uint64_t fill                  # arguments that are passed even when they equal their default
    cdef readonly object kernel
    cdef readonly str label             # the rule that chose it

cdef class Batching:                    # how a batch of calls is done at once
    cdef Signature signature
    cdef int kind
    cdef tuple changes                  # (position of an argument, function)
    cdef object rule
    cdef int others_rank                # see there; -1 for none

cdef class Table:                       # immutable; replaced whole when a registration changes
    cdef Signature signature
    cdef PyObject* entries[N_SLOTS]     # borrowed from rows
    cdef uint64_t masks[N_BACKENDS + 1]         # functionalities that do not fall through, by bit length of the backends
    cdef readonly tuple rows
    cdef uint64_t last_word             # the last plain call outside of all guards: the word of its arguments,
    cdef PyObject* last_entry           # and the entry that it found
    cdef bint makes                     # does it make an array, so that every level has to see the call?
    cdef bint draws                     # does it draw random numbers, so that every level of vmap has to see the call?
    cdef bint asks_handlers             # are the handlers of classes what it runs under Python?
    cdef dict rules                     # for classes of subclasses, modes and transforms; or None
    cdef readonly Batching batching     # how it is batched; None where nobody has declared that
    cdef readonly object rule           # how it is differentiated: a Derivative, what one is made of, a Rule, or None
    cdef bint settled                   # has it been found to be of use?

cdef class OpOverload:
    cdef vectorcallfunc vectorcall
    cdef Table table                    # None: stale, computed by the next call
    cdef readonly object name
    cdef readonly str removed_at        # where the last registration went away, else None
    cdef public list registrations
    cdef object __weakref__

cdef class Fold:
    cdef vectorcallfunc vectorcall
    cdef object reduce
    cdef bint adds
    cdef readonly str __name__

cdef class ArrayMethod:
    cdef vectorcallfunc vectorcall
    cdef object method
    cdef readonly str __name__

cdef class Writing:
    cdef vectorcallfunc vectorcall
    cdef object function
    cdef type array_type                # of what can be written into
    cdef bint as_out                    # does the function take that as `out` too?
    cdef object refusal
    cdef readonly str __name__

cdef class AnyDevice:
    cdef vectorcallfunc vectorcall
    cdef object function
    cdef object stand_in                # None, or what makes an array of a prototype without data
    cdef readonly str __name__

cdef class Callee:
    cdef vectorcallfunc vectorcall
    cdef public object target

cdef class GuardedCall:
    cdef vectorcallfunc vectorcall
    cdef readonly object fast, general
    cdef readonly tuple expected

cdef class Method:
    cdef readonly object operator
    cdef readonly str __name__

cdef class OpOverloadPacket:
    cdef vectorcallfunc vectorcall
    cdef readonly str name
    cdef readonly tuple overloads       # those with a schema, in order of definition
    cdef object __weakref__
