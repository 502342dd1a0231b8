# What the core asks of Python.


@cython.final
cdef class Upcalls:
    pass


upcalls = Upcalls()
cdef frozenset UPCALLS = frozenset([name for name, member in vars(Upcalls).items()
                                    if type(member) is types.GetSetDescriptorType])


def connect(**functions):
    """Name functions that the core asks. TypeError for a name that it does not know."""
    unknown = sorted(functions.keys() - UPCALLS)
    if unknown:
        raise TypeError(f"connect: the core asks for no {', '.join(unknown)}\n"
                        "declare the name in core/upcalls.pxd first")
    for name, function in functions.items():
        setattr(upcalls, name, function)


def check_connected():
    """RuntimeError unless every function that the core asks for has been named."""
    missing = sorted([name for name in UPCALLS if getattr(upcalls, name) is None])
    if missing:
        raise RuntimeError(f"the core asks for {', '.join(missing)}, which no module connects\n"
                           "call _core.connect in the module that has it, or list it in loading.CONNECTED")


def connected(str name):
    """The function that was named so last."""
    return getattr(upcalls, name)
