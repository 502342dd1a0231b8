# Registrations: locks, and changes that take effect as a whole or not at all.

# --- locks ------------------------------------------------------------------------------------------------------------

cdef object locks = weakref.WeakSet()


cdef class Lock:
    """A reentrant lock. In a forked child it is free, unless the thread that forked holds it."""

    def __init__(self):
        try:
            self.inner = _thread.RLock()
        except RuntimeError as error:       # CPython's error when there is no memory for a lock
            raise MemoryError(str(error)) from None
        locks.add(self)

    def __enter__(self):
        self.inner.acquire()
        return self

    def __exit__(self, kind, error, trace):
        self.inner.release()

    def _is_owned(self):
        """Return whether this thread holds the lock. The name is that of Python's locks."""
        return self.inner._is_owned()

    cdef int free(self) except -1:
        """Free the lock in a forked process, in which the other threads that held it do not exist."""
        if not self.inner._is_owned():
            self.inner = _thread.RLock()
        return 0


cdef class Undo:
    """The undoing of one action in a block of `Registering`."""

    cdef Undo earlier
    cdef object function

    cdef int undo(self) except -1:
        self.function()
        return 0


@cython.final
cdef class Block:
    """A block whose registrations take effect together."""

    cdef Block outer
    cdef Undo before            # the last action before the block


@cython.final
cdef class Registering(Lock):
    """The lock for registrations. If an exception leaves a block, its actions are undone, the latest first."""

    cdef Block block            # the innermost block of the holder
    cdef Undo last              # the last action in the outermost block

    def __enter__(self):
        self.enter()
        return self

    def __exit__(self, kind, error, trace):
        if self.block is None or not self.inner._is_owned():
            raise RuntimeError("the lock was released by a thread that does not hold it")
        fails = kind is not None
        try:
            if not fails and self.block.outer is None:
                fails = True
                PyErr_CheckSignals()    # after the block, an interrupt would leave the registrations in force
                fails = False
        finally:
            self.leave(fails)

    cdef int enter(self) except -1:
        cdef Block block = Block.__new__(Block)     # nothing may fail once the lock is taken
        self.inner.acquire()
        block.outer = self.block
        block.before = self.last
        self.block = block
        return 0

    cdef int leave(self, bint undoes) except -1:
        cdef Block block = self.block
        self.block = block.outer
        try:
            if undoes:
                self.undo(block.before)
            while self.block is None and self.last is not None:     # one at a time: long chains recurse
                self.last = self.last.earlier
        finally:
            self.inner.release()
        return 0

    def note(self, undo):
        """Set the function that undoes the next action of the block."""
        cdef Undo step = Undo.__new__(Undo)
        step.function = undo
        self.push(step)

    cdef void push(self, Undo step) noexcept:
        step.earlier = self.last
        self.last = step

    cdef int undo(self, Undo until) except -1:
        cdef Undo step
        interrupt = None
        while self.last is not None and self.last is not until:
            step = self.last
            try:
                step.undo()
            except Exception:
                pass        # the exception with which the block was left goes on
            except BaseException as error:
                interrupt = error
            self.last = step.earlier
        if interrupt is not None:
            raise interrupt
        return 0

    cdef int free(self) except -1:
        if self.block is not None and not self.inner._is_owned():
            Lock.free(self)
            self.block = None
            self.undo(None)
        return Lock.free(self)


def free_locks():
    """Free the locks that other threads held in the parent process, and undo their incomplete registrations."""
    cdef Lock lock
    for lock in list(locks):
        lock.free()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=free_locks)
cdef Registering the_registering = Registering()
registering = the_registering

# Registrations are made and removed in C, where neither an interrupt nor another thread can come in between.


@cython.final
cdef class Change(Undo):
    """The registrations that one operator gets or loses. Undoing swaps both sides back and allocates nothing."""

    cdef dict operators
    cdef str name
    cdef OpOverload op
    cdef OpOverloadPacket packet    # None if the packet keeps its operators
    cdef dict family                # the dict that has the packet under its name
    cdef tuple handles              # the registrations that are made or removed
    cdef bint comes
    cdef list registrations         # of the operator, on the other side
    cdef tuple overloads            # of the packet, on the other side
    cdef str removed_at
    cdef bint is_taken

    cdef int take(self) except -1:
        the_registering.push(self)
        self.cross()
        self.is_taken = True
        return 0

    cdef int undo(self) except -1:
        if self.is_taken:
            self.cross()
        else:
            self.drop_empty()
        return 0

    cdef int cross(self) except -1:
        if self.registrations:      # the steps that can fail come first
            self.operators[self.name] = self.op
        if self.overloads:
            self.family[operator_name(self.op).name] = self.packet
        keep_for_readers(self.op.own_registrations)
        keep_for_readers(self.op.removed_at)
        self.op.own_registrations, self.registrations = self.registrations, self.op.own_registrations
        self.op.removed_at, self.removed_at = self.removed_at, self.op.removed_at
        self.op.table = None
        if self.packet is not None:
            share_freely(self.overloads)
            self.packet.overloads, self.overloads = self.overloads, self.packet.overloads
        for handle in self.handles:
            handle.active = self.comes
        self.comes = not self.comes
        self.drop_empty()
        return 0

    cdef int drop_empty(self) except -1:
        if not self.op.own_registrations:
            self.operators.pop(self.name, None)
        if self.packet is not None and not self.packet.overloads:
            self.family.pop(operator_name(self.op).name, None)
        return 0


