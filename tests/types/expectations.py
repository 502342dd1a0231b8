"""Types that mypy and pyright are expected to infer. `test_types.py` runs both on this file.

A line with `# type: ignore` must be an error, and no other line may be one.
"""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import pydispatch
import pydispatch.numpy as pnp
from pydispatch import OpOverload, OpOverloadPacket, Tensor, autograd, func, library, ops
from pydispatch.scipy import linalg as scipy_linalg
from pydispatch.scipy import signal, special

tensor = Tensor(np.ones(3))
array = np.ones(3)
Row = np.ndarray[tuple[int], np.dtype[np.float64]]

# Python's operators

assert_type(tensor + tensor, Tensor)
assert_type(tensor + array, Tensor)
assert_type(array + tensor, Tensor)
assert_type(array - tensor, Tensor)
assert_type(array * tensor, Tensor)
assert_type(array / tensor, Tensor)
assert_type(array // tensor, Tensor)
assert_type(array % tensor, Tensor)
assert_type(array**tensor, Tensor)
assert_type(array @ tensor, Tensor)
assert_type(array > tensor, Tensor)
assert_type(2.0 * tensor, Tensor)
assert_type(np.float64(2.0) * tensor, Tensor)
assert_type(-tensor, Tensor)
assert_type(tensor[0], Tensor)
assert_type(tensor.sum(), Tensor)
assert_type(tensor.grad, Tensor | None)


# arrays of any shape. Those of an unknown dtype, for which NumPy answers before it asks the Tensor


def typed(known: NDArray[np.float64], unknown: NDArray[Any]) -> None:
    assert_type(known + tensor, Tensor)
    assert_type(known @ tensor, Tensor)
    assert_type(ops.np.add(known, known), NDArray[Any])
    assert_type(tensor + unknown, Tensor)
    assert_type(unknown + tensor, Any)
    assert_type(ops.np.add(unknown, tensor), Tensor)
    assert_type(ops.np.where(unknown, unknown, tensor), Tensor)
    assert_type(pnp.add(unknown, tensor), Tensor)


# operators of the library: a Tensor gives a Tensor, an array an array

assert_type(ops.np.add(tensor, tensor), Tensor)
assert_type(ops.np.add(tensor, 1.0), Tensor)
assert_type(ops.np.add(array, tensor), Tensor)
assert_type(ops.np.add(array, array), NDArray[Any])
assert_type(ops.np.add(array, 1.0, dtype=np.float32), NDArray[Any])
assert_type(ops.np.add(x1=array, x2=tensor), Tensor)
assert_type(ops.np.add_(tensor, 1.0), Tensor)
assert_type(ops.np.add(tensor, 1.0, out=tensor), Tensor)
assert_type(ops.np.sum(tensor, 0, keepdims=True), Tensor)
assert_type(ops.np.sum(array, axis=(0, 1)), NDArray[Any])
assert_type(ops.np.concatenate([tensor, tensor]), Tensor)
assert_type(ops.np.concatenate([array, array]), NDArray[Any])
assert_type(ops.np.split(tensor, 3), tuple[Tensor, ...])
assert_type(ops.np.linalg_svd(tensor), tuple[Tensor, Tensor, Tensor])
assert_type(ops.np.getitem(tensor, (0, None, ...)), Tensor)
assert_type(ops.np.zeros((2, 3)), NDArray[Any])
assert_type(ops.np.where(tensor > 0, tensor, 0.0), Tensor)
assert_type(ops.scipy.special_jv(1.0, tensor), Tensor)
assert_type(ops.np.add.out, OpOverload)
packet: OpOverloadPacket = ops.np.add

ops.np.add(tensor)  # type: ignore
ops.np.add("text", tensor)  # type: ignore
ops.np.add(tensor, tensor, axis=0)  # type: ignore
ops.np.sum(tensor, axis="rows")  # type: ignore
ops.np.adds(tensor, tensor)  # type: ignore

# NumPy's functions take Tensors

np.sin(tensor)
np.add(array, tensor)
np.sum(tensor)
np.concatenate([tensor, tensor])

# functions of pydispatch.numpy: as operators, and what else NumPy takes

assert_type(pnp.sin(tensor), Tensor)
assert_type(pnp.sin(array), NDArray[Any])
assert_type(pnp.add(tensor, 1.0), Tensor)
assert_type(pnp.add(array, tensor), Tensor)
assert_type(pnp.add(array, 1.0), NDArray[Any])
assert_type(pnp.add(tensor, array, out=tensor), Tensor)
assert_type(pnp.add.reduce(tensor), Tensor)
assert_type(pnp.multiply.outer(array, tensor), Tensor)
assert_type(pnp.add.nin, int)
assert_type(pnp.sum(tensor, axis=0), Tensor)
assert_type(pnp.sum(tensor, out=tensor), Tensor)
assert_type(pnp.concatenate([tensor, tensor], axis=0), Tensor)
assert_type(pnp.concatenate([array, array]), NDArray[Any])
assert_type(pnp.reshape(tensor, (3, 1)), Tensor)
assert_type(pnp.split(tensor, 3), list[Tensor])
assert_type(pnp.einsum("i,i", tensor, array), Any)
assert_type(pnp.where(tensor > 0, tensor, 0.0), Tensor)
assert_type(pnp.add(array, array, out=(tensor,)), Tensor)
assert_type(pnp.clip(array, 0.0, 1.0), NDArray[Any])
assert_type(pnp.clip(array, tensor), Any)
assert_type(pnp.linalg.inv(tensor), Tensor)
assert_type(pnp.linalg.inv(array), NDArray[Any])
assert_type(pnp.fft.fft(tensor, 4), Tensor)
assert_type(special.gamma(tensor), Tensor)
assert_type(special.jv(1.0, array), NDArray[Any])
assert_type(special.airy(tensor), tuple[Tensor, Tensor, Tensor, Tensor])
assert_type(scipy_linalg.expm(tensor), Tensor)
assert_type(signal.convolve(array, tensor), Tensor)

# functions of pydispatch.numpy that are written with operators

assert_type(pnp.diff(tensor), Tensor)
assert_type(pnp.diff(array, prepend=0.0), NDArray[Any])
assert_type(pnp.diff(array, prepend=tensor), Any)
assert_type(pnp.median(tensor, axis=0), Tensor)
assert_type(pnp.tensordot(array, tensor, 1), Tensor)
assert_type(pnp.hstack([tensor, tensor]), Tensor)
assert_type(pnp.hstack((array, array)), NDArray[Any])
assert_type(pnp.hsplit(tensor, 3), list[Tensor])
assert_type(pnp.meshgrid(tensor, tensor), tuple[Tensor, ...])
assert_type(pnp.divmod(tensor, 2.0), tuple[Tensor, Tensor])
assert_type(pnp.atleast_1d(tensor), Tensor)
assert_type(pnp.unique(tensor), Tensor)
assert_type(pnp.unique(tensor, return_counts=True), Any)
assert_type(pnp.unique_counts(tensor).counts, Tensor)
assert_type(pnp.array(tensor), Tensor)
assert_type(pnp.zeros((2, 3)), NDArray[Any])
assert_type(pnp.linspace(0.0, 1.0), NDArray[Any])
assert_type(pnp.linspace(0.0, tensor, 5), Tensor)
assert_type(pnp.shape(tensor), tuple[int, ...])
assert_type(pnp.iscomplexobj(tensor), bool)
assert_type(pnp.fft.fft2(tensor), Tensor)
assert_type(pnp.linalg.norm(tensor), Tensor)
assert_type(pnp.linalg.svd(array).S, NDArray[Any])
assert_type(pnp.linalg.svd(tensor, compute_uv=False), Any)
eigenvalues, eigenvectors = pnp.linalg.eigh(tensor)
assert_type(eigenvectors, Tensor)
middle: float = pnp.median(array)
length: float = pnp.linalg.norm(array)


def into_arrays(row: Row) -> None:
    assert_type(pnp.add(tensor, tensor, out=(row,)), Row)
    assert_type(pnp.add(tensor, tensor, out=row), Row)
    assert_type(pnp.median(tensor, out=row), Row)


determinant: float = pnp.linalg.det(array)
between: float = pnp.interp(0.5, array, array)
number: float = pnp.sum(array)
root: float = pnp.sqrt(2.0)
pnp.sin([0.5, 1.0])
pnp.concatenate([[1.0], array])
pnp.stack((tensor, array))
pnp.sum(array, None, None, array)

pnp.add(tensor)  # type: ignore
pnp.sum(tensor, axes=0)  # type: ignore
pnp.linalg.invert(tensor)  # type: ignore
special.nonsense(tensor)  # type: ignore
print(pnp.sin(tensor).nonsense)  # type: ignore

# what is loaded on demand

print(pydispatch.tracing.make_fx, pydispatch.higher_order.scan, pydispatch.testing.opcheck)
pydispatch.numpy.add(tensor, array)
func.grad(lambda x: x.sum())
print(pydispatch.nonsense)  # type: ignore

# transforms keep the signature of the function


def loss(x: Tensor, scale: float = 1.0) -> Tensor:
    return (x * scale).sum()


def pair(x: Tensor) -> tuple[Tensor, int]:
    return x, 1


def square(x: Tensor | NDArray[Any]) -> Tensor:
    return Tensor(x) * 2.0


custom = library.custom_op("types::square", mutates_args=())(square)
compiled = pydispatch.compile(loss)
func.grad(loss)(tensor, scale=2.0)
assert_type(func.value_and_grad(loss)(tensor), tuple[Tensor, Any])
assert_type(func.value_and_grad(pair, has_aux=True)(tensor), tuple[tuple[Tensor, int], Any])
assert_type(func.vmap(loss, in_dims=(0, None))(tensor, 2.0), Tensor)
assert_type(func.jvp(loss, (tensor, 1.0), (tensor, 0.0)), tuple[Tensor, Tensor])
assert_type(func.jvp(loss, (tensor,), (tensor,)), tuple[Tensor, Tensor])
assert_type(func.jvp(pair, (tensor,), (tensor,), has_aux=True), tuple[Any, ...])
assert_type(compiled(tensor), Tensor)
assert_type(compiled.cache_info().hits, int)
assert_type(func.vmap(pydispatch.compile(func.value_and_grad(loss)))(tensor), tuple[Tensor, Any])
assert_type(custom(tensor), Tensor)
assert_type(autograd.checkpoint(loss, tensor), Tensor)
assert_type(autograd.checkpoint(loss, tensor, 2.0), Tensor)
func.jvp(lambda x: x * 2, (1.0,), (1.0,))
autograd.checkpoint(lambda x: x * 2, tensor)

func.grad(loss)("a")  # type: ignore
func.grad(loss)(tensor, size=1)  # type: ignore
func.value_and_grad(loss)("a")  # type: ignore
func.vmap(loss)()  # type: ignore
func.jvp(loss, ("a",), (tensor,))  # type: ignore
func.jacrev(loss)("a")  # type: ignore
func.jacfwd(loss)("a")  # type: ignore
func.hessian(loss)("a")  # type: ignore
compiled("a")  # type: ignore
custom("a")  # type: ignore
autograd.checkpoint(loss, "a")  # type: ignore
