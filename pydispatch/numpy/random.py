"""`numpy.random` for arrays and Tensors: `default_rng` and `Generator`, whose methods call operators.

See docs/randomness.md. Bit generators, SeedSequence and RandomState are NumPy's own.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import MT19937, PCG64, PCG64DXSM, SFC64, BitGenerator, Philox, RandomState, SeedSequence

from pydispatch import _core
from pydispatch._core import ActiveMode, ArrayFunction, OpOverload, Tensor, Vmap, is_array
from pydispatch._loading import only_public
from pydispatch._sites import describe_interpreter
from pydispatch.autograd.randomness import bits_here, bits_of, note_made, sources
from pydispatch.exceptions import DispatchTypeError, VmapError
from pydispatch.numpy.declare import REASONS, REFUSED, as_array, as_nonscalar, declare, into
from pydispatch.operators import distributions  # noqa: F401  declares the operators
from pydispatch.operators.declare import LIBRARY
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves

__all__ = [
    "MT19937", "PCG64", "PCG64DXSM", "SFC64", "BitGenerator", "Generator", "Philox", "RandomState", "SeedSequence",
    "default_rng",
]


def default_rng(seed: Any = None) -> Generator:
    """Return a Generator for a seed.

    Parameters
    ----------
    seed : optional
        A seed, as `numpy.random.default_rng` takes it. A Generator is returned itself. A Generator of NumPy, a
        RandomState or a bit generator gives one that shares its stream.

    Returns
    -------
    Generator
        A generator whose draws are operators under transforms, modes and guards.

    Examples
    --------
    >>> import pydispatch.numpy as np
    >>> np.random.default_rng(0).integers(10, size=3)
    array([8, 6, 5])
    """
    if isinstance(seed, Generator):
        return seed
    if isinstance(seed, (np.random.Generator, BitGenerator, RandomState)):
        return Generator(np.random.default_rng(seed).bit_generator)
    made: Generator = ops.np.random_default_rng(seed)
    return made


class GeneratorMethod:
    """A method of Generator.

    It calls NumPy's own if no argument is a Tensor and the state is plain, else the implementation.
    """

    def __init__(self, implementation: Callable[..., Any]) -> None:
        self.implementation = implementation
        self.name = implementation.__name__
        implementation.__doc__ = getattr(np.random.Generator, self.name).__doc__

    def __get__(self, generator: Generator | None, owner: type | None = None) -> Any:
        if generator is None:
            return self.implementation
        function = ArrayFunction(getattr(generator.numpys, self.name), MethodType(self.implementation, generator))
        function.__dict__.update(
            __name__=self.name, __qualname__=f"Generator.{self.name}", __module__=__name__,
            __doc__=self.implementation.__doc__, __wrapped__=function.implementation)
        generator.__dict__[self.name] = function        # found before the class's attribute from now on
        return function


DISTRIBUTIONS = (
    "beta", "binomial", "chisquare", "dirichlet", "exponential", "f", "gamma", "geometric", "gumbel",
    "hypergeometric", "laplace", "logistic", "lognormal", "logseries", "multinomial", "negative_binomial",
    "noncentral_chisquare", "noncentral_f", "normal", "pareto", "poisson", "power", "rayleigh", "standard_cauchy",
    "standard_t", "triangular", "uniform", "vonmises", "wald", "weibull", "zipf",
)
"""The methods of Generator whose parameters are arrays, and a size."""


def distribution(name: str) -> GeneratorMethod:
    """Return the method of a distribution, with NumPy's signature."""
    draw = getattr(ops.np, f"random_{name}")
    signature = inspect.signature(getattr(np.random.Generator, name))

    def method(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        generator, *parameters, size = bound.arguments.values()
        return draw(generator, *map(as_array, parameters), as_size(size))

    method.__name__, method.__signature__ = name, signature     # type: ignore[attr-defined]
    return GeneratorMethod(method)


def as_size(size: Any) -> tuple[int, ...] | None:
    """Return a shape as operators take it."""
    if size is None:
        return None
    shape: Iterable[Any] = size if np.iterable(size) else (size,)
    return tuple(map(operator.index, shape))


def as_numbers(value: Any) -> Any:
    """Return an argument that NumPy converts to an array of numbers, or None."""
    return value if value is None else as_array(value)


class Generator(np.random.Generator):
    """NumPy's Generator, whose draws are operators if a parameter is a Tensor or if the state is not plain.

    The state is not plain if a transform, mode or guard is active. With arrays and numbers the Generator is NumPy's: it
    draws the same numbers at the same speed. `numpys` is a Generator of NumPy that shares the stream.

    Parameters
    ----------
    bit_generator : BitGenerator
        The source of random bits, such as `PCG64(seed)`.
    """

    numpys: np.random.Generator

    def __init__(self, bit_generator: Any) -> None:
        super().__init__(bit_generator)
        self.numpys = np.random.Generator(bit_generator)
        self._number = _core.next_number()

    def __reduce__(self) -> Any:
        return Generator, (bits_of(self),)

    @property
    def bit_generator(self) -> Any:
        """The source of random bits, whose state draws change.

        In a second run of a function it is that of the copy that the run draws from. Traces refuse it, since they
        record only draws.
        """
        if any(mode._knows_bodies for mode in _core.active_modes()):
            raise DispatchTypeError(
                "Generator.bit_generator was used in a trace, which records draws, but not reads and changes of the "
                "state: they would be missing in each run of the graph\n"
                "make a generator for each stream by np.random.default_rng(seed) in the traced function, or pass "
                "generators in the right state as arguments")
        return bits_here(self)

    # numbers

    @GeneratorMethod
    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        return into(out, ops.np.random_random(self, size_for("random", size, out), np.dtype(dtype)))

    @GeneratorMethod
    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        size = size_for("standard_normal", size, out)
        return into(out, ops.np.random_standard_normal(self, size, np.dtype(dtype)))

    @GeneratorMethod
    def standard_exponential(self, size: Any = None, dtype: Any = np.float64, method: str = "zig",
                             out: Any = None) -> Any:
        size = size_for("standard_exponential", size, out)
        return into(out, ops.np.random_standard_exponential(self, size, np.dtype(dtype), method))

    @GeneratorMethod
    def standard_gamma(self, shape: Any, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        size = size_for("standard_gamma", size, out)
        return into(out, ops.np.random_standard_gamma(self, as_array(shape), size, np.dtype(dtype)))

    @GeneratorMethod
    def integers(self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64,
                 endpoint: bool = False) -> Any:
        return ops.np.random_integers(
            self, as_array(low), as_numbers(high), as_size(size), np.dtype(dtype), endpoint=bool(endpoint))

    @GeneratorMethod
    def bytes(self, length: int) -> Any:
        check_unwatched("Generator.bytes", "draw integers: generator.integers(0, 256, length, dtype=np.uint8)")
        return self.numpys.bytes(length)

    @GeneratorMethod
    def multivariate_normal(self, mean: Any, cov: Any, size: Any = None, check_valid: str = "warn", tol: float = 1e-8,
                            *, method: str = "svd") -> Any:
        return ops.np.random_multivariate_normal(
            self, as_array(mean), as_array(cov), as_size(size), check_valid, tol, method=method)

    @GeneratorMethod
    def multivariate_hypergeometric(self, colors: Any, nsample: int, size: Any = None,
                                    method: str = "marginals") -> Any:
        return ops.np.random_multivariate_hypergeometric(self, as_array(colors), nsample, as_size(size), method)

    # elements of arrays

    @GeneratorMethod
    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None, axis: int = 0,
               shuffle: bool = True) -> Any:
        a = as_array(a)
        n = a if is_number(a) else a.shape[axis]
        chosen = ops.np.random_choice(self, n, as_size(size), bool(replace), as_numbers(p), bool(shuffle))
        return chosen if is_number(a) else ops.np.take(a, chosen, axis)

    @GeneratorMethod
    def permutation(self, x: Any, axis: int = 0) -> Any:
        x = as_array(x)
        if is_number(x):
            return ops.np.random_permutation(self, x)
        return ops.np.take(x, ops.np.random_permutation(self, x.shape[axis]), axis)

    @GeneratorMethod
    def shuffle(self, x: Any, axis: int = 0) -> None:
        if isinstance(x, list):
            x[:] = [x[i] for i in ops.np.random_permutation(self, len(x))]
        else:
            ops.np.setitem_(x, ..., Generator.permutation(self, x, axis))

    @GeneratorMethod
    def permuted(self, x: Any, *, axis: int | None = None, out: Any = None) -> Any:
        x = as_nonscalar(x)
        shape = tuple(x.shape)
        if axis is None:
            order = ops.np.random_permutation(self, x.size)
            return into(out, ops.np.reshape(ops.np.take(ops.np.reshape(x, (-1,)), order), shape))
        return into(out, ops.np.take_along_axis(x, ops.np.random_orders(self, shape, axis), axis))


for _name in DISTRIBUTIONS:
    setattr(Generator, _name, distribution(_name))


def size_for(name: str, size: Any, out: Any) -> tuple[int, ...] | None:
    """Return the shape of a draw, which is that of `out` unless that is None."""
    asked = as_size(size)
    if out is None:
        return asked
    shape: tuple[int, ...] = tuple(out.shape)
    if asked not in (None, shape):
        raise ValueError(f"{name}: argument size is {asked}, but out has shape {shape}\nleave out size")
    return shape


def is_number(value: Any) -> bool:
    """Return whether this is a number of elements, as opposed to the elements themselves."""
    if isinstance(value, (int, np.integer)):
        return True
    return is_array(value) and value.ndim == 0 and not isinstance(value, Tensor)


# --- NumPy's functions that draw from its hidden global generator -----------------------------------------------------

LEGACY = (
    "beta", "binomial", "bytes", "chisquare", "choice", "dirichlet", "exponential", "f", "gamma", "geometric",
    "get_bit_generator", "get_state", "gumbel", "hypergeometric", "laplace", "logistic", "lognormal", "logseries",
    "multinomial", "multivariate_normal", "negative_binomial", "noncentral_chisquare", "noncentral_f", "normal",
    "pareto", "permutation", "poisson", "power", "rand", "randint", "randn", "random", "random_integers",
    "random_sample", "ranf", "rayleigh", "sample", "seed", "set_bit_generator", "set_state", "shuffle",
    "standard_cauchy", "standard_exponential", "standard_gamma", "standard_normal", "standard_t", "triangular",
    "uniform", "vonmises", "wald", "weibull", "zipf",
)
REASON = ("write rng = np.random.default_rng(seed), and draw by its methods: this function draws from a global "
          "generator, so transforms and traces cannot follow the draw")


def check_unwatched(name: str, remedy: str) -> None:
    """Raise DispatchTypeError under vmap and under a mode, which would take the draw for a constant."""
    if any(isinstance(interpreter, (Vmap, ActiveMode)) for interpreter in _core.current_state().stack):
        raise DispatchTypeError(f"numpy.random.{name} was called under vmap, in a trace or under a mode, which would "
                                f"treat its draws as constants\n{remedy}")


def legacy(name: str) -> Callable[..., Any]:
    """Return the implementation of a refused function, for Tensors and under transforms and modes."""
    numpys = getattr(np.random, name)

    def refused(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs))):
            raise DispatchTypeError(f"numpy.random.{name} does not take a Tensor\n{REASON}")
        check_unwatched(name, REASON)
        return numpys(*args, **kwargs)
    return refused


