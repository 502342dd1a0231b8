# The C API, which extensions in Cython call. Its header is pydispatch/c_api.pxd.

from cpython.pycapsule cimport PyCapsule_New


cdef object tensor_of_array(array):
    if Py_TYPE(<PyObject*>array) == &PyArray_Type and not (<State>borrowed_state()).inference:
        return steal(wrap_ndarray(new_reference(array)))
    return Tensor(array)


cdef object array_of_value(value):
    cdef PyTypeObject* cls = Py_TYPE(<PyObject*>value)
    if cls == &PyArray_Type:
        return value
    if cls == TENSOR_TYPE and (<State>borrowed_state()).plain and not (<Tensor>value).word & TRACKED_FLAG and (
            Py_TYPE(<PyObject*>(<Tensor>value).array) == &PyArray_Type):
        return (<Tensor>value).array
    if isinstance(value, Tensor):
        return value.numpy()
    raise DispatchTypeError(f"array_of: argument value is {type(value).__name__}, expected a Tensor or an ndarray\n"
                            "convert it first: numpy.asarray(value)")


cdef object call_from_c(op, PyObject* const* args, size_t nargsf, PyObject* kwnames):
    if type(op) is OpOverload:
        return steal(call_operator(<PyObject*>op, args, nargsf, kwnames))
    if type(op) is OpOverloadPacket:
        return call_packet(<PyObject*>op, args, nargsf, kwnames)
    raise DispatchTypeError(f"call: argument op is {type(op).__name__}, expected an operator\n"
                            "pass an operator of pydispatch.ops, or call the object directly: f(x)")


cdef PydispatchCApi exported
exported.major = PYDISPATCH_C_API_MAJOR
exported.minor = PYDISPATCH_C_API_MINOR
exported.tensor_type = TENSOR_TYPE
exported.make_tensor = tensor_of_array
exported.array_of = array_of_value
exported.call = call_from_c
C_API = PyCapsule_New(&exported, PYDISPATCH_C_API_NAME, NULL)
