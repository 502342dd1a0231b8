"""Result types of functions that are written with operators, for the stubs, and the parameters that are arrays.

`{}` stands for a Tensor where an argument is one, for an array where they are arrays. Functions that are not here give
what depends on more than that: `gradient` on the number of axes, `apply_along_axis` on a function.
"""

from pydispatch.numpy import linalg, sets

NAMED = {each.__name__: each for each in (
    linalg.EigResult, linalg.EighResult, linalg.QRResult, linalg.SlogdetResult, linalg.SVDResult,
    sets.UniqueAllResult, sets.UniqueCountsResult, sets.UniqueInverseResult)}
"""NumPy's named tuples of results."""
NUMBER = "number"
"""In place of `{}` where arrays often give a number, which checkers would refuse as a float were it an array."""
GIVES = {
    "{}": """
        angle append arange argpartition argwhere around array asanyarray asarray asarray_chkfinite ascontiguousarray
        asfortranarray bartlett bincount blackman choose column_stack compress correlate cov cross cumulative_prod
        cumulative_sum delete diag diagflat diagonal diff digitize dstack ediff1d empty extract eye fix flatnonzero
        fliplr flipud full geomspace hamming hanning histogram_bin_edges hstack identity insert intersect1d isclose
        iscomplex isin isnat isneginf isposinf isreal kaiser kron lexsort linspace logspace matrix_transpose matvec
        nan_to_num nancumprod nancumsum ones outer packbits pad partition poly polyadd polyder polyfit
        polyint polymul polysub ravel_multi_index real_if_close require resize rollaxis roots rot90 select setdiff1d
        setxor1d sort_complex tensordot tri tril trim_zeros triu union1d unique unique_values unpackbits unwrap vander
        vecmat vstack zeros
        fft.fft2 fft.fftfreq fft.fftn fft.fftshift fft.hfft fft.ifft2 fft.ifftn fft.ifftshift fft.ihfft fft.irfft2
        fft.irfftn fft.rfft2 fft.rfftfreq fft.rfftn
        linalg.cross linalg.diagonal linalg.matrix_power linalg.matrix_transpose linalg.outer linalg.pinv
        linalg.svdvals linalg.tensordot linalg.tensorinv linalg.tensorsolve""",
    NUMBER: """
        average corrcoef count_nonzero dot inner median nanargmax nanargmin nanmax nanmean nanmedian nanmin
        nanpercentile nanprod nanquantile nanstd nansum nanvar percentile polyval ptp quantile trace trapezoid vdot
        vecdot linalg.cond linalg.matmul linalg.matrix_norm linalg.matrix_rank linalg.multi_dot linalg.norm
        linalg.trace linalg.vecdot linalg.vector_norm""",
    "list[{}]": "array_split dsplit hsplit vsplit",
    "tuple[{}, ...]": """
        broadcast_arrays diag_indices_from ix_ meshgrid nonzero tril_indices_from triu_indices_from unravel_index
        unstack""",
    "tuple[{}, {}]": "divmod frexp histogram modf",
    "tuple[{}, Any, Any]": "histogram2d",
    "EigResult[{}]": "linalg.eig", "EighResult[{}]": "linalg.eigh", "QRResult[{}]": "linalg.qr",
    "SlogdetResult[number]": "linalg.slogdet", "SVDResult[{}]": "linalg.svd", "UniqueAllResult[{}]": "unique_all",
    "UniqueCountsResult[{}]": "unique_counts", "UniqueInverseResult[{}]": "unique_inverse",
    "builtins.bool": "can_cast iscomplexobj isrealobj may_share_memory shares_memory",
    "int": "ndim size",
    "tuple[int, ...]": "shape",
    "str": "array2string array_repr array_str",
    "tuple[list[Any], builtins.str]": "einsum_path",
    "None": "copyto fill_diagonal place put put_along_axis putmask save savetxt savez savez_compressed",
}
RESULTS = {name: result for result, names in GIVES.items() for name in names.split()}
ONE_OR_MORE = {"atleast_1d", "atleast_2d", "atleast_3d"}
"""Functions that give an array for one, and a tuple for several."""
OF_NUMBERS_TOO = {"full", "geomspace", "kaiser", "linspace", "logspace"}
"""Functions that make arrays of numbers alone."""
NO_ARRAYS = {"M", "N", "axis", "deg", "indices_or_sections", "kth", "n", "new_shape", "obj", "pad_width", "shape",
             "start_or_stop", "funclist"}
"""Parameters without default that are no arrays."""
SEQUENCES = {"arrays", "choicelist", "choices", "condlist", "keys", "multi_index", "tup"}
"""Those that are arrays or sequences of arrays."""
OPTIONAL_ARRAYS = {"append", "aweights", "bins", "d", "fweights", "nan", "neginf", "period", "posinf", "prepend",
                   "to_begin", "to_end", "w", "weights", "x", "y"}
"""Parameters that make the result a Tensor if they are one, and have a default."""
AS_TOLD = {
    "mode": 'Literal["reduced", "complete"]', "compute_uv": "Literal[True]", "disp": "Literal[True]", "like": "None",
    **dict.fromkeys(["cov", "full", "retstep", "return_counts", "return_index", "return_indices", "return_inverse",
                     "return_sign", "returned"], "Literal[False]")}
"""The values of parameters for which a function gives what is told here; `mode` is that of `linalg.qr`."""
