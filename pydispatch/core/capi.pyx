# What the core uses of C, of Python and of NumPy.

as_index = operator.index
numpy_asarray = numpy.asarray
numpy_dtype = numpy.dtype
numpy_generic = numpy.generic
numpy_integer = numpy.integer
