# Operators and their overloads, which users call.


cdef object call_packet(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames):
    """Call the first overload whose arguments convert: step 1 for a packet."""
    cdef OpOverloadPacket packet = <OpOverloadPacket>self
    cdef OpOverload op
    cdef Table table
    cdef Frame frame
    cdef PyObject* result
    cdef PyObject* bound
    cdef tuple overloads = packet.overloads     # held in case a kernel removes its own operator
    if overloads and fast_path(PyTuple_GET_ITEM(<PyObject*>overloads, 0), args, nargsf, kwnames, &result):
        return steal(result)
    if len(overloads) == 1:
        return call_in_general(overloads[0], args, nargsf, kwnames)
    op = bind_first(&frame, &bound, packet, args, nargsf, kwnames)
    table = <Table>steal(bound)
    return call_bound(op, table, &frame)


cdef OpOverload bind_first(
    Frame* frame, PyObject** bound, OpOverloadPacket packet, PyObject* const* args, size_t nargsf, PyObject* kwnames
):
    """Return the first overload that takes the arguments. Fill the frame of its call, and set `bound` to a reference to
    its table.

    Overloads that take an array as a number are tried after all that take it as an array. The choice does not depend on
    whether an array happens to have one element.
    """
    cdef OpOverload op
    cdef Table table
    cdef list second = None
    for op in packet.overloads:
        table = table_of(op)
        if not takes_names(table.signature, PyVectorcall_NARGS(nargsf), kwnames):
            continue
        if takes_array_as_number(table.signature, args, nargsf, kwnames):
            second = keep_in(second, op)
        elif could_bind(frame, op, table.signature, args, nargsf, kwnames):
            bound[0] = new_reference(table)
            return op
    for op in second or ():
        table = table_of(op)
        if could_bind(frame, op, table.signature, args, nargsf, kwnames):
            bound[0] = new_reference(table)
            return op
    raise refusal(packet, args, nargsf, kwnames)


cdef inline bint could_bind(
    Frame* frame, op, Signature signature, PyObject* const* args, size_t nargsf, PyObject* kwnames
) except -1:
    """Bind, or return False. Check the names first: an error of `bind` is an exception, and slow."""
    try:
        bind(frame, op, signature, args, nargsf, kwnames)
    except DispatchTypeError:
        return False
    return True


cdef bint takes_array_as_number(
    Signature signature, PyObject* const* args, size_t nargsf, PyObject* kwnames
) except -1:
    """Return whether an array is among the arguments, or in a pytree there, where the schema has none."""
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf), i, k
    for k in range(n + (0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames))):
        i = k if k < n else position_of(signature, PyTuple_GET_ITEM(kwnames, k - n))
        if 0 <= i < signature.n_arguments and not signature.arrays & bit(i) and holds_true_array(args[k]):
            return True
    return False


cdef bint holds_true_array(PyObject* value) except -1:
    """Return whether a value is or contains an array other than a NumPy scalar."""
    if holds_nothing(value):
        return False
    for leaf in array_leaves(<object>value):
        if not is_numpy_scalar(leaf):
            return True
    return False


cdef object refusal(OpOverloadPacket packet, PyObject* const* args, size_t nargsf, PyObject* kwnames):
    """Return the error of a call that no overload takes, with each overload's reason."""
    cdef OpOverload op
    cdef Frame frame
    refusals = []
    for op in packet.overloads:
        try:
            bind(&frame, op, table_of(op).signature, args, nargsf, kwnames)
        except DispatchTypeError as error:
            refusals.append(error)
        else:
            release(&frame)
    return upcalls.no_overload(packet, refusals)


cdef bint takes_names(Signature signature, Py_ssize_t n, PyObject* kwnames) except -1:
    """Return whether a call with n positional arguments and these names may bind. `bind` would raise instead."""
    cdef uint64_t passed
    cdef Py_ssize_t i, k
    if n > signature.n_positional:
        return False
    passed = bit(n) - 1 if n < MAX_ARGUMENTS else ~<uint64_t>0
    if kwnames != NULL:
        for k in range(PyTuple_GET_SIZE(kwnames)):
            i = position_of(signature, PyTuple_GET_ITEM(kwnames, k))
            if i < 0 or passed & bit(i):
                return False
            passed |= bit(i)
    return signature.required & ~passed == 0


cdef tuple flatten_call(tuple args, dict kwargs):
    """Return (values, names) for vectorcall."""
    cdef Py_ssize_t i, n, n_names, position = 0
    cdef PyObject* name
    cdef PyObject* value
    cdef tuple values, names
    if not kwargs:
        return args, None
    n, n_names = len(args), len(kwargs)
    values, names = PyTuple_New(n + n_names), PyTuple_New(n_names)      # faster than from `kwargs.values()`
    for i in range(n):
        item = args[i]
        Py_INCREF(item)
        PyTuple_SET_ITEM(values, i, item)
    for i in range(n_names):
        PyDict_Next(<PyObject*>kwargs, &position, &name, &value)
        Py_INCREF(<object>name)
        PyTuple_SET_ITEM(names, i, <object>name)
        Py_INCREF(<object>value)
        PyTuple_SET_ITEM(values, n + i, <object>value)
    return values, names


