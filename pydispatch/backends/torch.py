"""PyTorch's tensors, with its functions as the Array API has them.

Functions of PyTorch that share a name with NumPy's but have other arguments or results are left out.
"""

# tests: tests/backends/test_array_api.py
import torch

from pydispatch.backends.array_api import register_array_api

FFT = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")


def transform(name):
    """Return a function of `torch.fft` with NumPy's arguments."""
    function = getattr(torch.fft, name)
    return lambda xp, a, n=None, axis=-1, norm=None: function(a, n, axis, norm)


def svd(xp, a, full_matrices=True):
    """Compute the singular value decomposition, with NumPy's arguments."""
    return torch.linalg.svd(a, full_matrices)


def qr(xp, a, mode="reduced"):
    """Compute the QR decomposition, with NumPy's arguments."""
    return torch.linalg.qr(a, mode)


def eigh(xp, a, UPLO="L"):
    """Compute the eigendecomposition of a Hermitian matrix, with NumPy's arguments."""
    return torch.linalg.eigh(a, UPLO)


def pinv(xp, a, rcond=None):
    """Compute the pseudoinverse, with NumPy's arguments."""
    return torch.linalg.pinv(a, rtol=rcond)


def copy(xp, a):
    """Return a tensor with a copy of the memory."""
    return a.clone()


def einsum(xp, subscripts, x1, x2=None, others=None, optimize=False):
    """Sum products over subscripts. `optimize` is ignored, because torch finds the order of products itself."""
    operands = [each for each in (x1, x2, *(others or ())) if each is not None]
    return torch.einsum(subscripts, *map(torch.as_tensor, operands))


def searchsorted(xp, a, v, side="left"):
    """Find positions in a sorted tensor, with NumPy's arguments. Unlike NumPy, torch does not sort nan last."""
    return torch.searchsorted(a, v, right=side == "right")


def argmax(xp, a, axis=None, keepdims=False):
    """Return the position of the maximum, with NumPy's arguments."""
    return torch.argmax(a, axis, keepdims)


def argmin(xp, a, axis=None, keepdims=False):
    """Return the position of the minimum, with NumPy's arguments."""
    return torch.argmin(a, axis, keepdims)


register_array_api(
    "Torch", torch.Tensor, "array_api_compat.torch",
    functions={"copy": copy, "linalg.svd": svd, "linalg.qr": qr, "linalg.eigh": eigh, "linalg.pinv": pinv,
               "einsum": einsum, "searchsorted": searchsorted, "argmax": argmax, "argmin": argmin,
               **{f"fft.{name}": transform(name) for name in FFT}},
    without=("median", "nanmedian", "quantile", "nanquantile", "diagonal", "nansum", "nanmean", "gradient", "trapezoid",
             "histogram", "cov", "corrcoef", "select", "cross", "norm", "linalg.norm", "swapaxes", "linspace",
             "bincount", "isin", "unique", "linalg.cond", "linalg.lstsq", "scatter_add"))
