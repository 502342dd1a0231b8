# Rows that are read at an unknown index: copies where NumPy has views.
#
# `row = array[i]` is a view in NumPy. If `i` is a number that differs between examples, or between runs of a trace, the
# elements are gathered instead. A write to the copy also writes to the array, by an operator, so that transforms and
# traces see it.


@cython.final
cdef class Gathered:
    """The source of the elements of such a copy."""


cdef bint has_unknown_numbers(key) except -1:
    """Return whether all arrays in a key are single integers, which would be numbers in NumPy."""
    cdef tuple items = <tuple>key if isinstance(key, tuple) else (key,)
    for item in items:
        if is_basic_key_item(item):
            continue
        if not isinstance(item, Tensor) or rank_of(<PyObject*>item) or item.dtype.kind not in "iu":
            return False
    return True


cdef object stand_for_view(Tensor source, key, result):
    """Make writes to the result of a key with index arrays also write to the array, if NumPy's would be a view."""
    cdef Gathered gathered
    if not isinstance(result, Tensor) or (<Tensor>result).word & SCALAR_FLAG or not has_unknown_numbers(key):
        return result
    gathered = Gathered.__new__(Gathered)
    gathered.source, gathered.key, gathered.whole = source, key, <Tensor>result
    gathered.version = total_version(source)
    version_counter_of(<Tensor>result).gathered = gathered
    (<Tensor>result).word |= GATHERED_FLAG
    return result


cdef object call_writing_back(OpOverload op, Table table, Frame* frame, State state, CallKind kind):
    """Run a call that writes to such copies, or to views of them, and write to the arrays they came from as well."""
    cdef Signature signature = table.signature
    cdef Gathered gathered
    cdef list copies = []
    cdef Py_ssize_t i
    for i in range(frame.count):
        if signature.mutable & bit(i) and frame.values[i] != NULL:
            for leaf in array_leaves(<object>frame.values[i]):
                if isinstance(leaf, Tensor) and (<Tensor>leaf).word & GATHERED_FLAG:
                    gathered = version_counter_of(<Tensor>leaf).gathered
                    if not gathered.is_writing:
                        check_unwritten(op, signature, i, gathered)
                        copies.append(gathered)
    for gathered in copies:
        gathered.is_writing = True
    try:
        result = call_on_stack(op, table, frame, state, kind)
        for gathered in copies:
            call_method(INDEX_PUT, gathered.source, gathered.key, <PyObject*>gathered.whole)
            gathered.version = total_version(gathered.source)
    finally:
        for gathered in copies:
            gathered.is_writing = False
    return result


cdef int check_unwritten(op, Signature signature, Py_ssize_t i, Gathered gathered) except -1:
    """Raise DataDependentError if the array has changed since the copy was made."""
    if total_version(gathered.source) == gathered.version:
        return 0
    raise DataDependentError(
        f"operator {op.name}: argument {signature.names[i]!r} was read by array[index] with an index whose value is "
        "unknown under vmap and in a trace. It is a copy, unlike in NumPy, and the array has been written to since\n"
        "read array[index] again before you write to the result"
    )
