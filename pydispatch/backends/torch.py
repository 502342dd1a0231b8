"""PyTorch: its tensors, with its functions as the Array API has them.

What its own functions of NumPy's names do otherwise, with other arguments or other results, is left out.
"""

import torch

from pydispatch.backends.array_api import register_array_api

FFT = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")


def transform(name):
    """A function of `torch.fft` with NumPy's arguments."""
    function = getattr(torch.fft, name)
    return lambda xp, a, n=None, axis=-1, norm=None: function(a, n, axis, norm)


def svd(xp, a, full_matrices=True):
    """The singular value decomposition with NumPy's arguments."""
    return torch.linalg.svd(a, full_matrices)


def qr(xp, a, mode="reduced"):
    """The decomposition with NumPy's arguments."""
    return torch.linalg.qr(a, mode)


def eigh(xp, a, UPLO="L"):
    """The decomposition with NumPy's arguments."""
    return torch.linalg.eigh(a, UPLO)


def pinv(xp, a, rcond=None):
    """The pseudoinverse with NumPy's arguments."""
    return torch.linalg.pinv(a, rtol=rcond)


def copy(xp, a):
    """A tensor with memory of its own."""
    return a.clone()


def einsum(xp, subscripts, x1, x2=None, others=None, optimize=False):
    """Torch finds its own order of products."""
    operands = [each for each in (x1, x2, *(others or ())) if each is not None]
    return torch.einsum(subscripts, *map(torch.as_tensor, operands))


def searchsorted(xp, a, v, side="left"):
    """The positions with NumPy's arguments; nan is no last place for torch."""
    return torch.searchsorted(a, v, right=side == "right")


def argmax(xp, a, axis=None, keepdims=False):
    """The position with NumPy's arguments."""
    return torch.argmax(a, axis, keepdims)


def argmin(xp, a, axis=None, keepdims=False):
    """The position with NumPy's arguments."""
    return torch.argmin(a, axis, keepdims)


register_array_api(
    "Torch", torch.Tensor, "array_api_compat.torch",
    functions={"copy": copy, "linalg.svd": svd, "linalg.qr": qr, "linalg.eigh": eigh, "linalg.pinv": pinv,
               "einsum": einsum, "searchsorted": searchsorted, "argmax": argmax, "argmin": argmin,
               **{f"fft.{name}": transform(name) for name in FFT}},
    without=("median", "nanmedian", "quantile", "nanquantile", "diagonal", "nansum", "nanmean", "gradient", "trapezoid",
             "histogram", "cov", "corrcoef", "select", "cross", "norm", "linalg.norm", "swapaxes", "linspace",
             "bincount", "isin", "unique", "linalg.cond", "linalg.lstsq", "scatter_add"))
