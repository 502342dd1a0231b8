# What a plan does: loops over arrays, run one after the other without Python.

cdef extern from *:
    """
    /* Loops of our own, called as NumPy's are: casts as NumPy's own, copies, and the choice that `where` makes. */

    #define LOOP_OVER(n_in) \
        char* p[n_in + 1]; npy_intp i, k; \
        for (k = 0; k <= n_in; k++) p[k] = args[k]; \
        for (i = 0; i < extents[0]; i++, next_of(p, strides, n_in))
    static inline void next_of(char** p, const npy_intp* strides, int n) { for (; n >= 0; n--) p[n] += strides[n]; }

    #define LOOP_NAMED(name) static void name( \
        char** args, const npy_intp* extents, const npy_intp* strides, void* data)

    #define DEFINE_CAST(from, to) \
        LOOP_NAMED(cast_##from##_to_##to) { LOOP_OVER(1) { *(to*)p[1] = (to)*(from*)p[0]; } }
    #define DEFINE_CAST_TO_COMPLEX(from, part, name) \
        LOOP_NAMED(cast_##from##_to_##name) { \
            LOOP_OVER(1) { ((part*)p[1])[0] = (part)*(from*)p[0]; ((part*)p[1])[1] = 0; } }
    #define DEFINE_CASTS(from) \
        LOOP_NAMED(cast_##from##_to_bool) { LOOP_OVER(1) { *(npy_bool*)p[1] = *(from*)p[0] != 0; } } \
        DEFINE_CAST(from, npy_byte) DEFINE_CAST(from, npy_ubyte) DEFINE_CAST(from, npy_short) \
        DEFINE_CAST(from, npy_ushort) DEFINE_CAST(from, npy_int) DEFINE_CAST(from, npy_uint) \
        DEFINE_CAST(from, npy_long) DEFINE_CAST(from, npy_ulong) DEFINE_CAST(from, npy_longlong) \
        DEFINE_CAST(from, npy_ulonglong) DEFINE_CAST(from, npy_float) DEFINE_CAST(from, npy_double) \
        DEFINE_CAST_TO_COMPLEX(from, npy_float, cfloat) DEFINE_CAST_TO_COMPLEX(from, npy_double, cdouble)
    DEFINE_CASTS(npy_bool) DEFINE_CASTS(npy_byte) DEFINE_CASTS(npy_ubyte) DEFINE_CASTS(npy_short)
    DEFINE_CASTS(npy_ushort) DEFINE_CASTS(npy_int) DEFINE_CASTS(npy_uint) DEFINE_CASTS(npy_long)
    DEFINE_CASTS(npy_ulong) DEFINE_CASTS(npy_longlong) DEFINE_CASTS(npy_ulonglong) DEFINE_CASTS(npy_float)
    DEFINE_CASTS(npy_double)
    #define DEFINE_COMPLEX_CAST(from, to, name) \
        LOOP_NAMED(name) { \
            LOOP_OVER(1) { \
                to real = (to)((from*)p[0])[0], imaginary = (to)((from*)p[0])[1]; \
                ((to*)p[1])[0] = real; ((to*)p[1])[1] = imaginary; } }
    DEFINE_COMPLEX_CAST(npy_float, npy_double, cast_cfloat_to_cdouble)
    DEFINE_COMPLEX_CAST(npy_double, npy_float, cast_cdouble_to_cfloat)
    LOOP_NAMED(cast_cfloat_to_bool) {
        LOOP_OVER(1) { *(npy_bool*)p[1] = ((npy_float*)p[0])[0] != 0 || ((npy_float*)p[0])[1] != 0; } }
    LOOP_NAMED(cast_cdouble_to_bool) {
        LOOP_OVER(1) { *(npy_bool*)p[1] = ((npy_double*)p[0])[0] != 0 || ((npy_double*)p[0])[1] != 0; } }

    #define CASE_TO(from, number, name) case number: return cast_##from##_to_##name;
    #define CASE_FROM(from, number) case number: switch (to) { \
        CASE_TO(from, NPY_BOOL, bool) CASE_TO(from, NPY_BYTE, npy_byte) CASE_TO(from, NPY_UBYTE, npy_ubyte) \
        CASE_TO(from, NPY_SHORT, npy_short) CASE_TO(from, NPY_USHORT, npy_ushort) CASE_TO(from, NPY_INT, npy_int) \
        CASE_TO(from, NPY_UINT, npy_uint) CASE_TO(from, NPY_LONG, npy_long) CASE_TO(from, NPY_ULONG, npy_ulong) \
        CASE_TO(from, NPY_LONGLONG, npy_longlong) CASE_TO(from, NPY_ULONGLONG, npy_ulonglong) \
        CASE_TO(from, NPY_FLOAT, npy_float) CASE_TO(from, NPY_DOUBLE, npy_double) \
        CASE_TO(from, NPY_CFLOAT, cfloat) CASE_TO(from, NPY_CDOUBLE, cdouble) } return NULL;
    typedef void (*LoopFunction)(char**, const npy_intp*, const npy_intp*, void*);
    static LoopFunction cast_loop(int from, int to) {       /* NULL where there is none */
        switch (from) {
            CASE_FROM(npy_bool, NPY_BOOL) CASE_FROM(npy_byte, NPY_BYTE) CASE_FROM(npy_ubyte, NPY_UBYTE)
            CASE_FROM(npy_short, NPY_SHORT) CASE_FROM(npy_ushort, NPY_USHORT) CASE_FROM(npy_int, NPY_INT)
            CASE_FROM(npy_uint, NPY_UINT) CASE_FROM(npy_long, NPY_LONG) CASE_FROM(npy_ulong, NPY_ULONG)
            CASE_FROM(npy_longlong, NPY_LONGLONG) CASE_FROM(npy_ulonglong, NPY_ULONGLONG)
            CASE_FROM(npy_float, NPY_FLOAT) CASE_FROM(npy_double, NPY_DOUBLE)
            case NPY_CFLOAT: return to == NPY_CDOUBLE ? cast_cfloat_to_cdouble
                                    : to == NPY_BOOL ? cast_cfloat_to_bool : NULL;
            case NPY_CDOUBLE: return to == NPY_CFLOAT ? cast_cdouble_to_cfloat
                                     : to == NPY_BOOL ? cast_cdouble_to_bool : NULL;
        }
        return NULL;
    }

    typedef struct { npy_uint64 low, high; } Bytes16;
    #define DEFINE_MOVES(kind, size) \
        LOOP_NAMED(copy_##size) { \
            if (strides[0] == size && strides[1] == size) { \
                if (extents[0] == 1) *(kind*)args[1] = *(kind*)args[0]; \
                else memmove(args[1], args[0], extents[0] * size); \
                return; } \
            LOOP_OVER(1) { *(kind*)p[1] = *(kind*)p[0]; } } \
        LOOP_NAMED(choose_##size) { LOOP_OVER(3) { *(kind*)p[3] = *(kind*)(*(npy_bool*)p[0] ? p[1] : p[2]); } }
    DEFINE_MOVES(npy_uint8, 1) DEFINE_MOVES(npy_uint16, 2) DEFINE_MOVES(npy_uint32, 4) DEFINE_MOVES(npy_uint64, 8)
    DEFINE_MOVES(Bytes16, 16)
    #define CASE_SIZE(kind, size) case size: return kind##_##size;
    #define LOOP_BY_SIZE(kind) static LoopFunction kind##_loop(int size) { switch (size) { \
        CASE_SIZE(kind, 1) CASE_SIZE(kind, 2) CASE_SIZE(kind, 4) CASE_SIZE(kind, 8) CASE_SIZE(kind, 16) } return NULL; }
    LOOP_BY_SIZE(copy) LOOP_BY_SIZE(choose)

    /* Layers of an array at given positions: sizes are 1, outer, positions, layers, and the bytes of a layer; what is
       out of range is noted for the thread, and read as the first layer. */
    static __thread npy_intp position_out_of_range; static __thread int is_out_of_range = 0;
    LOOP_NAMED(gather_layers) {
        npy_intp outer, i, n = extents[2], layers = extents[3], size = extents[4];
        const npy_int64* positions = (const npy_int64*)args[1];
        char *source = args[0], *target = args[2];
        for (outer = 0; outer < extents[1]; outer++, source += layers * size)
            for (i = 0; i < n; i++, target += size) {
                npy_int64 k = positions[i];
                if (k < -layers || k >= layers) { position_out_of_range = k; is_out_of_range = 1; k = 0; }
                else if (k < 0) k += layers;
                if (size == 8) *(npy_uint64*)target = *(npy_uint64*)(source + 8 * k);
                else memcpy(target, source + size * k, size);
            }
    }
    static inline int take_out_of_range(npy_intp* position) {      /* was one noted? it is forgotten */
        int found = is_out_of_range;
        *position = position_out_of_range; is_out_of_range = 0;
        return found;
    }

    #if defined(_WIN32)
    typedef int Thread;
    static int start_thread(Thread* thread, void* (*function)(void*), void* given) { return -1; }
    static void join_thread(Thread thread) {}
    #else
    #include <pthread.h>
    typedef pthread_t Thread;
    static int start_thread(Thread* thread, void* (*function)(void*), void* given) {
        return pthread_create(thread, NULL, function, given);
    }
    static void join_thread(Thread thread) { pthread_join(thread, NULL); }
    #endif
    """
    void gather_layers(char** args, const cnp.npy_intp* extents, const cnp.npy_intp* strides, void* data) noexcept nogil
    bint take_out_of_range(cnp.npy_intp* position) noexcept nogil
    ctypedef struct Thread:
        pass
    int start_thread(Thread* thread, void* (*function)(void*) noexcept nogil, void* given) noexcept nogil   # 0: it runs
    void join_thread(Thread thread) noexcept nogil
    PyUFuncGenericFunction cast_loop(int source, int target) noexcept nogil     # NULL where there is none
    PyUFuncGenericFunction copy_loop(int size) noexcept nogil                   # by the bytes of an element
    PyUFuncGenericFunction choose_loop(int size) noexcept nogil                 # condition, one, other

