# Upcalls: calls from the core to functions written in Python.

cdef class Upcalls:                     # functions in Python, by the module that connects them, None before
    # keys.py
    cdef public object member, names_of_keyset, keyset_from_names
    # tree.py
    cdef public object array_leaves, map_arrays
    # memory.py
    cdef public object overlaps_itself, overlap
    # _registry/registrations.py
    cdef public object declared, name_declared
    # _registry/tables.py
    cdef public object build_table
    # _registry/backends.py
    cdef public object bring_into_use, load_backend, dtype_like
    # _registry/messages.py
    cdef public object wrong_type, missing_argument, too_many_arguments, unknown_keyword, given_twice, short_stack
    cdef public object wrong_number_of_values, wrong_number_left, wrong_number_returned, wrong_type_returned
    cdef public object aliasing_error, no_handler, no_kernel, mixed_backends
    cdef public object ran_fallthrough, no_overload, no_such_overload, describe_interpreter, inactive_error
    cdef public object opaque_autograd_kernel, unsupported_argument
    # _registry/conversions.py
    cdef public object conversion_error
    # _registry/derivatives.py
    cdef public object compile_derivative
    # modes.py
    cdef public object warn_untracked
    # tensor.py
    cdef public object tensor_repr, tensor_str, detached_subclass, item, detach, convert
    # numpy/declare.py
    cdef public object as_elements, as_key, entered
    # numpy/objects.py
    cdef public object binary_with_object, compare_unlike
    # numpy/methods.py
    cdef public object call_as_function
    # numpy/protocols.py
    cdef public object call_universal
    cdef public object function_of_numpy, call_on_backend
    # autograd/anomaly.py
    cdef public object note_origin, tell_origin, check_node
    # autograd/backward.py
    cdef public object backward, grad, grad_results
    # autograd/batches.py
    cdef public object unbatched_write, not_a_batch, batch_dims
    cdef public object copies_for_examples, with_batch_outermost, lost_view
    # autograd/custom_derivatives.py
    cdef public object function_is_used, record_custom, apply_custom_on_tape, checked_gradient, zeros_beside
    cdef public object needless_gradient, materialize, check_gradients, gradient_of_formula
    # autograd/forward.py
    cdef public object propagate, part_of, part_replaced, has_no_positions, check_tangent
    # autograd/function.py
    cdef public object parts_of_function, apply_in_general, finish_in_general, wrap_outputs
    # autograd/hooks.py
    cdef public object before_node, after_node, before_leaf, after_leaf, move_retained
    # autograd/residuals.py
    cdef public object copy_kept, scalar_error, pack, Packed, overwritten_error, inference_error, released_error
    # autograd/tensors.py
    cdef public object kept_grad, check_grad
    # autograd/values.py
    cdef public object zeros_like, reshape, moveaxis, add_to, copy, sum, broadcast_to
    # autograd/kinks.py
    cdef public object square_of_kink
    # autograd/views.py
    cdef public object detach_error, check_passed_once, write_error, view_node, written_node
    # func/grad.py
    cdef public object enter_constants, check_differentiable, check_aux, as_scalar, one_beside
    cdef public object differentiate_in_general, as_gradient, as_passed, leave_aux, as_raw_constant
    cdef public object as_cotangent, recorded, output_and_vjp_fn, zeros_for
    # func/jacobians.py
    cdef public object jacobian_of_columns, jacobian_of_rows, whole_batch
    # func/jvp.py
    cdef public object propagated, output_and_tangent
    # func/vmap.py
    cdef public object grads_of_batch, moved, batched_in_general
    # compiling/reports.py
    cdef public object name_loop
    # library/derived.py
    cdef public object batch_by_default
    # library/pickling.py
    cdef public object reduce_operator, reduce_packet
    # library/registration.py
    cdef public object py_impl
    # operators/batching.py
    cdef public object example_error

cdef Upcalls upcalls
