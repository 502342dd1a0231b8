# What the core asks of Python.

# What the core asks of Python when it leaves the fast lane, by the module that answers.
cdef dict python_side = dict.fromkeys((
    # keys.py
    "member", "names_of_keyset", "keyset_from_names",
    # registry.py
    "find_operator", "find_packet",
    # tables.py
    "build_table",
    # messages.py
    "aliasing_error", "binding_error", "result_error", "no_handler", "no_kernel", "mixed_backends",
    "ran_fallthrough", "no_overload", "no_such_overload",
    # library.py
    "py_impl",
    # tree.py
    "array_leaves", "map_arrays",
    # tensor.py
    "write_own_view", "tensor_repr", "tensor_str", "detached_subclass", "item", "detach", "ufunc_refusal",
    # autograd/anomaly.py
    "note_origin", "tell_origin", "check_nan",
    # autograd/backward.py
    "backward", "grad", "grad_results",
    # autograd/derivatives.py
    "settle_rule",
    # autograd/forward.py
    "propagate", "part_of", "part_replaced",
    # autograd/function.py
    "author_of", "apply_in_general", "finish_in_general", "wrap_outputs",
    # autograd/hooks.py
    "before_node", "after_node", "before_leaf", "after_leaf", "move_retained",
    # autograd/levels.py
    "unbatched_write", "not_a_batch", "number_error", "batch_dims", "zeros_like", "reshape", "moveaxis", "add_to",
    "detach_error", "warn_untracked", "overlaps_itself", "check_passed_once", "described_level", "misplaced_error",
    "opaque_autograd_kernel", "write_error", "copy", "sum", "broadcast_to",
    # autograd/rules.py
    "author_is_met", "record_rule", "apply_tape_rule", "checked_gradient", "zeros_beside", "needless_gradient",
    "materialize",
    # autograd/saved.py
    "copy_kept", "pack", "Packed", "modified_error", "inference_error", "released_error",
    # autograd/tensors.py
    "kept_grad", "check_grad",
    # autograd/views.py
    "view_node", "written_node",
    # custom/derived.py
    "batch_by_default", "reduce_derived",
    # func/batching.py
    "grads_of_batch", "moved", "mapped_in_general",
    # func/forward.py
    "propagated", "pushed",
    # func/reverse.py
    "enter_constants", "check_differentiable", "check_aux", "as_scalar", "one_beside", "differentiate_in_general",
    "as_gradient", "as_passed", "leave_aux", "as_raw_constant", "as_cotangent", "recorded", "pulled", "zeros_for",
    # operators/batching.py
    "example_error",
))


def connect(**functions):
    """Name functions that the core asks. TypeError for a name that it does not know."""
    unknown = sorted(functions.keys() - python_side.keys())
    if unknown:
        raise TypeError(f"connect: the core asks for no {', '.join(unknown)}\ndeclare the name in python_side first")
    python_side.update(functions)


def check_connected():
    """RuntimeError unless every function that the core asks for has been named."""
    missing = sorted([name for name, function in python_side.items() if function is None])
    if missing:
        raise RuntimeError(f"the core asks for {', '.join(missing)}, which no module connects\n"
                           "call _core.connect in the module that has it, or list it in loading.CONNECTED")


def connected(str name):
    """The function that was named so last."""
    return python_side[name]
