# Written by `python -m pydispatch stubs`.
# ruff: noqa

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import DTypeLike, NDArray

from pydispatch._core import OpOverload, Tensor
from pydispatch._stubs.arrays import Packet, _Array, _Number, _Raw, _T, _Value


class _linalg_cho_factor(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, lower: bool = ..., overwrite_a: bool = ..., check_finite: bool = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, lower: bool = ..., overwrite_a: bool = ..., check_finite: bool = ...) -> Any: ...

class _linalg_det(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, check_finite: bool = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, check_finite: bool = ...) -> Any: ...

class _linalg_eigh(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, lower: bool = ..., check_finite: bool = ...) -> tuple[_Array, _Array]: ...
    @overload
    def __call__(self, a: _Value, lower: bool = ..., check_finite: bool = ...) -> Any: ...

class _linalg_expm(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, A: _Array) -> _Array: ...
    @overload
    def __call__(self, A: _Value) -> Any: ...

class _linalg_lu_factor(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, overwrite_a: bool = ..., check_finite: bool = ...) -> tuple[_Array, _Array]: ...
    @overload
    def __call__(self, a: _Value, overwrite_a: bool = ..., check_finite: bool = ...) -> Any: ...

class _linalg_solve(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, b: _Value, check_finite: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, check_finite: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, check_finite: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, check_finite: bool = ...) -> Any: ...

class _linalg_solve_sylvester(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x1: Tensor, x2: _Value, x3: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, x3: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: _Value, x3: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, x3: _Raw, /) -> NDArray[Any]: ...
    @overload
    def __call__(self, *arrays: _Value, **named: _Value) -> Any: ...

class _linalg_solve_triangular(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, b: _Value, trans: int = ..., lower: bool = ..., unit_diagonal: bool = ..., overwrite_b: bool = ..., check_finite: bool = ..., is_factor: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, trans: int = ..., lower: bool = ..., unit_diagonal: bool = ..., overwrite_b: bool = ..., check_finite: bool = ..., is_factor: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, trans: int = ..., lower: bool = ..., unit_diagonal: bool = ..., overwrite_b: bool = ..., check_finite: bool = ..., is_factor: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, trans: int = ..., lower: bool = ..., unit_diagonal: bool = ..., overwrite_b: bool = ..., check_finite: bool = ..., is_factor: bool = ...) -> Any: ...

class _ndimage_convolve(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, input: Tensor, weights: _Value, mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, input: _Value, weights: Tensor, mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, input: _Raw, weights: _Raw, mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, input: _Value, weights: _Value, mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Any: ...

class _ndimage_map_coordinates(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, input: Tensor, coordinates: _Value, order: int = ..., mode: str = ..., cval: float = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, input: _Value, coordinates: Tensor, order: int = ..., mode: str = ..., cval: float = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, input: _Raw, coordinates: _Raw, order: int = ..., mode: str = ..., cval: float = ..., *, batch_ndim: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, input: _Value, coordinates: _Value, order: int = ..., mode: str = ..., cval: float = ..., *, batch_ndim: int = ...) -> Any: ...

class _signal_convolve(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, in1: Tensor, in2: _Value, mode: str = ..., method: str = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, in1: _Value, in2: Tensor, mode: str = ..., method: str = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, in1: _Raw, in2: _Raw, mode: str = ..., method: str = ..., *, batch_ndim: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, in1: _Value, in2: _Value, mode: str = ..., method: str = ..., *, batch_ndim: int = ...) -> Any: ...

class _signal_lfilter(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, b: Tensor, a: _Value, x: _Value, axis: int = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, b: _Value, a: Tensor, x: _Value, axis: int = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, b: _Value, a: _Value, x: Tensor, axis: int = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, b: _Raw, a: _Raw, x: _Raw, axis: int = ..., *, batch_ndim: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, b: _Value, a: _Value, x: _Value, axis: int = ..., *, batch_ndim: int = ...) -> Any: ...

class _special_agm(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x1: Tensor, x2: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, /) -> NDArray[Any]: ...
    @overload
    def __call__(self, *arrays: _Value, **named: _Value) -> Any: ...

class _special_airy(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, z: _Array) -> tuple[_Array, _Array, _Array, _Array]: ...
    @overload
    def __call__(self, z: _Value) -> Any: ...

class _special_bei(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: _Array) -> _Array: ...
    @overload
    def __call__(self, x: _Value) -> Any: ...

class _special_digamma(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, z: _Array) -> _Array: ...
    @overload
    def __call__(self, z: _Value) -> Any: ...

class _special_ellipe(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, m: _Array) -> _Array: ...
    @overload
    def __call__(self, m: _Value) -> Any: ...

class _special_ellipj(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x1: Tensor, x2: _Value, /) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, /) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, /) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, *arrays: _Value, **named: _Value) -> Any: ...

