# Transforms written in Python.

cdef class PythonWrapper(Wrapper):        # of a transform written in Python
    cdef public object note             # what the transform knows of it
    cdef public object layout           # None, or an array that lies in memory as the value would outside of transforms

cdef class PythonInterpreter(Interpreter):      # a transform written in Python
    cdef readonly bint watches          # does it see what formulas do with constants?

# let a transform written in Python, or a rule for the class of a transform, do what a call means
cdef object call_transform(OpOverload op, Signature signature, Frame* frame, State state, Interpreter interpreter, rule)
