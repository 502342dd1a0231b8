# Kernels in C, for operators whose work in NumPy is less than a call of a Python function.

cdef extern from *:
    """
    #define SHORT_VECTOR 11     /* elements of a vector for whose correlation NumPy, too, has a loop of its own */

    /* The sum of products of the m numbers `taken` with those of `given` from each of n places on, in NumPy's order;
       where the compiler has types for that, of eight places at once. */
    static void sum_windows(const double* given, const double* taken, int m, double* sums, npy_intp n) {
        npy_intp i = 0;
        int k;
    #if defined(__GNUC__)
        typedef double Pair __attribute__((vector_size(16), aligned(8), may_alias));
        Pair factors[SHORT_VECTOR];
        if (n >= 8) for (k = 0; k < m; k++) factors[k] = (Pair){taken[k], taken[k]};
        for (; i + 8 <= n; i += 8) {
            Pair a = {0, 0}, b = a, c = a, d = a;
            for (k = 0; k < m; k++) {
                const Pair* pairs = (const Pair*)(given + i + k);
                a += pairs[0] * factors[k]; b += pairs[1] * factors[k];
                c += pairs[2] * factors[k]; d += pairs[3] * factors[k];
            }
            Pair* found = (Pair*)(sums + i);
            found[0] = a; found[1] = b; found[2] = c; found[3] = d;
        }
    #endif
        for (; i < n; i++) {
            double sum = 0;
            for (k = 0; k < m; k++) sum += given[i + k] * taken[k];
            sums[i] = sum;
        }
    }
    """
    enum: SHORT_VECTOR
    void sum_windows(const double* given, const double* taken, int m, double* sums, cnp.npy_intp n) noexcept

cdef class Reduction:
    cdef vectorcallfunc vectorcall
    cdef object reduce
    cdef bint adds
    cdef Fold fold
    cdef readonly str __name__

cdef Reduction add_reduce

# what a loop gives for the arguments of a call; NULL where NumPy is to be asked
ctypedef PyObject* (*loop_of_method)(PyObject* const*, Py_ssize_t, PyObject*) except? NULL

cdef class ArrayMethod:
    cdef vectorcallfunc vectorcall
    cdef loop_of_method loop            # for small arrays; NULL: there is none
    cdef object method
    cdef readonly str __name__

cdef class OutKernel:
    cdef vectorcallfunc vectorcall
    cdef object function
    cdef type array_type                # of what can be written into
    cdef bint as_out                    # does the function take that as `out` too?
    cdef object refusal
    cdef readonly str __name__

cdef class AnyDevice:
    cdef vectorcallfunc vectorcall
    cdef object function
    cdef object stand_in                # None, or what makes an array of a prototype without data
    cdef readonly str __name__

cdef bint is_basic_key(key) except -1    # does NumPy call this basic indexing: integers, slices, None and Ellipsis?
