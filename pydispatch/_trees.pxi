# --- containers: taken apart, and put together again ------------------------------------------------------------------
#
# What a container is, tree.py says: the core is given its specs, its leaves and what finds the way into any other class.
# Tuples, lists and dicts, which are nearly all that there is, are gone through here.

cdef object new_tuple = tuple.__new__     # past the __new__ of named tuples, which is in Python


@cython.final
cdef class Flattening:
    """`flattening(container)`: (leaves, spec), depth first.

    Specs are a `spec_type` of (class, context, children), those of tuples of leaves `flat_spec(n)`, that of a leaf is
    `leaf`. Objects of the classes in `leaves` are leaves, and so is what `node_of(class)` gives None for.
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
    """Add the leaves of a value; returns its spec."""
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
    """The container of a spec with the next of these leaves, an iterator's; `node_of` as in Flattening."""
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
