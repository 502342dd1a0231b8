/* Private parts of CPython. */

#ifndef PYDISPATCH_SEAM_PYTHON_H
#define PYDISPATCH_SEAM_PYTHON_H

#include <Python.h>

#include "seam_compiler.h"

/* --- depth of recursion ------------------------------------------------------------------------------------------ */

#define IN_OPERATOR " while calling an operator"
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
/* These versions let C code be 10,000 calls deep, too many for our frames. 3.11 counts calls of C and Python together,
   and 3.14 measures the stack itself. */
static THREAD_LOCAL int depth = 0;

static inline int enter_recursive_call(void) {
    if (depth >= Py_GetRecursionLimit()) {
        PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded" IN_OPERATOR);
        return -1;
    }
    depth++;
    return 0;
}
#define leave_recursive_call() (depth--)
#else
#define enter_recursive_call() (Py_EnterRecursiveCall(IN_OPERATOR) ? -1 : 0)
#define leave_recursive_call() Py_LeaveRecursiveCall()
#endif

/* --- references -------------------------------------------------------------------------------------------------- */

#define steal(result) (result)

static inline PyObject* new_reference(PyObject* value) {
    Py_INCREF(value);
    return value;
}

static inline void put_reference(PyObject** place, PyObject* value) {
    PyObject* old = *place;
    Py_INCREF(value);
    *place = value;
    Py_XDECREF(old); /* NULL after `del` */
}

/* Without the GIL, the count is known only of an object that this thread made and no other thread holds. Others have
   MANY_REFERENCES. */
#if defined(Py_GIL_DISABLED)
#define MANY_REFERENCES PY_SSIZE_T_MAX

static inline Py_ssize_t count_of_references(PyObject* object) {
    if (!_Py_IsOwnedByCurrentThread(object) ||
        atomic_load_explicit((volatile _Atomic Py_ssize_t*)&object->ob_ref_shared, memory_order_acquire) != 0)
        return MANY_REFERENCES;
    return (Py_ssize_t)atomic_load_explicit((volatile _Atomic uint32_t*)&object->ob_ref_local, memory_order_relaxed);
}
#else
#define count_of_references(object) Py_REFCNT(object)
#endif
#define has_references(object, n) (count_of_references(object) == (n))
#define has_more_references(object, n) (count_of_references(object) > (n))

/* Whether only the expression that calls us holds an object. Which references the interpreter itself holds differs from
   version to version. */
#if defined(PYDISPATCH_PORTABLE)
#define is_temporary(object) 0
#elif PY_VERSION_HEX >= 0x030E0000 /* where a variable and the stack may have one reference together */
#define is_temporary(object) PyUnstable_Object_IsUniqueReferencedTemporary(object)
#else
#define is_temporary(object) (Py_REFCNT(object) == 1)
#endif

/* --- objects that threads share ---------------------------------------------------------------------------------- */

/* With the GIL, a field is read and its object is counted in one step. Without it, another thread may replace and
   release the object in between, so `keep_for_readers` (core/seam/capi.pyx) keeps it alive for a while, unless there
   is no other thread (`is_only_thread`). `publish_once`
   sets a field that is None and never changes again, and returns, borrowed, what it holds then. `share_freely` makes an
   object of the calling thread immortal, as every call uses it, and threads would take turns at its count. */
#if defined(Py_GIL_DISABLED)
#define IS_FREE_THREADED 1

static inline int is_only_thread(void) {
    return PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())) == NULL;
}

static inline void share_freely(PyObject* object) {
#if PY_VERSION_HEX >= 0x030F0000
    PyUnstable_SetImmortal(object);
#else
    if (_Py_IsOwnedByCurrentThread(object))
        atomic_store((volatile _Atomic uint32_t*)&object->ob_ref_local, _Py_IMMORTAL_REFCNT_LOCAL);
#endif
}

static inline PyObject* publish_once(PyObject** place, PyObject* value) {
    PyObject* found = Py_None;
    Py_INCREF(value);
    if (exchange_pointer((void**)place, (void**)&found, value)) return value;
    Py_DECREF(value);
    return found;
}
#else
#define IS_FREE_THREADED 0
#define is_only_thread() 1
#define share_freely(object) ((void)0)

static inline PyObject* publish_once(PyObject** place, PyObject* value) {
    put_reference(place, value);
    return value;
}
#endif

/* Places for what a thread keeps for its next use. Without the GIL there are several, each on a separate cache line, so
   that two threads seldom have the same one. `give_object` takes over the reference. */
#if defined(Py_GIL_DISABLED)
enum { THREADS_APART = 8, N_PLACES = 8 * THREADS_APART };
static THREAD_LOCAL char of_thread;

static inline PyObject** own_place(PyObject** places) {
    return places + ((uintptr_t)&of_thread >> 12) % THREADS_APART * 8;
}

