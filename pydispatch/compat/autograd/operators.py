"""The functions that take a function and return another, such as `grad` and `jacobian`."""

# tests: tests/compat/autograd/test_operators.py
from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pydispatch.numpy as np
from pydispatch import _core, autograd, func
from pydispatch.compat.autograd import derivatives
from pydispatch.compat.autograd.derivatives import as_numbers, enter, leave, scalar_output, subval, subvals, with_floats
from pydispatch.compat.autograd.spaces import vspace

__all__ = [
    "checkpoint", "deriv", "egrad", "elementwise_grad", "get_doc", "get_name", "grad", "grad_and_aux", "grad_named",
    "hessian", "hessian_tensor_product", "hessian_vector_product", "holomorphic_grad", "jacobian", "make_ggnvp",
    "make_hvp", "make_jvp", "make_jvp_reversemode", "make_vjp", "multigrad_dict", "tensor_jacobian_product",
    "unary_to_nary", "value_and_grad", "vector_jacobian_product", "wrap_nary_f", "wraps",
]
Function = Callable[..., Any]


def get_name(f: Any) -> str:
    """Return the name of a function."""
    return getattr(f, "__name__", "[unknown name]")


def get_doc(f: Any) -> str:
    """Return the docstring of a function."""
    return getattr(f, "__doc__", "") or ""


def wraps(fun: Any, namestr: str = "{fun}", docstr: str = "{doc}", **kwargs: Any) -> Callable[[Function], Function]:
    """Return a decorator that names a function after `fun`, by templates."""
    def named(f: Function) -> Function:
        f.__name__ = namestr.format(fun=get_name(fun), **kwargs)
        f.__doc__ = docstr.format(fun=get_name(fun), doc=get_doc(fun), **kwargs)
        return f

    return named


def wrap_nary_f(fun: Any, op: Any, argnum: Any) -> Callable[[Function], Function]:
    """Return a decorator that names the function that an operator returned."""
    return wraps(fun, "{op}_of_{fun}_wrt_argnum_{argnum}",
                 "    {op} of function {fun} with respect to argument number {argnum}, which takes the same arguments.",
                 op=get_name(op), argnum=argnum)


def unary_to_nary(unary_operator: Function) -> Function:
    """Return the operator on functions of several arguments that one on functions of one argument defines."""
    def nary_operator(fun: Function, argnum: Any = 0, *operands: Any, **options: Any) -> Function:
        assert type(argnum) in (int, tuple, list), argnum

        @wrap_nary_f(fun, unary_operator, argnum)
        def nary_f(*args: Any, **kwargs: Any) -> Any:
            if type(argnum) is int:
                x = args[argnum]
                unary_f = fun if len(args) == 1 and not kwargs else lambda x: fun(*subval(args, argnum, x), **kwargs)
            else:
                x = tuple([args[i] for i in argnum])
                unary_f = wraps(fun)(lambda x: fun(*subvals(args, zip(argnum, x, strict=True)), **kwargs))
            return unary_operator(unary_f, x, *operands, **options)

        return nary_f

    words = get_doc(unary_operator).replace("Return a function that", "\n    Returns a function which", 1)   # as HIPS
    nary_operator.__name__, nary_operator.__doc__ = unary_operator.__name__, words
    return nary_operator


make_vjp = unary_to_nary(derivatives.make_vjp)
make_jvp = unary_to_nary(derivatives.make_jvp)


@unary_to_nary
def grad(fun: Function, x: Any) -> Any:
    """Return a function that computes the gradient of `fun`, which returns one real number."""
    return leave(_core.differentiate(scalar_output(fun, "grad"), (enter(x),), {}, 0, True, False)[0])


@unary_to_nary
def value_and_grad(fun: Function, x: Any) -> tuple[Any, Any]:
    """Return a function that computes the value of `fun` and its gradient, as `scipy.optimize.minimize` takes it."""
    gradient, value = _core.differentiate(scalar_output(fun, "value_and_grad"), (enter(x),), {}, 0, True, False)
    return as_numbers(value), leave(gradient)


@unary_to_nary
def grad_and_aux(fun: Function, x: Any) -> tuple[Any, Any]:
    """Return a function that computes the gradient of the first result of `fun`, and returns the second too."""
    gradient, aux = _core.differentiate(scalar_output(fun, "grad_and_aux", True), (enter(x),), {}, 0, True, False)
    return leave(gradient), as_numbers(aux)