cdef int bind_tuple(Frame* frame, op, Signature signature, tuple values, names) except -1:
    cdef Py_ssize_t n = len(values) - (0 if names is None else len(names))
    return bind(frame, op, signature, items_of(values), n, NULL if names is None else <PyObject*>names)


cdef int complete(OpOverload op) except -1:
    """Make the registrations of an operator of the library from its declaration."""
    cdef object declaration = op.declaration
    cdef list registrations
    if declaration is None:
        return 0
    registrations = upcalls.declared(op, declaration)
    operator_name(op)
    if IS_FREE_THREADED:
        with cython.critical_section(op):
            return complete_by(op, declaration, registrations)
    return complete_by(op, declaration, registrations)


cdef inline int complete_by(OpOverload op, declaration, list registrations) except -1:
    if op.declaration is declaration:       # else another thread was faster
        former = op.own_registrations
        op.own_registrations = registrations + former
        op.declaration = None
        keep_for_readers(declaration)
        keep_for_readers(former)
    return 0


cdef object operator_name(OpOverload op):
    """Return the name of an operator."""
    cdef object declaration = op.declaration
    if op.own_name is None and declaration is not None:
        op.own_name = upcalls.name_declared(declaration)
    return op.own_name


@cython.final
cdef class OpOverload:
    """One operator: a name with an overload name, a schema, and kernels under dispatch keys. Call it to run it.

    Registration makes it, and `pydispatch.ops` finds it. When its last registration is removed it is retired, and
    calling it raises StaleOperatorError. It pickles by name.
    """

    def __cinit__(self, name):
        self.vectorcall = <vectorcallfunc>call_operator
        self.own_name = name
        self.own_registrations = []
        share_freely(self)

    @property
    def name(self):
        return operator_name(self)

    @property
    def registrations(self):
        complete(self)
        return self.own_registrations

    @registrations.setter
    def registrations(self, list registrations not None):
        complete(self)
        self.own_registrations = registrations

    @property
    def sole_declaration(self):
        """The declaration of an operator of the library that has no other registrations, else None."""
        return None if self.own_registrations else self.declaration

    def __call__(self, *args, **kwargs):
        return steal(call_by_slot(<PyObject*>self, self.vectorcall, <PyObject*>args, <PyObject*>kwargs))

    def redispatch(self, DispatchKeySet keyset, /, *args, **kwargs):
        """Call the kernel of the highest key of `keyset`, which is used unchanged: no argument or guard adds to it.

        Use it in a kernel registered with `with_keyset=True`: `op.redispatch(keys & DispatchKeySet.full_after(key),
        ...)`.
        """
        cdef Table table = table_of(self)
        cdef Frame frame
        values, names = flatten_call(args, kwargs)
        bind_tuple(&frame, self, table.signature, values, names)
        try:
            return run(self, table, &frame, keyset.word, state_now(), BY_REDISPATCH)
        finally:
            release(&frame)

    def call_entry(self, TableEntry entry, DispatchKeySet keyset, /, *args, **kwargs):
        """Call one entry of a table, past or present, as if it had been chosen for `keyset`."""
        cdef Table table = table_of(self)
        cdef Frame frame
        values, names = flatten_call(args, kwargs)
        bind_tuple(&frame, self, table.signature, values, names)
        try:
            return run_entry(self, table, entry, &frame, keyset.word, state_now(), BY_KERNEL)
        finally:
            release(&frame)

    def call_boxed(self, stack, /):
        """Pop one value per schema argument from `stack`, call the operator, and push the results.

        If the call raises, the stack is unchanged.
        """
        cdef Table table = table_of(self)
        cdef Frame frame
        cdef Py_ssize_t n = table.signature.n_arguments
        if not isinstance(stack, list):
            raise DispatchTypeError(
                f"operator {self.name}: the stack is {a_type(stack)}, expected a pydispatch.Stack or list\n"
                "write op.call_boxed(Stack(values))"
            )
        if len(stack) < n:
            raise upcalls.short_stack(self, table.signature.schema, len(stack))
        values = tuple(stack[len(stack) - n:])
        bind_values(&frame, self, table.signature, values)
        try:
            result = dispatch(self, table, &frame, state_now(), BY_STACK)
        finally:
            release(&frame)
        if n:
            del stack[len(stack) - n:]
        if table.signature.n_returns == 1:
            stack.append(result)
        elif result is not None:
            stack.extend(result)

    def bind(self, args=(), kwargs=None):
        """Return the tuple that `strip_defaults` takes: a converted value or default for each schema argument."""
        cdef Table table = table_of(self)
        cdef Signature signature = table.signature
        cdef Frame frame
        cdef Py_ssize_t i
        cdef list bound = []
        values, names = flatten_call(tuple(args), dict(kwargs or {}))
        bind_tuple(&frame, self, signature, values, names)
        try:
            for i in range(signature.n_arguments):
                bound.append(<object>value_or_default(&frame, signature, i))
            return tuple(bound)
        finally:
            release(&frame)

    def strip_defaults(self, values):
        """Return (args, kwargs) as a kernel gets them, from one value per schema argument.

        Trailing positional arguments that equal their defaults are dropped, and each such keyword-only argument.
        """
        cdef Table table = table_of(self)
        cdef Signature signature = table.signature
        cdef Frame frame
        cdef Py_ssize_t i, positional = signature.n_positional
        values = tuple(values)
        if len(values) != signature.n_arguments:
            raise upcalls.wrong_number_of_values(self, table.signature.schema, len(values))
        bind_values(&frame, self, signature, values)
        try:
            while positional > 0 and is_default(<PyObject*>signature, positional - 1, frame.values[positional - 1]):
                positional -= 1
            return (
                tuple([<object>frame.values[i] for i in range(positional)]),
                {signature.names[i]: <object>frame.values[i]
                 for i in range(signature.n_positional, signature.n_arguments)
                 if not is_default(<PyObject*>signature, i, frame.values[i])},
            )
        finally:
            release(&frame)

    def fill_defaults(self, args=(), kwargs=None, *, by_name=False):
        """Return (args, kwargs) with every argument present: positional where possible, or all `by_name`."""
        cdef Signature signature = table_of(self).signature
        values = self.bind(args, kwargs)
        n = 0 if by_name else signature.n_positional
        return values[:n], dict(zip(signature.names[n:], values[n:]))

    def py_impl(self, key):
        """Return a decorator that registers a kernel for a dispatch key.

        Raises RegistrationError for the Python key, which belongs to the handlers, and for a class, whose rule
        `library.register_pydispatch` registers.
        """
        return upcalls.py_impl(self, key)

    @property
    def live_table(self):
        """The table that the next call uses, or None if that call will compute it."""
        return self.table

    def install_table(self, Table table or None):
        """Publish a table. None marks the operator stale, so that the next call computes one."""
        former = self.table
        self.table = table
        keep_for_readers(former)

    def __reduce__(self):
        return upcalls.reduce_operator(self)

    def __repr__(self):
        return f"<OpOverload {self.name}>"


