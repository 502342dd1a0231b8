/* The seam: every private part of CPython, NumPy and GNU C that the core uses, behind a name, with the public way
   beside it. With PYDISPATCH_PORTABLE only the public ways are compiled, in standard C11. */

#ifndef PYDISPATCH_SEAM_H
#define PYDISPATCH_SEAM_H

#include "seam_compiler.h"
#include "seam_python.h"
#include "seam_numpy.h"

#endif