static inline PyObject* take_object(PyObject** place) {
    return *place == NULL ? NULL : (PyObject*)atomic_exchange((void* _Atomic*)place, NULL);
}
static inline void give_object(PyObject** place, PyObject* object) {
    void* expected = NULL;
    if (!exchange_pointer((void**)place, &expected, object)) Py_DECREF(object);
}
#else
enum { N_PLACES = 1 };
#define own_place(places) (places)
static inline PyObject* take_object(PyObject** place) {
    PyObject* found = *place;
    *place = NULL;
    return found;
}
static inline void give_object(PyObject** place, PyObject* object) {
    Py_XDECREF(*place);
    *place = object;
}
#endif

/* --- numbers, strings, tuples ------------------------------------------------------------------------------------ */

#if defined(PYDISPATCH_PORTABLE)
static inline Py_ssize_t compact_value(PyObject* number) {
    int overflow;
    return (Py_ssize_t)PyLong_AsLongLongAndOverflow(number, &overflow);
}

static inline int is_compact(PyObject* number) {
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    return overflow == 0 && -(1LL << 30) < value && value < 1LL << 30;
}
#elif PY_VERSION_HEX >= 0x030C0000
#define is_compact(number) PyUnstable_Long_IsCompact((PyLongObject*)(number))
#define compact_value(number) PyUnstable_Long_CompactValue((PyLongObject*)(number))
#else
#define is_compact(number) (Py_SIZE(number) >= -1 && Py_SIZE(number) <= 1)
#define compact_value(number) (Py_SIZE(number) * (Py_ssize_t)((PyLongObject*)(number))->ob_digit[0])
#endif

/* Whether no other string is known to have the same characters. */
#if defined(PYDISPATCH_PORTABLE)
#define is_interned(string) 0
#else
#define is_interned(string) PyUnicode_CHECK_INTERNED(string)
#endif

#define items_of(tuple) PySequence_Fast_ITEMS(tuple)

/* --- types ------------------------------------------------------------------------------------------------------- */

#define new_object(type, arguments) ((type)->tp_new((type), (arguments), NULL))

/* An attribute of a class or of the classes that it inherits from, as it is there (borrowed), or NULL. */
#if defined(PYDISPATCH_PORTABLE)
static PyObject* lookup_on_type(PyTypeObject* type, PyObject* name) {
    PyObject *kind, *error, *trace, *found = NULL;
    PyObject* classes;
    Py_ssize_t i;
    PyErr_Fetch(&kind, &error, &trace);
    classes = PyObject_GetAttrString((PyObject*)type, "__mro__");
    for (i = 0; classes != NULL && found == NULL && i < PyTuple_GET_SIZE(classes); i++) {
        PyObject* namespace = PyObject_GetAttrString(PyTuple_GET_ITEM(classes, i), "__dict__");
        if (namespace == NULL) break;
        found = PyObject_GetItem(namespace, name);
        Py_XDECREF(found); /* the class holds it */
        if (found == NULL) PyErr_Clear();
        Py_DECREF(namespace);
    }
    Py_XDECREF(classes);
    PyErr_Restore(kind, error, trace);
    return found;
}
#else
#define lookup_on_type(type, name) _PyType_Lookup(type, name)
#endif

/* The function of a classmethod (borrowed): the first member, in every CPython. subclasses.pyx checks it. */
static inline PyObject* function_of(PyObject* method) {
#if defined(PYDISPATCH_PORTABLE)
    PyObject* function = PyObject_GetAttrString(method, "__func__");
    Py_XDECREF(function);
    return function;
#else
    return *(PyObject**)((char*)method + sizeof(PyObject));
#endif
}

/* Give a class the slot for calls, for which Cython has no syntax: the member at this offset. Without the slot, Python
   calls its `__call__`, which `call_by_slot` passes on. */
#if defined(PYDISPATCH_PORTABLE)
#define set_vectorcall_slot(type, offset) ((void)(offset))

