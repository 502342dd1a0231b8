# Rows of blocks that threads share. Each thread has a range of rows and its own working memory.

cdef enum:
    MANY_ROWS = 1 << 12         # enough that shares may differ in size
    ROWS_OF_VECTORS = 64        # shares of many rows are multiples of this: even elements of one byte then make whole
                                # vectors of 64 bytes


cdef struct Worker:             # a thread and its part of the rows
    PlanRun run
    PlanStep* step
    cnp.npy_intp start, stop, part, local
    int* is_over                # set if the calling thread has raised, so that the rest is not needed
    PyObject* handling          # error handling of special functions, or NULL if they are not loaded
    PyObject* error             # the exception that a loop has raised, or NULL


cdef void work_on_rows(void* given) noexcept nogil:
    cdef Worker* worker = <Worker*>given
    cdef cnp.npy_intp next_start
    forget_errors()
    while worker.start < worker.stop and not read_shared(worker.is_over):
        next_start = min(worker.stop, border_of_blocks(worker.step, worker.start + worker.part))
        run_rows(&worker.run, worker.step, worker.start, next_start, worker.local)
        worker.start = next_start


cdef void work_and_keep_error(void* given) noexcept nogil:
    """Run rows whose loops may raise exceptions.

    An exception is part of a thread's state in the interpreter. If a loop makes this state in order to raise, it is
    destroyed when the GIL is released, and the exception with it. So the thread keeps a state from beginning to end.
    """
    cdef Worker* worker = <Worker*>given
    with gil:
        worker.error = error_of_work(worker)


cdef PyObject* error_of_work(Worker* worker) noexcept:
    """Run rows, taking the GIL only where a loop raises. Return the exception, or NULL."""
    try:
        if worker.handling != NULL:
            sys.modules["scipy.special"].seterr(**<dict>worker.handling)
        with nogil:
            work_on_rows(worker)
        check_loops()
    except BaseException as error:
        return new_reference(error)
    return NULL


cdef PyObject* handling_of_special_errors() except? NULL:
    """Return how the calling thread handles errors of SciPy's special functions, or NULL if these are not loaded.

    Each thread has its own setting, so other threads have to be given it.
    """
    special = sys.modules.get("scipy.special")
    return NULL if special is None else new_reference(special.geterr())


cdef int take_errors(Worker* workers, int n, bint raises) except -1:
    """Collect the exceptions of loops on all threads. With `raises`, raise the first in the order of rows.

    The rows of the calling thread come before all others.
    """
    cdef list errors = []
    cdef int i
    for i in range(n):
        if workers[i].error != NULL:
            errors.append(<object>workers[i].error)
            Py_DECREF(workers[i].error)
    if raises:
        check_loops()
        if errors:
            raise errors[0]
    return 0


cdef int share_rows(PlanRun* run, PlanStep* step, cnp.npy_intp part) except -1 nogil:
    """Run all rows on several threads, each on a range. If the calling thread raises, the others stop after a part."""
    cdef Worker workers[MAX_THREADS]
    cdef WaitingThread* threads[MAX_THREADS]
    cdef Blocks* blocks = <Blocks*>step.numbers
    cdef cnp.npy_intp n = blocks.n_rows
    cdef int i, k, n_threads = <int>blocks.n_threads, is_over = False
    cdef cnp.npy_intp share = (n + n_threads - 1) // n_threads
    cdef bint is_done = False
    cdef PyObject* handling = NULL
    if n >= MANY_ROWS:
        share = (share + ROWS_OF_VECTORS - 1) // ROWS_OF_VECTORS * ROWS_OF_VECTORS
    if run.watched < 0:
        find_watched(run)
    if step.may_raise:
        with gil:
            handling = handling_of_special_errors()
    for i in range(n_threads):
        workers[i].start, workers[i].stop = border_of_blocks(step, i * share), border_of_blocks(step, (i + 1) * share)
        workers[i].run, workers[i].step, workers[i].part, workers[i].is_over = run[0], step, part, &is_over
        workers[i].run.n_noted, workers[i].local = 0, i * blocks.local_bytes
        workers[i].handling, workers[i].error = handling, NULL
        threads[i] = NULL if i == 0 else ask_thread(
            work_and_keep_error if step.may_raise else work_on_rows, &workers[i])
    try:
        for i in range(n_threads):
            if threads[i] == NULL:
                run_parts(run, step, workers[i].start, workers[i].stop, part)
        is_done = True
    finally:
        if not is_done:
            write_shared(&is_over, True)
        for i in range(n_threads):
            if threads[i] != NULL and not join_thread(threads[i], not step.may_raise):
                work_on_rows(&workers[i])
        if step.may_raise:
            with gil:
                Py_XDECREF(handling)
                take_errors(workers, n_threads, is_done)
    for i in range(n_threads):
        if threads[i] != NULL:
            for k in range(workers[i].run.n_noted):
                note_these_flags(run, workers[i].run.noted[k], workers[i].run.flags[k])
            if workers[i].run.meets_out_of_range:
                run.position, run.extent = workers[i].run.position, workers[i].run.extent
                refuse_position(run)
    return 0