cdef enum:              # kinds of steps
    LOOP_STEP = 0               # a loop over arrays
    BLOCKS_STEP = 1             # its steps, on one part of the elements after the other
    REPEAT_STEP = 2             # its steps, so many times
    WHILE_STEP = 3              # its steps as long as the first ones of them find that a condition holds
    CHOOSE_STEP = 4             # the first or the others of its steps
    CALL_STEP = 5               # a call of Python

cdef enum:
    MAX_OPERANDS = 8            # of a loop
    MAX_THREADS = 64

cdef struct PlanStep:
    int kind
    int n_inside                # so many of the steps that follow are part of it
    int n_operands, n_axes
    bint reports                # can it raise floating-point flags?
    bint gathers                # can it be asked for positions out of range?
    PyUFuncGenericFunction function
    void* data
    cnp.npy_intp* buffers           # of each operand: its number in the table of addresses
    cnp.npy_intp* offsets           # and where it begins there
    cnp.npy_intp* extents           # of the outer axes
    cnp.npy_intp* strides           # of the operands along these, axis by axis
    cnp.npy_intp* sizes             # the extents that the loop gets
    cnp.npy_intp* steps             # the strides that the loop gets
    cnp.npy_intp* numbers           # of other kinds of steps
    Py_ssize_t work             # elements that a run of it goes through, about

cdef struct PlanRun:
    char** table                # addresses of buffers
    PyObject* plan
    PyObject* inputs            # what keeps buffers alive
    int n_threads
    int n_noted
    PlanStep* noted[8]          # steps that raised floating-point flags, first ones first
    int flags[8]
    Py_ssize_t work             # since signals were looked at

# take the steps up to `after`; the GIL is held or not, and taken where Python runs
cdef int take_plan_steps(PlanRun* run, PlanStep* step, PlanStep* after) except -1 nogil