def overload_name(OpOverload op):
    """Return the name of an overload in its packet."""
    return operator_name(op).overload or "default"


@cython.final
cdef class OpOverloadPacket:
    """The overloads of one operator name. Calling it calls the first whose arguments convert.

    `packet.default` is the overload without a name, `packet.<overload>` any other.
    """

    def __cinit__(self, str name):
        self.vectorcall = <vectorcallfunc>call_packet
        self.name = name
        self.overloads = ()
        share_freely(self)

    def __call__(self, *args, **kwargs):
        return steal(call_by_slot(<PyObject*>self, self.vectorcall, <PyObject*>args, <PyObject*>kwargs))

    def resolve(self, *args, **kwargs):
        """Return the overload that a call with these arguments runs."""
        cdef OpOverload op
        cdef Frame frame
        cdef Py_ssize_t n = len(args)
        cdef PyObject* table
        values, names = flatten_call(args, kwargs)
        op = bind_first(&frame, &table, self, items_of(values), n, NULL if names is None else <PyObject*>names)
        release(&frame)
        Py_DECREF(table)
        return op

    def __getattr__(self, attribute):
        for op in self.overloads:
            if attribute == overload_name(op):
                return op
        if len(self.overloads) == 1 and hasattr(OpOverload, attribute):
            return getattr(self.overloads[0], attribute)
        raise upcalls.no_such_overload(self, attribute)

    def __dir__(self):
        return [*object.__dir__(self), *map(overload_name, self.overloads)]

    def __reduce__(self):
        return upcalls.reduce_packet(self)

    def __repr__(self):
        return f"<OpOverloadPacket {self.name} ({', '.join(map(overload_name, self.overloads))})>"


cdef class Stack(list):
    """The argument stack of boxed calls. Values are pushed left to right. A kernel pops them and pushes its results."""

    def push(self, *values):
        """Push values, the last one topmost."""
        self.extend(values)

    def pop_arguments(self, Py_ssize_t n):
        """Pop the top n values, as a tuple in the order in which they were pushed."""
        if n > len(self):
            raise IndexError(f"cannot pop {n} values from a stack of {len(self)}")
        if n == 0:
            return ()
        values = tuple(self[len(self) - n:])
        del self[len(self) - n:]
        return values


cdef OpOverload some_overload = OpOverload(None)
make_vectorcallable(OpOverload, <char*>&some_overload.vectorcall - <char*><PyObject*>some_overload)
cdef OpOverloadPacket some_packet = OpOverloadPacket("")
make_vectorcallable(OpOverloadPacket, <char*>&some_packet.vectorcall - <char*><PyObject*>some_packet)
