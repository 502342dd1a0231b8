/* Threads that wait for work and share the rows of blocks. */
#ifndef PYDISPATCH_THREAD_POOL_H
#define PYDISPATCH_THREAD_POOL_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/seam_compiler.h"
#include "plans/src/steps.h"

#if defined(_WIN32)
typedef struct {
    int unused;
} WaitingThread;
static WaitingThread* ask_thread(void (*function)(void*), void* given) { return NULL; }
static int join_thread(WaitingThread* thread, int may_take_back) { return 1; }
#else
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

/* A thread that has done its work waits for more: to make one takes longer than much of what is shared. It looks
   for work for some microseconds, and then sleeps. What it was asked for and has not begun can be taken back, so
   work waits for no thread that wakes up late, or has no core to run on. */
enum { NO_WORK, ASKED, AT_WORK };
typedef struct WaitingThread {
    struct WaitingThread* next; /* of those that have not been asked */
    void (*function)(void*);
    void* given;
    fenv_t environment; /* of floating-point arithmetic: that of the thread that asks */
    int state, is_asleep, is_awaited;
    pthread_t handle;
    pthread_mutex_t lock;
    pthread_cond_t has_changed;
} WaitingThread;
static WaitingThread* idle_threads = NULL;
static pthread_mutex_t lock_of_idle_threads = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t forks_are_watched = PTHREAD_ONCE_INIT;

static int is_soon(WaitingThread* thread, int state) {
    enum { TURNS = 2000, TURNS_BEFORE_OTHERS_RUN = 64 };
    int i;
    for (i = 1; i <= TURNS; i++) {
        if (read_shared(&thread->state) == state) return 1;
        if (i % TURNS_BEFORE_OTHERS_RUN == 0) sched_yield();
#if defined(__x86_64__) && HAS_GNU_C
        __builtin_ia32_pause();
#endif
    }
    return 0;
}
/* A thread announces that it waits before it looks at the state. A thread that changes the state looks for waiting ones
   afterwards. At least one of them therefore sees the change of the other. */
static void wait_for(WaitingThread* thread, int state, int* is_waiting) {
    while (!is_soon(thread, state)) { /* again after a spurious wakeup */
        pthread_mutex_lock(&thread->lock);
        write_shared(is_waiting, 1);
        if (read_shared(&thread->state) != state) pthread_cond_wait(&thread->has_changed, &thread->lock);
        write_shared(is_waiting, 0);
        pthread_mutex_unlock(&thread->lock);
    }
}
static void change_state(WaitingThread* thread, int state, int* is_waiting) {
    write_shared(&thread->state, state);
    if (read_shared(is_waiting)) {
        pthread_mutex_lock(&thread->lock);
        pthread_cond_broadcast(&thread->has_changed);
        pthread_mutex_unlock(&thread->lock);
    }
}
static int is_first_to_take(WaitingThread* thread, int state) { /* what the thread was asked for */
    return exchange_shared(&thread->state, ASKED, state);
}
static void* wait_and_work(void* given) {
    WaitingThread* thread = (WaitingThread*)given;
    for (;;) {
        wait_for(thread, ASKED, &thread->is_asleep);
        if (is_first_to_take(thread, AT_WORK)) {
            fesetenv(&thread->environment);
            thread->function(thread->given);
            change_state(thread, NO_WORK, &thread->is_awaited);
        }
    }
    return NULL;
}

static void before_fork(void) { pthread_mutex_lock(&lock_of_idle_threads); }
static void after_fork(void) { pthread_mutex_unlock(&lock_of_idle_threads); }
static void after_fork_in_child(void) { /* which has none of these threads */
    idle_threads = NULL;
    pthread_mutex_init(&lock_of_idle_threads, NULL);
}
static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork_in_child); }

/* Return a thread, which leaves signals to others and lives as long as the process, or NULL if there can be none. */
static WaitingThread* new_thread(void) {
    WaitingThread* thread = (WaitingThread*)calloc(1, sizeof(WaitingThread));
    sigset_t all, before;
    int is_made;
    if (thread == NULL) return NULL;
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->has_changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    is_made = pthread_create(&thread->handle, NULL, wait_and_work, thread) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (is_made) {
        pthread_detach(thread->handle);
        return thread;
    }
    free(thread);
    return NULL;
}

/* Make a sleeping thread wake up on one of the calling thread's cores, but not on the core that runs that thread:
   Linux prefers that core, where the sleeper would wait until the calling thread has finished its own work. */
static void keep_off_this_core(WaitingThread* thread) {
#if defined(__linux__)
    cpu_set_t cores;
    int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof cores, &cores) != 0) return;
    CPU_CLR(here, &cores);
    if (CPU_COUNT(&cores) == 0) CPU_SET(here, &cores);
    pthread_setaffinity_np(thread->handle, sizeof cores, &cores);
#endif
}

static WaitingThread* ask_thread(void (*function)(void*), void* given) {
    WaitingThread* thread;
    pthread_once(&forks_are_watched, watch_forks);
    pthread_mutex_lock(&lock_of_idle_threads);
    thread = idle_threads;
    if (thread != NULL) idle_threads = thread->next;
    pthread_mutex_unlock(&lock_of_idle_threads);
    if (thread == NULL) thread = new_thread();
    if (thread == NULL) return NULL;
    thread->function = function;
    thread->given = given;
    fegetenv(&thread->environment);
    if (read_shared(&thread->is_asleep)) keep_off_this_core(thread);
    change_state(thread, ASKED, &thread->is_asleep);
    return thread;
}
static int join_thread(WaitingThread* thread, int may_take_back) {
    int is_done = !(may_take_back && is_first_to_take(thread, NO_WORK));
    if (is_done) wait_for(thread, NO_WORK, &thread->is_awaited);
    pthread_mutex_lock(&lock_of_idle_threads);
    thread->next = idle_threads;
    idle_threads = thread;
    pthread_mutex_unlock(&lock_of_idle_threads);
    return is_done;
}
#endif

#endif
