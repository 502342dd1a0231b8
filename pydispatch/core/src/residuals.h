/* Residuals, which are copied before they are overwritten, so that gradients survive writes. */
#ifndef PYDISPATCH_RESIDUALS_H
#define PYDISPATCH_RESIDUALS_H

#include <Python.h>
#include <numpy/arrayobject.h>

#include "core/src/seam.h"

/* The fields of a node for its first four residuals, which are adjacent. */
#define residual_fields(node) (&(node)->residual0)
#define place_of_residuals(memory) ((PyObject**)&(memory)->residuals)

#ifdef Py_GIL_DISABLED
static PyMutex listing;
#define lock_listing() PyMutex_Lock(&listing)
#define unlock_listing() PyMutex_Unlock(&listing)
#define count_up(number) add_to_shared(number, 1)
#define count_down(number) add_to_shared(number, -1)
#else
#define lock_listing() ((void)0)
#define unlock_listing() ((void)0)
#define count_up(number) (++*(number))
#define count_down(number) (--*(number))
#endif

#endif
