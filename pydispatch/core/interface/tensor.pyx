# The class Tensor, as Python sees it. values.pxd declares it.


@cython.freelist(256)
cdef class Tensor:
    """One raw array with data that an array cannot carry: keys, the destination of its gradient, memory shared with
    views.

    `Tensor(array)` shares memory with `array`, an instance of a registered array type. A number (of Python or NumPy)
    becomes a 0-d array, and a nested list or tuple a new array, as in `numpy.array(values)`. `==` is elementwise.
    Tensors hash by identity, and scalars by value.

    Raises DispatchTypeError for anything else, and for lists that NumPy converts to an array of objects.
    """

    def __init__(self, array, *, bint requires_grad=False):
        cdef uint64_t word
        cdef PyTypeObject* given = Py_TYPE(<PyObject*>array)
        if self.word:
            raise DispatchTypeError("a Tensor's array cannot be replaced\nmake a new one: Tensor(array)")
        if isinstance(array, Wrapper):
            raise DispatchTypeError(
                "Tensor wraps one raw array, but this is a value of "
                f"{describe_interpreter((<Wrapper>array).interpreter)}\n"
                "use the value itself, which is a Tensor"
            )
        if isinstance(array, Tensor):
            if (<Tensor>array).word & SCALAR_FLAG:      # a scalar shares its memory with nothing
                array = upcalls.copy((<Tensor>array).array)
            else:
                self.memory = memory_of_detached(<Tensor>array)
                array = (<Tensor>array).array
        elif is_numpy_scalar(array):        # a Tensor that a user makes is writable
            array = array_of_scalar(array)
        refuse_matrix(<PyObject*>array)
        if isinstance(array, Shell):
            if not has_handler(Py_TYPE(<PyObject*>self)):
                raise DispatchTypeError(
                    f"{type(self).__name__} must define __pydispatch__ to wrap a {(<object>given).__name__}, which has "
                    "no data\n"
                    "define it, or wrap an array: Tensor(array)"
                )
            word = (<Shell>array).keys
        else:
            word = word_of_array(<PyObject*>array)
        if word == 0:
            array = array_of_elements(array)
            word = CPU_WORD
        fill_tensor(self, array, word)
        if Py_TYPE(<PyObject*>self) != TENSOR_TYPE and has_handler(Py_TYPE(<PyObject*>self)):
            self.word |= PYTHON_BIT
        if (<State>borrowed_state()).inference and self.memory is None:
            self.word |= INFERENCE_FLAG
        if requires_grad:
            set_requires_grad(self, True)

    def __array_function__(self, function, types, tuple args not None, dict kwargs not None):
        """Run one of NumPy's functions that was called with a Tensor (NEP 18)."""
        return call_function_of_numpy(function, types, args, kwargs)

    @property
    def keys(self):
        """The key set that this Tensor brings to a call."""
        return keyset(self.word & KEY_BITS)

    @property
    def dispatches_to_python(self):
        """Whether `__pydispatch__` of its class handles operators on it. Decided when the Tensor is made."""
        return self.word & PYTHON_BIT != 0

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        """Run the kernel of `func`. A handler of a subclass calls this with super(). See `below_python`."""
        return below_python(func, *args, **({} if kwargs is None else kwargs))

    @property
    def _version(self):
        """The number of in-place writes to this memory, through any view of it."""
        return 0 if self.memory is None else writes_to(self.memory)

    @property
    def shape(self):
        """Tuple of dimensions."""
        return self.array.shape

    @shape.setter
    def shape(self, value):
        raise AttributeError("a Tensor's shape cannot be replaced\n"
                             f"assign a view of the new shape to the name: y = y.reshape({value!r})")

    @property
    def dtype(self):
        """NumPy dtype of the elements."""
        return dtype_of(<PyObject*>self.array)

    @dtype.setter
    def dtype(self, value):
        raise AttributeError("a Tensor's dtype cannot be replaced\n"
                             "assign the same bytes as another dtype to the name, y = y.view(dtype), or converted "
                             "elements, y = y.astype(dtype)")

    @property
    def ndim(self):
        """Number of dimensions."""
        return self.array.ndim

    @property
    def size(self):
        """Number of elements."""
        size = self.array.size
        return number_of_elements(tuple(self.array.shape)) if callable(size) else size      # a method in torch

    @property
    def itemsize(self):
        """Bytes per element."""
        return self.array.itemsize

    @property
    def nbytes(self):
        """Bytes of all elements."""
        return self.array.nbytes

    @property
    def strides(self):
        """Bytes to step in each dimension."""
        return self.array.strides

    @property
    def requires_grad(self):
        """Whether backward passes compute a gradient for it. This can be set on leaves."""
        return requires_grad_of(self)

    @requires_grad.setter
    def requires_grad(self, bint flag):
        set_requires_grad_of(self, flag)

    @property
    def grad(self):
        """The sum of gradients of backward passes, or None before the first. Results need retain_grad()."""
        if self.edge is None:
            return None
        if is_leaf_edge(self.edge):
            return (<GradientSlot>self.edge).grad
        return upcalls.kept_grad(self)

    @grad.setter
    def grad(self, value):
        if value is not None:
            upcalls.check_grad(self, value)
        if not is_leaf_edge(self.edge):
            gradient_slot_of(self)
        (<GradientSlot>self.edge).grad = value

    # the operators of the language. operators/ defines the library operator for each of them

    def __add__(self, other): return binary(ADD, self, other)
    def __radd__(self, other): return binary(ADD, other, self)
    def __iadd__(self, other): return augmented(IADD, self, other)
    def __sub__(self, other): return binary(SUB, self, other)
    def __rsub__(self, other): return binary(SUB, other, self)
    def __isub__(self, other): return augmented(ISUB, self, other)
    def __mul__(self, other): return binary(MUL, self, other)
    def __rmul__(self, other): return binary(MUL, other, self)
    def __imul__(self, other): return augmented(IMUL, self, other)
    def __truediv__(self, other): return binary(TRUEDIV, self, other)
    def __rtruediv__(self, other): return binary(TRUEDIV, other, self)
    def __itruediv__(self, other): return augmented(ITRUEDIV, self, other)
    def __floordiv__(self, other): return binary(FLOORDIV, self, other)
    def __rfloordiv__(self, other): return binary(FLOORDIV, other, self)
    def __ifloordiv__(self, other): return augmented(IFLOORDIV, self, other)
    def __mod__(self, other): return binary(MOD, self, other)
    def __rmod__(self, other): return binary(MOD, other, self)
    def __imod__(self, other): return augmented(IMOD, self, other)
    def __divmod__(self, other): return divide_with_remainder(self, other)
    def __rdivmod__(self, other): return divide_with_remainder(other, self)
    def __pow__(self, other, modulus): return NotImplemented if modulus is not None else power(POW, self, other)
    def __rpow__(self, other, modulus): return NotImplemented if modulus is not None else binary(POW, other, self)
    def __ipow__(self, other): return augmented(IPOW, self, other)
    def __matmul__(self, other): return binary(MATMUL, self, other)
    def __rmatmul__(self, other): return binary(MATMUL, other, self)
    def __imatmul__(self, other): return augmented(IMATMUL, self, other)
    def __and__(self, other): return binary(AND, self, other)
    def __rand__(self, other): return binary(AND, other, self)
    def __iand__(self, other): return augmented(IAND, self, other)
    def __or__(self, other): return binary(OR, self, other)
    def __ror__(self, other): return binary(OR, other, self)
    def __ior__(self, other): return augmented(IOR, self, other)
    def __xor__(self, other): return binary(XOR, self, other)
    def __rxor__(self, other): return binary(XOR, other, self)
    def __ixor__(self, other): return augmented(IXOR, self, other)
    def __lshift__(self, other): return binary(LSHIFT, self, other)
    def __rlshift__(self, other): return binary(LSHIFT, other, self)
    def __ilshift__(self, other): return augmented(ILSHIFT, self, other)
    def __rshift__(self, other): return binary(RSHIFT, self, other)
    def __rrshift__(self, other): return binary(RSHIFT, other, self)
    def __irshift__(self, other): return augmented(IRSHIFT, self, other)
    def __neg__(self): return unary(NEG, self)
    def __pos__(self): return unary(POS, self)
    def __abs__(self): return unary(ABS, self)
    def __invert__(self): return unary(INVERT, self)
    def __lt__(self, other): return binary(LT, self, other)
    def __le__(self, other): return binary(LE, self, other)
    def __eq__(self, other): return equality(EQ, self, other)
    def __ne__(self, other): return equality(NE, self, other)
    def __gt__(self, other): return binary(GT, self, other)
    def __ge__(self, other): return binary(GE, self, other)

    def __hash__(self):
        if not self.word & SCALAR_FLAG:
            return object.__hash__(self)
        refuse_conversion(self, "hash()")
        value = number_of(self)
        return hash(value[()] if isinstance(value, numpy.ndarray) else value)

    def __getitem__(self, key):
        key = key_of_arrays(key)
        if is_basic_key(key):
            return call_method(GETITEM, self, key, NULL)
        return stand_for_view(self, key, call_method(INDEX, self, key, NULL))

    def __setitem__(self, key, value):
        key = key_of_arrays(key)
        if isinstance(value, (list, tuple)):
            value = upcalls.as_elements(value, self.dtype)
        call_method(SETITEM if is_basic_key(key) else INDEX_PUT, self, key, <PyObject*>value)

    def __delitem__(self, key):
        raise ValueError("cannot delete elements of a Tensor\nuse pydispatch.numpy.delete(tensor, index, axis)")

    def __len__(self):
        if is_of_other_backend(<PyObject*>self.array) and self.array.shape:     # which may not be a container
            return self.array.shape[0]
        return len(self.array)

    def __iter__(self):
        if self.array.ndim == 0:
            raise TypeError("iteration over a 0-d Tensor")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value):
        check_concrete(self, "a truth value")
        equal = self == value
        return isinstance(equal, Tensor) and bool(number_of(equal.any()))

    def __bool__(self):
        check_concrete(self, "bool()")
        return bool(number_of(self if followed_in(self) is None else detached(self)))

    def __int__(self):
        refuse_conversion(self, "int()")
        return int(number_for(int, self))

    def __float__(self):
        refuse_conversion(self, "float()")
        return float(number_for(float, self))

    def __complex__(self):
        refuse_conversion(self, "complex()")
        return complex(number_for(complex, self))

    def __index__(self):
        refuse_conversion(self, "an index")
        return as_index(number_of(self))

    def __repr__(self):
        return upcalls.tensor_repr(self)

    def __str__(self):
        return upcalls.tensor_str(self)