@unary_to_nary
def elementwise_grad(fun: Function, x: Any) -> Any:
    """Return a function that computes the gradient of the sum of all results of `fun`."""
    vjp, ans = derivatives.make_vjp(fun, x)
    if vspace(ans).iscomplex:
        raise TypeError("elementwise_grad only applies to real-output functions")
    return vjp(vspace(ans).ones())


egrad = elementwise_grad


@unary_to_nary
def deriv(fun: Function, x: Any) -> Any:
    """Return a function that computes the derivative of `fun` along a vector of ones, in forward mode."""
    return derivatives.make_jvp(fun, x)(vspace(enter(x)).ones())[1]


@unary_to_nary
def jacobian(fun: Function, x: Any) -> Any:
    """Return a function that computes the Jacobian: of the shape of the result, followed by that of the argument."""
    if not vspace(enter(x)).iscomplex:
        return func.jacrev(with_floats(fun))(enter(x))
    vjp, ans = derivatives.make_vjp(fun, x)
    space = vspace(ans)
    return np.reshape(np.stack([vjp(e) for e in space.standard_basis()]), space.shape + np.shape(x))


@unary_to_nary
def hessian(fun: Function, x: Any) -> Any:
    """Return a function that computes the Hessian, by reverse over reverse mode."""
    return jacobian(jacobian(fun))(x)


@unary_to_nary
def holomorphic_grad(fun: Function, x: Any) -> Any:
    """Return a function that computes the complex derivative."""
    if not vspace(x).iscomplex:
        warnings.warn("Input to holomorphic_grad is not complex", stacklevel=3)
    return grad(lambda x: np.real(fun(x)))(x)


def grad_named(fun: Function, argname: str) -> Any:
    """Return a function that computes the gradient with respect to the argument of this name."""
    return grad(fun, list(inspect.signature(fun).parameters).index(argname))


@unary_to_nary
def make_hvp(fun: Function, x: Any) -> tuple[Function, Any]:
    """Return a function that returns the product with the Hessian at a point, as a function, and the gradient."""
    return derivatives.make_vjp(grad(fun), x)


def hessian_tensor_product(fun: Function, argnum: int = 0) -> Any:
    """Return a function of the arguments of `fun` and a tensor: the product of the Hessian with the tensor."""
    gradient = grad(fun, argnum)

    def product(*args: Any, **kwargs: Any) -> Any:
        *args, tensor = args        # type: ignore[assignment]
        return np.tensordot(gradient(*args, **kwargs), tensor, np.ndim(tensor))

    return grad(product, argnum)


def tensor_jacobian_product(fun: Function, argnum: int = 0) -> Any:
    """Return a function of the arguments of `fun` and a tensor: the product of the tensor with the Jacobian."""
    def product(*args: Any, **kwargs: Any) -> Any:
        *args, tensor = args        # type: ignore[assignment]
        return np.tensordot(tensor, fun(*args, **kwargs), axes=np.ndim(tensor))

    return jacobian(product, argnum)


hessian_vector_product, vector_jacobian_product = hessian_tensor_product, tensor_jacobian_product


@unary_to_nary
def make_jvp_reversemode(fun: Function, x: Any) -> Function:
    """Return a function that returns the tangent of the result, as the vjp of a vjp."""
    vjp, ans = derivatives.make_vjp(fun, x)
    return derivatives.make_vjp(vjp, vspace(ans).zeros())[0]


def make_ggnvp(f: Function, g: Function = lambda x: 0.5 * np.sum(x**2, axis=-1), f_argnum: int = 0) -> Any:
    """Return a function that returns the product with the generalized Gauss-Newton matrix of `g(f(x))` at a point."""
    @unary_to_nary
    def _make_ggnvp(f: Function, x: Any) -> Function:
        vjp, ans = derivatives.make_vjp(f, x)
        hvp, gradient = derivatives.make_vjp(grad(g), ans)
        jvp, _ = derivatives.make_vjp(vjp, vspace(gradient).zeros())
        return lambda v: vjp(hvp(jvp(v)))

    return _make_ggnvp(f, f_argnum)


def multigrad_dict(fun: Function) -> Function:
    """Return a function that computes the gradients by all arguments, as a dict by name."""
    signature = inspect.signature(fun)

    def gradients(*args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()

        def by_name(arguments: dict[str, Any]) -> Any:
            given = inspect.BoundArguments(signature, arguments)
            return fun(*given.args, **given.kwargs)

        found = grad(by_name)(dict(bound.arguments))
        return {name: found[name] for name in bound.arguments}

    return gradients


def checkpoint(fun: Function) -> Function:
    """Return the function that computes its intermediate values again in the backward pass."""
    @wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return autograd.checkpoint(lambda *args: fun(*args, **kwargs), *args)

    return checkpointed
