/* The cell of a thread with its ambient state, and where a state keeps the states that are made from it once. */
#ifndef PYDISPATCH_STATE_H
#define PYDISPATCH_STATE_H

#include <Python.h>

#include "core/src/seam.h"

typedef struct {
    PyObject* context;
    PyObject* state;
} Cell;

static HOT_THREAD_LOCAL Cell cell = {NULL, NULL};

#define place_of_lowered(state) ((PyObject**)&(state)->lowered)
#define place_of_recording(state) ((PyObject**)&(state)->recording)
#define place_of_silent(state) ((PyObject**)&(state)->silent)
#define place_of_handling(state) ((PyObject**)&(state)->handling)

#endif
