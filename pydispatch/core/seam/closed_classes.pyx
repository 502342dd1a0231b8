# Classes whose objects only the core makes.

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
    GradTensor, JvpTensor, BatchedTensor, PythonWrapper, Arena, PlanChecker, CodeWriter,
    TypedLoops))