static PyObject* call_by_slot(PyObject* self, vectorcallfunc slot, PyObject* args, PyObject* kwargs) {
    Py_ssize_t n = PyTuple_GET_SIZE(args), n_named = kwargs == NULL ? 0 : PyDict_GET_SIZE(kwargs), i = 0, position = 0;
    PyObject *name, *value, *names = NULL, *result = NULL;
    PyObject** values = (PyObject**)PyMem_Malloc((size_t)(1 + n + n_named) * sizeof(PyObject*));
    if (values == NULL) return PyErr_NoMemory();
    if (n_named && (names = PyTuple_New(n_named)) == NULL) goto done;
    values[0] = NULL;
    for (i = 0; i < n; i++) values[1 + i] = PyTuple_GET_ITEM(args, i);
    for (i = 0; n_named && PyDict_Next(kwargs, &position, &name, &value); i++) {
        PyTuple_SET_ITEM(names, i, new_reference(name));
        values[1 + n + i] = value;
    }
    result = slot(self, values + 1, (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
done:
    Py_XDECREF(names);
    PyMem_Free(values);
    return result;
}
#else
static inline void set_vectorcall_slot(PyTypeObject* type, Py_ssize_t offset) {
    type->tp_vectorcall_offset = offset;
    type->tp_call = PyVectorcall_Call;
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    PyType_Modified(type);
}
#define call_by_slot(self, slot, args, kwargs) PyVectorcall_Call(self, args, kwargs)
#endif

/* Let a call of a class make its objects without a tuple of arguments. Python uses `__new__` and `__init__` else. */
static inline void set_call_of_class(PyTypeObject* type, vectorcallfunc make) {
#if defined(PYDISPATCH_PORTABLE)
    (void)type, (void)make;
#else
    type->tp_vectorcall = make;
#endif
}

/* Whether classes get functions of ours for allocating and freeing their objects, which reuse those that were freed. */
#if defined(PYDISPATCH_PORTABLE)
#define HAS_FREE_LISTS 0
#else
#define HAS_FREE_LISTS 1
#endif

/* Objects that the garbage collector knows, of which only every eighth counts towards its next run. A graph of many
   nodes is then walked through less often while it grows, by an eighth of the collections of Python. */
#if defined(PYDISPATCH_PORTABLE) || defined(Py_GIL_DISABLED)
#define allocate_seldom_counted PyType_GenericAlloc
#define free_seldom_counted PyObject_GC_Del
#define was_just_left_uncounted(object) 0
#define count_object(object) ((void)0)
#else
enum { COUNTED = 8, SIZE_OF_GC_HEADER = 2 * sizeof(void*) };
static PyObject* last_uncounted;

static PyObject* allocate_seldom_counted(PyTypeObject* type, Py_ssize_t items) {
    static unsigned int n_allocated;
    char* memory;
    if (++n_allocated % COUNTED == 0) return PyType_GenericAlloc(type, items);
    memory = (char*)PyObject_Calloc(1, SIZE_OF_GC_HEADER + type->tp_basicsize);
    if (memory == NULL) return PyErr_NoMemory();
    last_uncounted = PyObject_Init((PyObject*)(memory + SIZE_OF_GC_HEADER), type);
    PyObject_GC_Track(last_uncounted);
    return last_uncounted;
}

static void free_seldom_counted(void* object) {
    static unsigned int n_freed;
    if (++n_freed % COUNTED == 0) PyObject_GC_Del(object);
    else PyObject_Free((char*)object - SIZE_OF_GC_HEADER);
}

#define was_just_left_uncounted(object) ((object) == last_uncounted)

/* Count an object that was left uncounted, by allocating another one that is freed without being counted. */
static void count_object(PyObject* object) {
    PyObject* other = PyType_GenericAlloc(Py_TYPE(object), 0);
    last_uncounted = NULL;
    if (other == NULL) PyErr_Clear();
    else {
        PyObject_GC_UnTrack(other);
        PyObject_Free((char*)other - SIZE_OF_GC_HEADER);
    }
}
#endif

static inline void clear_exporter(Py_buffer* view) { view->obj = NULL; }

/* --- contexts ---------------------------------------------------------------------------------------------------- */

/* The state last found in the context variable. The portable build asks Python each time. It does not know the context
   either, and takes all contexts of a thread for one: where a state is changed for the time of a C call, it writes the
   variable (KNOWS_CONTEXTS). */
#if defined(PYDISPATCH_PORTABLE)
#define KNOWS_CONTEXTS 0

static inline PyObject* context_now(void) {
    PyObject* of_thread = PyThreadState_GetDict();
    return of_thread == NULL ? Py_None : of_thread;
}

#define remembered_state() ((PyObject*)NULL)
#define remember_state(state) ((void)(state))
#define variables_at(context) ((PyObject**)NULL)
#define count_context_version() ((void)0)
#else
#define KNOWS_CONTEXTS 1

typedef struct {
    PyObject* state;
    PyObject* context;
    uint64_t version;
    uint64_t thread;
} RememberedState;
static HOT_THREAD_LOCAL RememberedState remembered = {NULL, NULL, 0, 0};

#define context_now() (PyThreadState_GET()->context)

static inline PyObject* remembered_state(void) {
    PyThreadState* now = PyThreadState_GET();
    return remembered.version == now->context_ver && remembered.context == now->context && remembered.thread == now->id
               ? remembered.state
               : NULL;
}

static inline void remember_state(PyObject* state) {
    PyThreadState* now = PyThreadState_GET();
    RememberedState found = {state, now->context, now->context_ver, now->id};
    remembered = found;
}

/* The mapping of a context. contexts.pyx checks that it is laid out so. */
typedef struct {
    PyObject_HEAD PyObject* previous;
    PyObject* variables;
} LaidOutContext;
#define variables_at(context) (&((LaidOutContext*)(context))->variables)
#define count_context_version() (PyThreadState_GET()->context_ver++)
#endif

/* --- exceptions -------------------------------------------------------------------------------------------------- */

/* Whether an exception is set in this thread, with or without the GIL. A thread that Python does not know has none. */
static inline int has_raised(void) {
    PyThreadState* state = PyGILState_GetThisThreadState();
#if defined(PYDISPATCH_PORTABLE)
    PyGILState_STATE held;
    int found;
    if (state == NULL) return 0;
    held = PyGILState_Ensure();
    found = PyErr_Occurred() != NULL;
    PyGILState_Release(held);
    return found;
#elif PY_VERSION_HEX < 0x030C0000
    return state != NULL && state->curexc_type != NULL;
#else
    return state != NULL && state->current_exception != NULL;
#endif
}

#endif