# --- the operator that makes generators -------------------------------------------------------------------------------


def made_of_seed(seed: Any = None) -> Generator:
    """Return a new generator for a seed."""
    if isinstance(seed, np.ndarray) and seed.ndim == 0:
        seed = seed.item()
    made = Generator(np.random.default_rng(seed).bit_generator)
    if seed is not None and not isinstance(seed, (*sources(), RandomState)):
        note_made(made)     # each run may make another SeedSequence, and other sources go on
    return made


def batched_seed(op: OpOverload, info: Vmap, in_dims: Any, seed: Any) -> Any:
    """Raise VmapError."""
    raise VmapError(
        f"operator {op.name}: argument 'seed' is batched in {describe_interpreter(info)}, but all examples share one "
        'generator\nmake it of one seed, and draw with randomness="different"')


LIBRARY.declare("random_default_rng", "Any seed=None", made_of_seed, made_of_seed, returns="Generator",
                vmap=batched_seed, tags=("generators",), differentiable=False)
LIBRARY.install("random_default_rng")

for _name in LEGACY:
    if hasattr(np.random, _name):
        globals()[_name] = declare(f"random.{_name}", legacy(_name), REFUSED)
        REASONS[f"random.{_name}"] = REASON
__all__ += [name for name in LEGACY if hasattr(np.random, name)]
__dir__ = only_public(globals())

if TYPE_CHECKING:
    def __getattr__(name: str) -> Any: ...
