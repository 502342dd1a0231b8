# Transforms written in Python.

cdef class PythonWrapper(Wrapper):        # a value of a transform written in Python
    cdef public object note             # for the transform's data about it
    cdef public object layout           # None, or an array with the value's memory layout outside transforms

cdef class PythonInterpreter(Interpreter):      # a transform written in Python
    cdef readonly bint watches          # whether it sees the work of formulas on constants
    cdef readonly bint follows_values   # whether it would lose something if one of its values became a constant
    cdef readonly bint takes_new        # whether new Tensors of calls without its values become its values

cdef object call_transform(OpOverload op, Signature signature, Frame* frame, State state, Interpreter interpreter, rule)
