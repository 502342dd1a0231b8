# Written by `python tools/regenerate.py`.  # ruff: noqa

import builtins
from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, overload

from numpy.typing import NDArray

from pydispatch._core import Tensor
from pydispatch._stubs.arrays import _Array, _Out, _Raw, _T

from pydispatch._stubs.universal import Function11, Function12, Function14, Function21, Function22, Function31, Function32, Function41

SpecialFunctionError: Any
SpecialFunctionWarning: Any
agm: Function21
ai_zeros: Any
airy: Function14
airye: Function14
def assoc_laguerre(*args: Any, **kwargs: Any) -> Any: ...
def assoc_legendre_p(*args: Any, **kwargs: Any) -> Any: ...
def assoc_legendre_p_all(*args: Any, **kwargs: Any) -> Any: ...
bdtr: Function31
bdtrc: Function31
bdtri: Function31
bdtrik: Function31
bdtrin: Function31
bei: Function11
bei_zeros: Any
beip: Function11
beip_zeros: Any
ber: Function11
ber_zeros: Any
def bernoulli(*args: Any, **kwargs: Any) -> Any: ...
berp: Function11
berp_zeros: Any
besselpoly: Function31
beta: Function21
betainc: Function31
betaincc: Function31
betainccinv: Function31
betaincinv: Function31
betaln: Function21
bi_zeros: Any
binom: Function21
boxcox: Function21
boxcox1p: Function21
btdtria: Function31
btdtrib: Function31
c_roots: Any
cbrt: Function11
cg_roots: Any
chdtr: Function21
chdtrc: Function21
chdtri: Function21
chdtriv: Function21
chebyc: Any
chebys: Any
chebyt: Any
chebyu: Any
chndtr: Function31
def chndtridf(x1: Any, x2: Any, x3: Any, /, *out: Any, **kwargs: Any) -> Any: ...
chndtrinc: Function31
chndtrix: Function31
def comb(*args: Any, exact: Any = ..., **kwargs: Any) -> Any: ...
cosdg: Function11
cosm1: Function11
cotdg: Function11
dawsn: Function11
digamma: Function11
@overload
def diric(x: Tensor, n: Any) -> Tensor: ...
@overload
def diric(x: Any, n: Tensor) -> Tensor: ...
@overload
def diric(x: NDArray[Any], n: _Raw) -> NDArray[Any]: ...
@overload
def diric(x: _Raw, n: NDArray[Any]) -> NDArray[Any]: ...
@overload
def diric(x: Any, n: Any) -> Any: ...
def ellip_harm(*args: Any, **kwargs: Any) -> Any: ...
def ellip_harm_2(*args: Any, **kwargs: Any) -> Any: ...
def ellip_normal(*args: Any, **kwargs: Any) -> Any: ...
ellipe: Function11
ellipeinc: Function21
@overload
def ellipj(x1: Tensor, x2: Any, /, *, out: None = ..., **kwargs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
@overload
def ellipj(x1: Any, x2: Tensor, /, *, out: None = ..., **kwargs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
@overload
def ellipj(x1: NDArray[Any], x2: _Raw, /, *, out: None = ..., **kwargs: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]: ...
@overload
def ellipj(x1: _Raw, x2: NDArray[Any], /, *, out: None = ..., **kwargs: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]: ...
@overload
def ellipj(x1: Any, x2: Any, /, *out: Any, **kwargs: Any) -> Any: ...
ellipk: Function11
ellipkinc: Function21
ellipkm1: Function11
elliprc: Function21
elliprd: Function31
elliprf: Function31
elliprg: Function31
elliprj: Function41
entr: Function11
erf: Function11
erf_zeros: Any
erfc: Function11
erfcinv: Function11
erfcx: Function11
erfi: Function11
erfinv: Function11
errstate: Any
def euler(*args: Any, **kwargs: Any) -> Any: ...
eval_chebyc: Function21
eval_chebys: Function21
eval_chebyt: Function21
eval_chebyu: Function21
eval_gegenbauer: Function31
eval_genlaguerre: Function31
eval_hermite: Function21
eval_hermitenorm: Function21
eval_jacobi: Function41
eval_laguerre: Function21
eval_legendre: Function21
eval_sh_chebyt: Function21
eval_sh_chebyu: Function21
eval_sh_jacobi: Function41
eval_sh_legendre: Function21
exp1: Function11
exp10: Function11
exp2: Function11
expi: Function11
expit: Function11
expm1: Function11
expn: Function21
exprel: Function11
def factorial(*args: Any, exact: Any = ..., **kwargs: Any) -> Any: ...
def factorial2(*args: Any, **kwargs: Any) -> Any: ...
def factorialk(*args: Any, **kwargs: Any) -> Any: ...
fdtr: Function31
fdtrc: Function31
fdtri: Function31
fdtridfd: Function31
fresnel: Function12
fresnel_zeros: Any
fresnelc_zeros: Any
fresnels_zeros: Any
gamma: Function11
gammainc: Function21
gammaincc: Function21
gammainccinv: Function21
gammaincinv: Function21
gammaln: Function11
gammasgn: Function11
gdtr: Function31
gdtrc: Function31
gdtria: Function31
gdtrib: Function31
gdtrix: Function31
gegenbauer: Any
genlaguerre: Any
geterr: Any
def h1vp(v: Any, z: Any, n: Any = ...) -> Any: ...
def h2vp(v: Any, z: Any, n: Any = ...) -> Any: ...
h_roots: Any
hankel1: Function21
hankel1e: Function21
hankel2: Function21
hankel2e: Function21
he_roots: Any
hermite: Any
hermitenorm: Any
huber: Function21
hyp0f1: Function21
hyp1f1: Function31
hyp2f1: Function41
hyperu: Function31
i0: Function11
i0e: Function11
i1: Function11
i1e: Function11
inv_boxcox: Function21
inv_boxcox1p: Function21
it2i0k0: Function12
it2j0y0: Function12
it2struve0: Function11
itairy: Function14
iti0k0: Function12
itj0y0: Function12
itmodstruve0: Function11
itstruve0: Function11
iv: Function21
ive: Function21
def ivp(v: Any, z: Any, n: Any = ...) -> Any: ...
j0: Function11
j1: Function11
j_roots: Any
jacobi: Any
def jn(x1: Any, x2: Any, /, *out: Any, **kwargs: Any) -> Any: ...
jn_zeros: Any
jnjnp_zeros: Any
jnp_zeros: Any
jnyn_zeros: Any
js_roots: Any
jv: Function21
jve: Function21
def jvp(v: Any, z: Any, n: Any = ...) -> Any: ...
k0: Function11
k0e: Function11
k1: Function11
k1e: Function11
kei: Function11
kei_zeros: Any
keip: Function11
keip_zeros: Any
def kelvin(x: Any, /, *out: Any, **kwargs: Any) -> Any: ...
kelvin_zeros: Any
ker: Function11
ker_zeros: Any
kerp: Function11
kerp_zeros: Any
kl_div: Function21
kn: Function21
kolmogi: Function11
kolmogorov: Function11
kv: Function21
kve: Function21
def kvp(v: Any, z: Any, n: Any = ...) -> Any: ...
l_roots: Any
la_roots: Any
laguerre: Any
@overload
def lambertw(z: _Array, k: Any = ..., tol: Any = ...) -> _Array: ...
@overload
def lambertw(z: Any, k: Any = ..., tol: Any = ...) -> Any: ...
legendre: Any
def legendre_p(*args: Any, **kwargs: Any) -> Any: ...
def legendre_p_all(*args: Any, **kwargs: Any) -> Any: ...
def lmbda(*args: Any, **kwargs: Any) -> Any: ...
log1p: Function11
log_expit: Function11
log_ndtr: Function11
@overload
def log_softmax(x: Tensor, axis: Any = ...) -> Tensor: ...
@overload
def log_softmax(x: Any, axis: Any = ...) -> Any: ...
log_wright_bessel: Function31
loggamma: Function11
logit: Function11
@overload
def logsumexp(a: Tensor, axis: Any = ..., b: Any = ..., keepdims: Any = ..., return_sign: Literal[False] = ...) -> Tensor: ...
@overload
def logsumexp(a: Any, axis: Any = ..., b: Any = ..., keepdims: Any = ..., return_sign: Any = ...) -> Any: ...
lpmv: Function31
def lqmn(*args: Any, **kwargs: Any) -> Any: ...
def lqn(*args: Any, **kwargs: Any) -> Any: ...
def mathieu_a(x1: Any, x2: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def mathieu_b(x1: Any, x2: Any, /, *out: Any, **kwargs: Any) -> Any: ...
mathieu_cem: Function32
def mathieu_even_coef(*args: Any, **kwargs: Any) -> Any: ...
mathieu_modcem1: Function32
mathieu_modcem2: Function32
mathieu_modsem1: Function32
mathieu_modsem2: Function32
def mathieu_odd_coef(*args: Any, **kwargs: Any) -> Any: ...
mathieu_sem: Function32
def modfresnelm(x: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def modfresnelp(x: Any, /, *out: Any, **kwargs: Any) -> Any: ...
modstruve: Function21
@overload
def multigammaln(a: _Array, d: Any) -> _Array: ...
@overload
def multigammaln(a: Any, d: Any) -> Any: ...
nbdtr: Function31
nbdtrc: Function31
nbdtri: Function31
nbdtrik: Function31
nbdtrin: Function31
def ncfdtr(x1: Any, x2: Any, x3: Any, x4: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def ncfdtri(x1: Any, x2: Any, x3: Any, x4: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def ncfdtridfd(x1: Any, x2: Any, x3: Any, x4: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def ncfdtridfn(x1: Any, x2: Any, x3: Any, x4: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def ncfdtrinc(x1: Any, x2: Any, x3: Any, x4: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def nctdtr(x1: Any, x2: Any, x3: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def nctdtridf(x1: Any, x2: Any, x3: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def nctdtrinc(x1: Any, x2: Any, x3: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def nctdtrit(x1: Any, x2: Any, x3: Any, /, *out: Any, **kwargs: Any) -> Any: ...
ndtr: Function11
ndtri: Function11
ndtri_exp: Function11
nrdtrimn: Function31
nrdtrisd: Function31
def obl_ang1(x1: Any, x2: Any, x3: Any, x4: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def obl_ang1_cv(x1: Any, x2: Any, x3: Any, x4: Any, x5: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def obl_cv(x1: Any, x2: Any, x3: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def obl_cv_seq(*args: Any, **kwargs: Any) -> Any: ...
def obl_rad1(x1: Any, x2: Any, x3: Any, x4: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def obl_rad1_cv(x1: Any, x2: Any, x3: Any, x4: Any, x5: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def obl_rad2(x1: Any, x2: Any, x3: Any, x4: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def obl_rad2_cv(x1: Any, x2: Any, x3: Any, x4: Any, x5: Any, /, *out: Any, **kwargs: Any) -> Any: ...
owens_t: Function21
p_roots: Any
def pbdn_seq(*args: Any, **kwargs: Any) -> Any: ...
pbdv: Function22
def pbdv_seq(*args: Any, **kwargs: Any) -> Any: ...
pbvv: Function22
def pbvv_seq(*args: Any, **kwargs: Any) -> Any: ...
pbwa: Function22
pdtr: Function21
pdtrc: Function21
pdtri: Function21
pdtrik: Function21
def perm(*args: Any, exact: Any = ..., **kwargs: Any) -> Any: ...
poch: Function21
@overload
def polygamma(n: Tensor, x: Any) -> Tensor: ...
@overload
def polygamma(n: Any, x: Tensor) -> Tensor: ...
@overload
def polygamma(n: NDArray[Any], x: _Raw) -> NDArray[Any]: ...
@overload
def polygamma(n: _Raw, x: NDArray[Any]) -> NDArray[Any]: ...
@overload
def polygamma(n: Any, x: Any) -> Any: ...
powm1: Function21
def pro_ang1(x1: Any, x2: Any, x3: Any, x4: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def pro_ang1_cv(x1: Any, x2: Any, x3: Any, x4: Any, x5: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def pro_cv(x1: Any, x2: Any, x3: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def pro_cv_seq(*args: Any, **kwargs: Any) -> Any: ...
def pro_rad1(x1: Any, x2: Any, x3: Any, x4: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def pro_rad1_cv(x1: Any, x2: Any, x3: Any, x4: Any, x5: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def pro_rad2(x1: Any, x2: Any, x3: Any, x4: Any, /, *out: Any, **kwargs: Any) -> Any: ...
def pro_rad2_cv(x1: Any, x2: Any, x3: Any, x4: Any, x5: Any, /, *out: Any, **kwargs: Any) -> Any: ...
ps_roots: Any
pseudo_huber: Function21
def psi(x: Any, /, *out: Any, **kwargs: Any) -> Any: ...
radian: Function31
rel_entr: Function21
rgamma: Function11
def riccati_jn(*args: Any, **kwargs: Any) -> Any: ...
def riccati_yn(*args: Any, **kwargs: Any) -> Any: ...
roots_chebyc: Any
roots_chebys: Any
roots_chebyt: Any
roots_chebyu: Any
roots_gegenbauer: Any
roots_genlaguerre: Any
roots_hermite: Any
roots_hermitenorm: Any
roots_jacobi: Any
roots_laguerre: Any
roots_legendre: Any
roots_sh_chebyt: Any
roots_sh_chebyu: Any
roots_sh_jacobi: Any
roots_sh_legendre: Any
round: Function11
s_roots: Any
seterr: Any
sh_chebyt: Any
sh_chebyu: Any
sh_jacobi: Any
sh_legendre: Any
shichi: Function12
sici: Function12
def sinc(x: Any) -> Any: ...
sindg: Function11
smirnov: Function21
smirnovi: Function21
softmax = log_softmax
def softplus(x: Any, **kwargs: Any) -> Any: ...
spence: Function11
def sph_harm_y(*args: Any, **kwargs: Any) -> Any: ...
def sph_harm_y_all(*args: Any, **kwargs: Any) -> Any: ...
def sph_legendre_p(*args: Any, **kwargs: Any) -> Any: ...
def sph_legendre_p_all(*args: Any, **kwargs: Any) -> Any: ...
@overload
def spherical_in(n: Tensor, z: Any, derivative: Any = ...) -> Tensor: ...
@overload
def spherical_in(n: Any, z: Tensor, derivative: Any = ...) -> Tensor: ...
@overload
def spherical_in(n: NDArray[Any], z: _Raw, derivative: Any = ...) -> NDArray[Any]: ...
@overload
def spherical_in(n: _Raw, z: NDArray[Any], derivative: Any = ...) -> NDArray[Any]: ...
@overload
def spherical_in(n: Any, z: Any, derivative: Any = ...) -> Any: ...
spherical_jn = spherical_in
spherical_kn = spherical_in
spherical_yn = spherical_in
stdtr: Function21
stdtridf: Function21
stdtrit: Function21
def stirling2(*args: Any, **kwargs: Any) -> Any: ...
struve: Function21
t_roots: Any
tandg: Function11
tklmbda: Function21
ts_roots: Any
u_roots: Any
us_roots: Any
voigt_profile: Function31
wofz: Function11
wright_bessel: Function31
wrightomega: Function11
xlog1py: Function21
xlogy: Function21
y0: Function11
y0_zeros: Any
y1: Function11
y1_zeros: Any
y1p_zeros: Any
yn: Function21
yn_zeros: Any
ynp_zeros: Any
yv: Function21
yve: Function21
def yvp(v: Any, z: Any, n: Any = ...) -> Any: ...
@overload
def zeta(x: Any, q: Any = ..., *, out: _Out) -> _Out: ...
@overload
def zeta(x: Tensor, q: Any = ..., out: None = ...) -> Tensor: ...
@overload
def zeta(x: NDArray[Any], q: _Raw | None = ..., out: None = ...) -> NDArray[Any]: ...
@overload
def zeta(x: Any, q: Any = ..., out: Any = ...) -> Any: ...
zetac: Function11
