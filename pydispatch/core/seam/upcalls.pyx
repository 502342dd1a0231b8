# Upcalls: calls from the core to functions written in Python.


@cython.final
cdef class Upcalls:
    pass


upcalls = Upcalls()
cdef frozenset UPCALLS = frozenset([name for name, member in vars(Upcalls).items()
                                    if type(member) is types.GetSetDescriptorType])


def connect(**functions):
    """Connect the functions that the core calls, by name. Raise TypeError for an unknown name."""
    unknown = sorted(functions.keys() - UPCALLS)
    if unknown:
        raise TypeError(f"connect: the core does not call {', '.join(unknown)}\n"
                        "declare the name in core/seam/upcalls.pxd first")
    for name, function in functions.items():
        setattr(upcalls, name, function)


def check_connected():
    """Raise RuntimeError unless every function that the core calls is connected."""
    missing = sorted([name for name in UPCALLS if getattr(upcalls, name) is None])
    if missing:
        raise RuntimeError(f"the core calls {', '.join(missing)}, but no module connects that\n"
                           "call _core.connect in the module that defines it, or list it in _loading.CONNECTED")


def connected(str name):
    """Return the function that was last connected by this name."""
    return getattr(upcalls, name)