class _special_ellipkm1(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, p: _Array) -> _Array: ...
    @overload
    def __call__(self, p: _Value) -> Any: ...

class _special_elliprj(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x1: Tensor, x2: _Value, x3: _Value, x4: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, x3: _Value, x4: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: _Value, x3: Tensor, x4: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: _Value, x3: _Value, x4: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, x3: _Raw, x4: _Raw, /) -> NDArray[Any]: ...
    @overload
    def __call__(self, *arrays: _Value, **named: _Value) -> Any: ...

class _special_erfcinv(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, y: _Array) -> _Array: ...
    @overload
    def __call__(self, y: _Value) -> Any: ...

class _special_fresnel(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, z: _Array) -> tuple[_Array, _Array]: ...
    @overload
    def __call__(self, z: _Value) -> Any: ...

class _special_it2i0k0(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: _Array) -> tuple[_Array, _Array]: ...
    @overload
    def __call__(self, x: _Value) -> Any: ...

class _special_itairy(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: _Array) -> tuple[_Array, _Array, _Array, _Array]: ...
    @overload
    def __call__(self, x: _Value) -> Any: ...

class _special_lambertw(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, z: _Array, k: int = ..., tol: float = ...) -> _Array: ...
    @overload
    def __call__(self, z: _Value, k: int = ..., tol: float = ...) -> Any: ...

class _special_log_softmax(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: _Array, axis: int | Sequence[int] | None = ...) -> _Array: ...
    @overload
    def __call__(self, x: _Value, axis: int | Sequence[int] | None = ...) -> Any: ...

class _special_logsumexp(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> Any: ...

class _special_mathieu_cem(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x1: Tensor, x2: _Value, x3: _Value, /) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, x3: _Value, /) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, x1: _Value, x2: _Value, x3: Tensor, /) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, x3: _Raw, /) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, *arrays: _Value, **named: _Value) -> Any: ...

class _special_multigammaln(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, d: int) -> _Array: ...
    @overload
    def __call__(self, a: _Value, d: int) -> Any: ...

class _special_pbdv(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x1: Tensor, x2: _Value, /) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, /) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, /) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, *arrays: _Value, **named: _Value) -> Any: ...

class _special_spherical_in(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, n: Tensor, z: _Value, derivative: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, z: Tensor, derivative: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, n: _Raw, z: _Raw, derivative: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, n: _Value, z: _Value, derivative: bool = ...) -> Any: ...

class _special_zeta(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: Tensor, q: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, q: _Raw | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, q: _Value | None = ...) -> Any: ...

