# The C API, which extensions in Cython call. Its header is pydispatch/c_api.pxd.

from pydispatch.c_api cimport PYDISPATCH_C_API_MAJOR, PYDISPATCH_C_API_MINOR, PYDISPATCH_C_API_NAME, PydispatchCApi
