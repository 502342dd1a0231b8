# Pytrees: flattened into leaves, and rebuilt from them.
#
# tree.py defines pytrees. It passes the core its specs, its leaves and a function that finds the node of any other
# class. Tuples, lists and dicts, which are nearly all nodes, are processed here.


cdef object array_leaves(value):
    """Return the arrays in a value, depth first: itself, or those in a pytree."""
    cdef list leaves
    if word_of_array(<PyObject*>value):
        return (value,)
    if holds_nothing(<PyObject*>value):
        return ()
    if type(value) is not tuple:
        return upcalls.array_leaves(value)
    leaves = []
    enter_recursive_call()
    try:
        for item in <tuple>value:
            if word_of_array(<PyObject*>item):
                leaves.append(item)
            elif not holds_nothing(<PyObject*>item):
                leaves.extend(array_leaves(item))
    finally:
        leave_recursive_call()
    return leaves


cdef object new_tuple = tuple.__new__     # skips the __new__ of named tuples, which is in Python


@cython.final
cdef class Flattening:
    """A function `flattening(pytree)` that returns (leaves, spec), depth first.

    Specs are a `spec_type` of (class, context, children), those of tuples of leaves `flat_spec(n)`, that of a leaf is
    `leaf`. Objects are leaves if their class is in `leaves`, or if `node_of(class)` returns None.
    """
    cdef type spec_type
    cdef object leaf
    cdef object flat_spec
    cdef frozenset leaves
    cdef object node_of

    def __init__(self, type spec_type, leaf, flat_spec, frozenset leaves, node_of):
        self.spec_type = spec_type
        self.leaf = leaf
        self.flat_spec = flat_spec
        self.leaves = leaves
        self.node_of = node_of

    def __call__(self, value):
        cdef list leaves = []
        return leaves, flatten_into(self, value, leaves)


cdef object flatten_into(Flattening how, value, list leaves):
    """Append the leaves of a value. Return its spec."""
    cls = type(value)
    if cls in how.leaves:
        leaves.append(value)
        return how.leaf
    if cls is tuple:
        return spec_of_children(how, cls, None, value, leaves)
    if cls is list:
        return spec_of_children(how, cls, None, tuple(<list>value), leaves)
    if cls is dict:
        return spec_of_children(how, cls, tuple(<dict>value), tuple((<dict>value).values()), leaves)
    node = how.node_of(cls)
    if node is None:
        leaves.append(value)
        return how.leaf
    children, context = node.flatten(value)
    return spec_of_children(how, cls, context, tuple(children), leaves)


cdef object spec_of_children(Flattening how, cls, context, tuple children, list leaves):
    cdef list found = []
    cdef bint is_flat = cls is tuple
    enter_recursive_call()
    try:
        for child in children:
            spec = flatten_into(how, child, leaves)
            is_flat = is_flat and spec is how.leaf
            found.append(spec)
    finally:
        leave_recursive_call()
    if is_flat:
        return how.flat_spec(len(found))
    return new_tuple(how.spec_type, (cls, context, tuple(found)))


def unflatten_from(leaves, spec, node_of):
    """Build the pytree of a spec from the next leaves of an iterator. `node_of` is as in Flattening."""
    cdef list children = []
    cls, context, specs = spec
    if cls is None:
        return next(leaves)
    enter_recursive_call()
    try:
        for child in specs:
            children.append(unflatten_from(leaves, child, node_of))
    finally:
        leave_recursive_call()
    if cls is tuple:
        return tuple(children)
    if cls is list:
        return children
    if cls is dict:
        return dict(zip(context, children))
    return node_of(cls).unflatten(children, context)


cdef object leaves_of_flat(value, spec):
    """Return the Tensors in a value with the structure of `spec`, else None.

    The value may be a Tensor, or a tuple of Tensors and None.
    """
    cdef tuple children = <tuple>(<tuple>spec)[2]
    cdef tuple leaves
    cdef Py_ssize_t i, k = 0
    cdef object child
    if (<tuple>spec)[0] is None:
        return (value,) if isinstance(value, Tensor) else None
    if (<tuple>spec)[0] is not tuple or type(value) is not tuple or len(<tuple>value) != len(children):
        return None
    for i in range(len(children)):
        child = (<tuple>value)[i]
        kind = (<tuple>children[i])[0]
        if kind is None and isinstance(child, Tensor):
            k += 1
        elif child is not None or <PyObject*>kind != <PyObject*>Py_TYPE(Py_None):
            return None
    leaves = PyTuple_New(k)
    k = 0
    for i in range(len(children)):
        child = (<tuple>value)[i]
        if child is not None:
            Py_INCREF(child)
            PyTuple_SET_ITEM(leaves, k, child)
            k += 1
    return leaves


cdef bint add_leaves(value, spec, list leaves) except -1:
    cdef tuple children = <tuple>(<tuple>spec)[2]
    cdef Py_ssize_t i
    kind = (<tuple>spec)[0]
    if kind is None:
        leaves.append(value)
        return isinstance(value, Tensor)
    if <PyObject*>kind != <PyObject*>Py_TYPE(<PyObject*>value):
        return False
    if kind is tuple:
        if len(<tuple>value) != len(children):
            return False
        for i in range(len(children)):
            if not add_leaves((<tuple>value)[i], children[i], leaves):
                return False
        return True
    if kind is list:
        if len(<list>value) != len(children):
            return False
        for i in range(len(children)):
            if not add_leaves((<list>value)[i], children[i], leaves):
                return False
        return True
    if kind is dict:
        return len(<dict>value) == len(children) and take_items(<dict>value, (<tuple>spec)[1], children, leaves)
    return value is None


cdef bint take_items(dict value, tuple keys, tuple children, list leaves) except -1:
    cdef Py_ssize_t i
    for i in range(len(keys)):
        if keys[i] not in value or not add_leaves(value[keys[i]], children[i], leaves):
            return False
    return True
