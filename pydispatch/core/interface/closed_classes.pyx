# Classes for Python code: whose objects only the core makes, and whose objects are called as fast in subclasses.

ctypedef PyObject* (*newfunc)(PyTypeObject*, PyObject*, PyObject*) noexcept


cdef PyObject* refuse_new(PyTypeObject* cls, PyObject* args, PyObject* kwargs) except NULL:
    raise TypeError(f"{(<object><PyObject*>cls).__name__} objects are made only by operators and transforms")


cdef int close_class(type cls) except -1:
    """Forbid Python code to make objects of a class. `Class.__new__(Class)` in Cython still can."""
    (<vectorcallable*>cls).tp_new = <newfunc>refuse_new
    PyType_Modified(<PyTypeObject*>cls)
    return 0


cdef int close_classes(classes) except -1:
    for cls in classes:
        close_class(cls)
    return 0


close_classes((
    Undo, Block, Change, Memory, State, InterpreterStack, GradientSlot, TapeNode, BackwardPass, VjpFunction, Wrapper,
    *Wrapper.__subclasses__(), Arena, PlanChecker, CodeWriter, TypedLoops))


def keep_vectorcall(type cls):
    """Make objects of a subclass of Callee or CompiledFunction as fast to call as those of the class.

    Before 3.12 Python does not inherit that.
    """
    if issubclass(cls, CompiledFunction):
        make_vectorcallable(cls, vectorcall_offset_of_compiled())
    elif issubclass(cls, Callee):
        make_vectorcallable(cls, <char*>&some_callee.vectorcall - <char*><PyObject*>some_callee)
    else:
        raise TypeError(f"{cls.__name__} is not a subclass of Callee or CompiledFunction")
    return cls