class Operators:
    """The operators of scipy."""

    fft_trigonometric: Packet
    interpolate_closed: Packet
    interpolate_finite: Packet
    interpolate_increasing: Packet
    interpolate_knots: Packet
    linalg_cho_factor: _linalg_cho_factor
    linalg_cholesky: _linalg_cho_factor
    linalg_det: _linalg_det
    linalg_eigh: _linalg_eigh
    linalg_eigh_of_tridiagonal: Packet
    linalg_expm: _linalg_expm
    linalg_expm_direction: Packet
    linalg_inv: _linalg_det
    linalg_logm: _linalg_expm
    linalg_logm_direction: Packet
    linalg_lu_constant: Packet
    linalg_lu_factor: _linalg_lu_factor
    linalg_lu_of_matrix: Packet
    linalg_row_exchanges: Packet
    linalg_solve: _linalg_solve
    linalg_solve_of_bands: Packet
    linalg_solve_sylvester: _linalg_solve_sylvester
    linalg_solve_triangular: _linalg_solve_triangular
    linalg_sqrtm: _linalg_expm
    ndimage_convolve: _ndimage_convolve
    ndimage_map_coordinates: _ndimage_map_coordinates
    ndimage_ranked: Packet
    ndimage_spline_coefficients: Packet
    ndimage_transposed: Packet
    ndimage_weigh: Packet
    signal_convolve: _signal_convolve
    signal_lfilter: _signal_lfilter
    signal_lfilter_from: Packet
    signal_sections: Packet
    sparse_product: Packet
    sparse_sampled_product: Packet
    sparse_solution: Packet
    special__beta_pdf: Packet
    special__beta_ppf: Packet
    special__binom_cdf: Packet
    special__binom_pmf: Packet
    special__binom_sf: Packet
    special__cauchy_isf: Packet
    special__cauchy_ppf: Packet
    special__cosine_cdf: Packet
    special__cosine_invcdf: Packet
    special__hypergeom_cdf: Packet
    special__hypergeom_pmf: Packet
    special__hypergeom_sf: Packet
    special__nbinom_cdf: Packet
    special__nbinom_kurtosis_excess: Packet
    special__nbinom_mean: Packet
    special__nbinom_pmf: Packet
    special__nbinom_sf: Packet
    special__nbinom_skewness: Packet
    special__nbinom_variance: Packet
    special__ncx2_sf: Packet
    special__scaled_exp1: Packet
    special__skewnorm_cdf: Packet
    special_agm: _special_agm
    special_airy: _special_airy
    special_airye: _special_airy
    special_bdtr: _linalg_solve_sylvester
    special_bdtrc: _linalg_solve_sylvester
    special_bdtri: _linalg_solve_sylvester
    special_bdtrik: _linalg_solve_sylvester
    special_bdtrin: _linalg_solve_sylvester
    special_bei: _special_bei
    special_beip: _special_bei
    special_ber: _special_bei
    special_berp: _special_bei
    special_besselpoly: _linalg_solve_sylvester
    special_beta: _special_agm
    special_betainc: _linalg_solve_sylvester
    special_betaincc: _linalg_solve_sylvester
    special_betainccinv: _linalg_solve_sylvester
    special_betaincinv: _linalg_solve_sylvester
    special_betaln: _special_agm
    special_binom: _special_agm
    special_boxcox: _special_agm
    special_boxcox1p: _special_agm
    special_btdtria: _linalg_solve_sylvester
    special_btdtrib: _linalg_solve_sylvester
    special_carlson: Packet
    special_cbrt: _special_bei
    special_chdtr: _special_agm
    special_chdtrc: _special_agm
    special_chdtri: _special_agm
    special_chdtriv: _special_agm
    special_chndtr: _linalg_solve_sylvester
    special_chndtrinc: _linalg_solve_sylvester
    special_chndtrix: _linalg_solve_sylvester
    special_cosdg: _special_bei
    special_cosm1: _special_bei
    special_cotdg: _special_bei
    special_dawsn: _special_bei
    special_digamma: _special_digamma
    special_diric: _special_agm
    special_ellipe: _special_ellipe
    special_ellipeinc: _special_agm
    special_ellipj: _special_ellipj
    special_ellipk: _special_ellipe
    special_ellipkinc: _special_agm
    special_ellipkm1: _special_ellipkm1
    special_elliprc: _special_agm
    special_elliprd: _linalg_solve_sylvester
    special_elliprf: _linalg_solve_sylvester
    special_elliprg: _linalg_solve_sylvester
    special_elliprj: _special_elliprj
    special_entr: _special_bei
    special_erf: _special_bei
    special_erfc: _special_bei
    special_erfcinv: _special_erfcinv
    special_erfcx: _special_bei
    special_erfi: _special_bei
    special_erfinv: _special_erfcinv
    special_eval_chebyc: _special_agm
    special_eval_chebys: _special_agm
    special_eval_chebyt: _special_agm
    special_eval_chebyu: _special_agm
    special_eval_gegenbauer: _linalg_solve_sylvester
    special_eval_genlaguerre: _linalg_solve_sylvester
    special_eval_hermite: _special_agm
    special_eval_hermitenorm: _special_agm
    special_eval_jacobi: _special_elliprj
    special_eval_laguerre: _special_agm
    special_eval_legendre: _special_agm
    special_eval_sh_chebyt: _special_agm
    special_eval_sh_chebyu: _special_agm
    special_eval_sh_jacobi: _special_elliprj
    special_eval_sh_legendre: _special_agm
    special_exp1: _special_digamma
    special_exp10: _special_bei
    special_exp2: _special_bei
    special_expi: _special_bei
    special_expit: _special_bei
    special_expm1: _special_bei
    special_expn: _special_agm
    special_exprel: _special_bei
    special_exprel_derivative: Packet
    special_fdtr: _linalg_solve_sylvester
    special_fdtrc: _linalg_solve_sylvester
    special_fdtri: _linalg_solve_sylvester
    special_fdtridfd: _linalg_solve_sylvester
    special_fresnel: _special_fresnel
    special_gamma: _special_digamma
    special_gammainc: _special_agm
    special_gammaincc: _special_agm
    special_gammainccinv: _special_agm
    special_gammaincinv: _special_agm
    special_gammaln: _special_bei
    special_gammasgn: _special_bei
    special_gdtr: _linalg_solve_sylvester
    special_gdtrc: _linalg_solve_sylvester
    special_gdtria: _linalg_solve_sylvester
    special_gdtrib: _linalg_solve_sylvester
    special_gdtrix: _linalg_solve_sylvester
    special_hankel1: _special_agm
    special_hankel1e: _special_agm
    special_hankel2: _special_agm
    special_hankel2e: _special_agm
    special_huber: _special_agm
    special_hyp0f1: _special_agm
    special_hyp1f1: _linalg_solve_sylvester
    special_hyp2f1: _special_elliprj
    special_hyperu: _linalg_solve_sylvester
    special_i0: _special_bei
    special_i0e: _special_bei
    special_i1: _special_bei
    special_i1e: _special_bei
    special_inv_boxcox: _special_agm
    special_inv_boxcox1p: _special_agm
    special_it2i0k0: _special_it2i0k0
    special_it2j0y0: _special_it2i0k0
    special_it2struve0: _special_bei
    special_itairy: _special_itairy
    special_iti0k0: _special_it2i0k0
    special_itj0y0: _special_it2i0k0
    special_itmodstruve0: _special_bei
    special_itstruve0: _special_bei
    special_iv: _special_agm
    special_ive: _special_agm
    special_j0: _special_bei
    special_j1: _special_bei
    special_jv: _special_agm
    special_jve: _special_agm
    special_k0: _special_bei
    special_k0e: _special_bei
    special_k1: _special_bei
    special_k1e: _special_bei
    special_kei: _special_bei
    special_keip: _special_bei
    special_ker: _special_bei
    special_kerp: _special_bei
    special_kl_div: _special_agm
    special_kn: _special_agm
    special_kolmogi: _special_ellipkm1
    special_kolmogorov: _special_erfcinv
    special_kolmogorov_slope: Packet
    special_kv: _special_agm
    special_kve: _special_agm
    special_lambertw: _special_lambertw
    special_log1p: _special_bei
    special_log_expit: _special_bei
    special_log_ndtr: _special_bei
    special_log_softmax: _special_log_softmax
    special_log_wright_bessel: _linalg_solve_sylvester
    special_loggamma: _special_digamma
    special_logit: _special_bei
    special_logsumexp: _special_logsumexp
    special_logsumexp_signed: Packet
    special_logsumexp_weighted: Packet
    special_logsumexp_with_shares: Packet
    special_lpmv: _linalg_solve_sylvester
    special_mathieu_a_value: Packet
    special_mathieu_b_value: Packet
    special_mathieu_cem: _special_mathieu_cem
    special_mathieu_modcem1: _special_mathieu_cem
    special_mathieu_modcem2: _special_mathieu_cem
    special_mathieu_modsem1: _special_mathieu_cem
    special_mathieu_modsem2: _special_mathieu_cem
    special_mathieu_sem: _special_mathieu_cem
    special_mills: Packet
    special_modstruve: _special_agm
    special_multigammaln: _special_multigammaln
    special_nbdtr: _linalg_solve_sylvester
    special_nbdtrc: _linalg_solve_sylvester
    special_nbdtri: _linalg_solve_sylvester
    special_nbdtrik: _linalg_solve_sylvester
    special_nbdtrin: _linalg_solve_sylvester
    special_ndtr: _special_bei
    special_ndtri: _special_erfcinv
    special_ndtri_exp: _special_erfcinv
    special_nrdtrimn: _linalg_solve_sylvester
    special_nrdtrisd: _linalg_solve_sylvester
    special_owens_t: _special_agm
    special_pbdv: _special_pbdv
    special_pbvv: _special_pbdv
    special_pbwa: _special_pbdv
    special_pdtr: _special_agm
    special_pdtrc: _special_agm
    special_pdtri: _special_agm
    special_pdtrik: _special_agm
    special_poch: _special_agm
    special_polygamma: _special_agm
    special_polygamma_of_any_order: Packet
    special_powm1: _special_agm
    special_pseudo_huber: _special_agm
    special_radian: _linalg_solve_sylvester
    special_rel_entr: _special_agm
    special_rgamma: _special_digamma
    special_round: _special_bei
    special_shichi: _special_it2i0k0
    special_sici: _special_it2i0k0
    special_sindg: _special_bei
    special_smirnov: _special_agm
    special_smirnov_slope: Packet
    special_smirnovi: _special_agm
    special_softmax: _special_log_softmax
    special_spence: _special_digamma
    special_sph_harm_y: _special_elliprj
    special_spherical_in: _special_spherical_in
    special_spherical_jn: _special_spherical_in
    special_spherical_kn: _special_spherical_in
    special_spherical_yn: _special_spherical_in
    special_stdtr: _special_agm
    special_stdtridf: _special_agm
    special_stdtrit: _special_agm
    special_struve: _special_agm
    special_tandg: _special_bei
    special_tklmbda: _special_agm
    special_voigt_profile: _linalg_solve_sylvester
    special_wofz: _special_digamma
    special_wright_bessel: _linalg_solve_sylvester
    special_wrightomega: _special_digamma
    special_xlog1py: _special_agm
    special_xlogy: _special_agm
    special_y0: _special_bei
    special_y1: _special_bei
    special_yn: _special_agm
    special_yv: _special_agm
    special_yve: _special_agm
    special_zeta: _special_zeta
    special_zeta_slope: Packet
    special_zetac: _special_bei
    stats_definite: Packet
    stats_finite_there: Packet
    stats_on_simplex: Packet
    stats_positive: Packet
