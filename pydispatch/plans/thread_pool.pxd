# Threads that wait for work and share the rows of blocks.

cdef extern from "plans/src/thread_pool.h":
    ctypedef struct WaitingThread:
        pass
    # let a thread call a function. Return the thread, which has to be joined, or NULL if there is none
    WaitingThread* ask_thread(void (*function)(void*) noexcept nogil, void* given) noexcept nogil
    # wait until the function has returned, then True. If the thread has not started it, it may be withdrawn, then False
    bint join_thread(WaitingThread* thread, bint may_take_back) noexcept nogil

cdef enum:
    MAX_THREADS = 64

# run all rows on several threads, `part` rows at a time
cdef int share_rows(PlanRun* run, PlanStep* step, cnp.npy_intp part) except -1 nogil
