# Declarations of C, Python and NumPy that the core uses.

as_index = operator.index
numpy_asarray = numpy.asarray
numpy_dtype = numpy.dtype
numpy_integer = numpy.integer
numpy_umath = numpy if IS_PORTABLE else numpy._core.umath

PORTABLE = bool(IS_PORTABLE)