cdef object array_of_elements(values):
    """Return a new array of a Python number or a nested sequence, for Tensor()."""
    if not isinstance(values, (int, float, complex, list, tuple)):
        raise DispatchTypeError(
            f"Tensor wraps one raw array, not {type(values).__name__}\n"
            "write Tensor(numpy.asarray(...)), or register the type: pydispatch.register_array_type(...)"
        )
    array = numpy.array(values)
    if array.dtype.hasobject:
        raise DispatchTypeError(
            f"Tensor was called with {a_type(values)} , of which NumPy makes an array of objects\n"
            "pass numbers that fit a NumPy dtype, or the array: Tensor(numpy.array(values, dtype=object))"
        )
    return array


set_base_handler(Tensor.__pydispatch__)

# --- the free list of arrays ------------------------------------------------------------------------------------------

cdef destructor free_tensor = (<vectorcallable*>Tensor).tp_dealloc
cdef destructor free_grad_tensor = (<vectorcallable*>GradTensor).tp_dealloc


cdef void dealloc_tensor(PyObject* tensor) noexcept:
    cdef PyObject* array = new_reference((<Tensor>tensor).array)
    free_tensor(tensor)
    release_reference(array)


cdef void dealloc_grad_tensor(PyObject* tensor) noexcept:
    cdef PyObject* array = new_reference((<Tensor>tensor).array)
    free_grad_tensor(tensor)
    release_reference(array)


if HAS_FREE_LISTS:
    (<vectorcallable*>Tensor).tp_dealloc = dealloc_tensor
    (<vectorcallable*>GradTensor).tp_dealloc = dealloc_grad_tensor