cdef Change change_of(OpOverload op, tuple handles, OpOverloadPacket packet, dict operators, dict packets, str name):
    cdef Change change = Change.__new__(Change)
    complete(op)
    change.op, change.handles, change.packet, change.operators, change.name = op, handles, packet, operators, name
    if packet is not None:
        change.family = packets.setdefault(operator_name(op).namespace or "", {})
    return change


def put_in_force(dict operators, dict packets, str name, OpOverload op, tuple handles, OpOverloadPacket packet or None):
    """Add all registrations or none to an operator, which may be new. `packet` gets it if one is its definition."""
    cdef Change change = change_of(op, handles, packet, operators, packets, name)
    change.comes = True
    change.registrations = [*op.own_registrations, *handles]
    change.overloads = None if packet is None else (*packet.overloads, op)
    for handle in handles:
        handle.operator = op
    change.take()


def declare_in_force(dict operators, dict packets, str namespace not None, dict declarations, dict named):
    """Add operators by their declarations, all or none. `complete` makes their names and registrations later.

    `named` are packets for names that have none in force. Existing registrations for such an operator come after those
    of its declaration. A name that has a declaration keeps it: a pack that is imported again, after an interrupt, may
    be in force already.
    """
    cdef dict family = packets.setdefault(namespace, {})
    cdef dict declared = {}, overloads = {}, bases = {}
    cdef list new = []
    cdef OpOverload op
    cdef OpOverloadPacket packet
    for name, declaration in declarations.items():
        base, full = name.partition(".")[0], f"{namespace}::{name}"
        packet = bases.get(base) or family.get(base) or named.get(base) or OpOverloadPacket(f"{namespace}::{base}")
        op = operators.get(full)
        if op is None:
            op = OpOverload.__new__(OpOverload, None)
            new.append(full)
        elif op in packet.overloads:
            continue
        declared[full] = op, declaration
        bases[base] = packet
        overloads[packet] = (*overloads.get(packet, packet.overloads), op)
    try:
        for full, (op, declaration) in declared.items():
            operators[full] = op
    except:     # there is no memory
        for full in new:
            operators.pop(full, None)
        raise
    for op, declaration in declared.values():
        op.declaration, op.table = declaration, None
    for packet, of_packet in overloads.items():
        share_freely(of_packet)
        packet.overloads = of_packet
    family.update(bases)    # last: other threads only see packets that can be called


def put_out_of_force(dict operators, dict packets, str name, handle, OpOverloadPacket packet or None, str site):
    """Remove a registration from its operator, which is retired with the last one. `packet` loses the operator."""
    cdef OpOverload op = handle.operator
    cdef Change change = change_of(op, (handle,), packet, operators, packets, name)
    cdef list overloads = []
    change.registrations = []
    for other in op.own_registrations:      # a new list: another thread may be reading the old one
        if other is not handle:
            change.registrations.append(other)
    if packet is not None:
        for other in packet.overloads:
            if other is not op:
                overloads.append(other)
        change.overloads = tuple(overloads)
    if not change.registrations:
        change.removed_at = site
    change.take()


cdef class RegistrationGuard:
    """A registration of an operator that is in force inside a `with` block. `register()` makes it.

    As with a Guard, C code leaves the block, so that no interrupt can leave the registration behind.
    """

    cdef dict operators
    cdef str name
    cdef list entered

    def __init__(self, dict operators not None, str name not None):
        self.operators, self.name, self.entered = operators, name, []

    def register(self):
        raise NotImplementedError(f"{type(self).__name__} does not define register")

    def __enter__(self):
        with the_registering:
            self.entered.append(self.register())

    def __exit__(self, kind, error, trace):
        interrupt = wait_for_registering()
        cdef bint is_done = False
        try:
            the_registering.enter()
            try:
                handle = self.entered[len(self.entered) - 1]
                if handle.active:       # str() would check for signals
                    site = PyUnicode_FromObject(handle.site)
                    put_out_of_force(self.operators, {}, self.name, handle, None, site)
                self.entered.pop()
                is_done = True
            finally:
                the_registering.leave(not is_done)      # `with` would raise an interrupt and undo this
        finally:
            the_registering.inner.release()
        if interrupt is not None:
            raise interrupt


cdef wait_for_registering():
    """Take the lock, even if signals arrive meanwhile. Return the last exception that a signal handler raised."""
    interrupt = None
    while True:
        try:
            the_registering.inner.acquire()
            return interrupt
        except MemoryError:
            raise
        except BaseException as error:
            interrupt = error
