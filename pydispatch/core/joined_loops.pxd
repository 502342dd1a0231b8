# Joined loops: consecutive loops of a block, which go through registers together, some elements at a time.

cdef extern from *:
    """
    /* Code is a row of words: what to do with the elements that the registers hold, and the address of the other
       operand, elements in a row or one number. It is taken for 8 vectors of elements, then for the next ones. Each
       operation rounds as that of a loop by itself does: nothing is contracted, since operations are cases of their
       own. `follows` has all bits set where the address is that of the first of all elements, none where the vectors
       of the moment lie there. */
    typedef struct { npy_intp code; char* address; npy_intp follows; } JoinedWord;
    enum { JOINED_END, JOINED_LEAVE, JOINED_STREAM, JOINED_TAKE, JOINED_TAKE_NUMBER, JOINED_NEGATIVE, JOINED_SQRT,
           JOINED_TWICE, JOINED_SQUARE, JOINED_ARITHMETIC };
    /* where the other operand is, of an operation on two: to the right or to the left */
    enum { RIGHT_ROW, RIGHT_NUMBER, LEFT_ROW, LEFT_NUMBER, N_SIDES };
    #define JOINED_CODE(operation, side) (JOINED_ARITHMETIC + ((operation) - DO_ADD) * N_SIDES + (side))

    #if defined(__x86_64__) && defined(__GNUC__)
    /* Each operation jumps to the next by itself: the processor guesses where to from where the jump is. */
    #define JOINED_NOW operand = w->address + (at & w->follows); goto *labels[w->code];
    #define JOINED_VECTOR(k, e) { enum { K = k }; e; }
    #define JOINED_EACH(e) \
        JOINED_VECTOR(0, e) JOINED_VECTOR(1, e) JOINED_VECTOR(2, e) JOINED_VECTOR(3, e) \
        JOINED_VECTOR(4, e) JOINED_VECTOR(5, e) JOINED_VECTOR(6, e) JOINED_VECTOR(7, e) w++; JOINED_NOW
    #define IN_MEMORY_NOW (*(Vector*)(operand + K * sizeof(Vector)))
    /* so many bytes ahead: measured on arrays that no cache holds */
    #define ASK_FOR_LATER __builtin_prefetch(operand + 2048 + K * sizeof(Vector))
    #define NUMBER_NOW (*(Number*)w->address - (Vector){0})
    #define JOINED_OPERATION(name, sign) \
        name##_right_row: JOINED_EACH(ASK_FOR_LATER; a[K] = a[K] sign IN_MEMORY_NOW) \
        name##_right_number: { Vector number = NUMBER_NOW; JOINED_EACH(a[K] = a[K] sign number) } \
        name##_left_row: JOINED_EACH(ASK_FOR_LATER; a[K] = IN_MEMORY_NOW sign a[K]) \
        name##_left_number: { Vector number = NUMBER_NOW; JOINED_EACH(a[K] = number sign a[K]) }
    #define JOINED_LABELS(operation, name) \
        [JOINED_CODE(operation, RIGHT_ROW)] = &&name##_right_row, \
        [JOINED_CODE(operation, RIGHT_NUMBER)] = &&name##_right_number, \
        [JOINED_CODE(operation, LEFT_ROW)] = &&name##_left_row, \
        [JOINED_CODE(operation, LEFT_NUMBER)] = &&name##_left_number
    #define DEFINE_JOINED(isa, bits, name, kind, root, move) \
        __attribute__((target(isa))) static void name(const JoinedWord* first, npy_intp n) { \
            typedef kind Number __attribute__((may_alias, aligned(1))); \
            typedef kind Vector __attribute__((vector_size(bits / 8), aligned(1), may_alias)); \
            static const void* const labels[] = { \
                [JOINED_END] = &&end, [JOINED_LEAVE] = &&leave, [JOINED_STREAM] = &&stream, \
                [JOINED_TAKE] = &&take, [JOINED_TAKE_NUMBER] = &&take_number, [JOINED_NEGATIVE] = &&negative, \
                [JOINED_SQRT] = &&square_root, [JOINED_TWICE] = &&twice, [JOINED_SQUARE] = &&square, \
                JOINED_LABELS(DO_ADD, add), JOINED_LABELS(DO_SUBTRACT, subtract), \
                JOINED_LABELS(DO_MULTIPLY, multiply), JOINED_LABELS(DO_DIVIDE, divide) }; \
            Vector a[8] = {{0}}; \
            npy_intp at, stop = n * (npy_intp)sizeof(kind); \
            for (at = 0; at < stop; at += 8 * (npy_intp)sizeof(Vector)) { \
                const JoinedWord* w = first; \
                char* operand; \
                JOINED_NOW \
                leave: JOINED_EACH(IN_MEMORY_NOW = a[K]) \
                stream: JOINED_EACH(__asm__ (move " %1, %0" : "=m"(IN_MEMORY_NOW) : "v"(a[K]))) \
                take: JOINED_EACH(ASK_FOR_LATER; a[K] = IN_MEMORY_NOW) \
                take_number: { Vector number = NUMBER_NOW; JOINED_EACH(a[K] = number) } \
                negative: JOINED_EACH(a[K] = -a[K]) \
                square_root: JOINED_EACH(__asm__ (root " %1, %0" : "=v"(a[K]) : "v"(a[K]))) \
                twice: JOINED_EACH(a[K] = a[K] + a[K]) \
                square: JOINED_EACH(a[K] = a[K] * a[K]) \
                JOINED_OPERATION(add, +) JOINED_OPERATION(subtract, -) \
                JOINED_OPERATION(multiply, *) JOINED_OPERATION(divide, /) \
                end:; \
            } }
    DEFINE_JOINED("avx2", 256, joined_doubles, double, "vsqrtpd", "vmovntpd")
    DEFINE_JOINED("avx2", 256, joined_floats, float, "vsqrtps", "vmovntps")
    DEFINE_JOINED("avx512f", 512, wide_joined_doubles, double, "vsqrtpd", "vmovntpd")
    DEFINE_JOINED("avx512f", 512, wide_joined_floats, float, "vsqrtps", "vmovntps")

    /* Other threads see what was streamed before what comes after this. */
    static void finish_streams(void) { __builtin_ia32_sfence(); }
    static int bytes_of_joined(void) {      /* that the registers hold; 0 where there are no such loops */
        return __builtin_cpu_supports("avx512f") ? 512 : __builtin_cpu_supports("avx2") ? 256 : 0;
    }
    static void take_joined_words(const JoinedWord* words, npy_intp n, int bytes, int is_double) {
        if (bytes == 512) (is_double ? wide_joined_doubles : wide_joined_floats)(words, n);
        else (is_double ? joined_doubles : joined_floats)(words, n);
    }
    #else
    static int bytes_of_joined(void) { return 0; }
    static void finish_streams(void) {}
    static void take_joined_words(const JoinedWord* words, npy_intp n, int bytes, int is_double) {}
    #endif
    """
    ctypedef struct JoinedWord:
        cnp.npy_intp code
        char* address
        cnp.npy_intp follows
    enum:
        JOINED_END, JOINED_LEAVE, JOINED_STREAM, JOINED_TAKE, JOINED_TAKE_NUMBER, JOINED_NEGATIVE, JOINED_SQRT
        JOINED_TWICE, JOINED_SQUARE, RIGHT_ROW, RIGHT_NUMBER, LEFT_ROW, LEFT_NUMBER
    int JOINED_CODE(int operation, int side) nogil
    int bytes_of_joined() noexcept nogil
    void finish_streams() noexcept nogil
    void take_joined_words(const JoinedWord* words, cnp.npy_intp n, int bytes, bint is_double) noexcept nogil

# find loops of blocks that can be joined, in a plan whose operands take these bytes
cdef int join_loops(Plan plan, tuple described, Room* used) except -1
# run the joined loops that begin with this step over the rows of a block
cdef void take_joined(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp rows,
                      cnp.npy_intp local) noexcept nogil
