"""Special functions, at points where they are smooth."""

from typing import Any

import numpy as np
from scipy import special

from tests.scipy.samples.sample import between
from tests.scipy.samples.sample import sample as add


def sample(name: str, *args: Any, **options: Any) -> None:
    """Sample a function that the installed SciPy has. Its derivatives exist there unless an argument says otherwise."""
    options.setdefault("smooth", True)
    if hasattr(special, name):
        add(f"special.{name}", *args, **options)


def of_one(low: float, high: float, names: str, **options: Any) -> None:
    """Sample functions of one argument in an interval."""
    for name in names.split():
        sample(name, between(low, high, 4), **options)


ORDERS = np.array([[0], [1], [3]])

# --- gamma functions ---

of_one(0.1, 5, "gamma gammaln loggamma digamma psi rgamma")
of_one(0.1, 5, "gammasgn", smooth=False)
sample("gamma", np.array([-1.5, -0.3, 0.4 + 1j]), smooth=False)
sample("rgamma", np.array([-2.0, -1.0, 0.0, 0.5, 3.5]))
sample("loggamma", np.array([0.5 + 1j, -1.5 - 2j]), smooth=False)
sample("polygamma", np.array([[1], [2]]), between(0.5, 5, 3))
sample("multigammaln", between(2, 5, 2, 2), 3)
sample("beta", between(0.5, 3, 3), between(0.5, 4, 2, 3))
sample("betaln", between(0.5, 3, 3), between(0.5, 4, 2, 3))
sample("poch", np.array([0.5, 2.0, -0.5]), np.array([1.5, 0.5, 2.2]))
sample("binom", np.array([4.5, 3.0, 6.2]), np.array([1.5, 0.5, 2.0]))
sample("comb", np.array([4.5, 6.2, 2.0]), np.array([1.5, 2.0, 3.0]), tolerance=1e-14)
sample("comb", np.array([4.5, 6.2]), np.array([1.5, 2.0]), repetition=True, tolerance=1e-14)
sample("perm", np.array([4.5, 6.2]), np.array([1.5, 2.0]), tolerance=1e-14)
sample("factorial", np.array([0.5, 3.0, -1.5]), tolerance=1e-14)
sample("zeta", between(1.5, 5, 3), between(0.5, 3, 2, 3))
sample("zeta", np.array([2.5, 3.5, -2.5]))
of_one(1.5, 5, "zetac")

# --- error functions, the normal distribution ---

of_one(-2, 3, "erf erfc erfcx erfi dawsn ndtr log_ndtr")
sample("erf", np.array([0.5 + 0.5j, -0.2j]))
of_one(-0.9, 0.9, "erfinv")
of_one(0.1, 1.9, "erfcinv")
of_one(0.05, 0.95, "ndtri")
of_one(-5, -0.2, "ndtri_exp")
sample("wofz", np.array([0.5 + 0.5j, -1 + 0.2j]))
sample("wofz", between(-1, 1, 3))
of_one(-1.5, 1.5, "fresnel")
sample("nrdtrimn", np.array([0.2, 0.7]), np.array([0.5, 1.5]), np.array([0.1, -0.3]))
sample("nrdtrisd", np.array([0.2, 0.7]), np.array([0.2, 0.7]), np.array([-0.5, 1.3]))
sample("owens_t", between(-1, 2, 4), between(-2, 1.5, 4))
sample("voigt_profile", between(-2, 2, 3), np.array([0.5, 1.0, 2.0]), np.array([0.7, 0.3, 1.0]))

# --- elementary functions ---

of_one(-3, 3, "expit log_expit softplus exprel expm1 exp2 exp10 cosm1 sinc")
of_one(0.1, 0.9, "logit entr")
of_one(0.2, 4, "cbrt log1p")
of_one(-100, 100, "sindg cosdg")
of_one(10, 80, "tandg cotdg")
of_one(0.1, 3.4, "round")
for _name in ("xlogy", "xlog1py", "rel_entr", "kl_div"):
    sample(_name, between(0.2, 2, 3), between(0.3, 3, 2, 3))
sample("powm1", between(0.5, 2, 3), between(-1, 3, 2, 3))
sample("huber", np.array([1.0, 2.0]), np.array([[0.3, 0.8], [1.5, -3.0]]))
sample("pseudo_huber", np.array([1.0, 2.0]), np.array([[0.3, 0.8], [1.5, -3.0]]))
sample("boxcox", between(0.5, 3, 3), np.array([-0.5, 0.0, 2.0]))
sample("boxcox1p", between(0.5, 3, 3), np.array([-0.5, 0.0, 2.0]))
sample("inv_boxcox", between(0.2, 1, 3), np.array([-0.5, 0.0, 2.0]))
sample("inv_boxcox1p", between(0.2, 1, 3), np.array([-0.5, 0.0, 2.0]))
sample("tklmbda", np.array([-0.5, 0.3, 1.2]), np.array([0.5, 1.5, -0.5]), tolerance=1e-9)
sample("radian", between(0, 90, 2), between(0, 60, 2), between(0, 60, 2))
sample("diric", between(-3, 7, 4), np.array([[1], [2], [5]]))

# --- Bessel functions and their relatives ---

of_one(0.3, 6, "j0 j1 y0 y1 i0 i1 k0 k1 i0e i1e k0e k1e ber bei berp beip ker kei kerp keip")
of_one(-3, -0.3, "j0 j1 i0 i1 i0e i1e")
for _name in ("jv", "jn", "yv", "iv", "kv", "jve", "yve", "ive", "kve"):
    sample(_name, ORDERS, between(0.5, 5, 2))
    sample(_name, 1.5, between(0.5, 5, 2))
for _name in ("yn", "kn"):
    sample(_name, ORDERS, between(0.5, 5, 2))
for _name in ("hankel1", "hankel2", "hankel1e", "hankel2e"):
    sample(_name, ORDERS, np.array([0.5 + 0.3j, 2 - 0.2j]))
    sample(_name, 0.5, between(0.5, 5, 2))
for _name in ("jvp", "yvp", "ivp", "kvp"):
    sample(_name, ORDERS, between(0.5, 5, 2), tolerance=1e-12)
    sample(_name, 1, between(0.5, 5, 2), n=3, tolerance=1e-12)
for _name in ("h1vp", "h2vp"):
    sample(_name, ORDERS, np.array([0.5 + 0.3j, 2 - 0.2j]), tolerance=1e-12)
for _name in ("spherical_jn", "spherical_yn", "spherical_in", "spherical_kn"):
    sample(_name, ORDERS, between(0.5, 5, 2))
    sample(_name, 2, between(0.5, 5, 2), derivative=True)
of_one(-3, 2, "airy itairy")
of_one(0.2, 3, "airye")
sample("besselpoly", between(0.3, 1.5, 2), 1.5, 1)
sample("besselpoly", between(0.3, 1.5, 2), 1.5, np.array([[1.0], [2.0]]), smooth=False)
for _name in ("struve", "modstruve"):
    sample(_name, ORDERS, between(0.5, 5, 2))
of_one(0.3, 4, "itj0y0 iti0k0 it2j0y0 it2i0k0 itstruve0 itmodstruve0 it2struve0")

# --- elliptic integrals and functions ---

of_one(-0.5, 0.9, "ellipk ellipe")
of_one(0.1, 1.5, "ellipkm1")
sample("ellipkinc", np.array([0.3, 1.2, -0.7, 4.0]), np.array([0.3, -0.5, 0.8, 0.5]))
sample("ellipeinc", np.array([0.3, 1.2, -0.7, 4.0]), np.array([0.3, -0.5, 0.8, 0.5]))
sample("ellipj", np.array([0.3, 1.2, -0.7]), np.array([0.3, 0.5, 0.8]), tolerance=1e-12)
sample("ellipj", np.array([[0.3], [1.2]]), np.array([0.3, 0.5, 0.8]), tolerance=1e-12)
sample("elliprc", between(0.2, 3, 3), between(0.4, 4, 2, 3))
sample("elliprf", between(0.2, 3, 2), between(0.4, 4, 2), between(0.5, 2, 2))
sample("elliprd", between(0.2, 3, 2), between(0.4, 4, 2), between(0.5, 2, 2))
sample("elliprg", between(0.2, 3, 2), between(0.4, 4, 2), between(0.5, 2, 2))
sample("elliprj", between(0.2, 3, 2), between(0.4, 4, 2), between(0.5, 2, 2), between(0.5, 3, 2))
sample("agm", np.array([0.5, 2.0, 3.0]), np.array([1.5, 2.0, 0.7]))

# --- hypergeometric functions and polynomials ---

sample("hyp0f1", 1.5, between(-2, 2, 3))
sample("hyp1f1", 1.5, 2.5, between(-2, 2, 3))
sample("hyp2f1", 0.5, 1.5, 2.5, between(-0.8, 0.7, 3))
sample("hyperu", 1.5, 2.5, between(0.5, 3, 3))
sample("wright_bessel", 0.5, 1.5, between(0.1, 2, 3))
sample("log_wright_bessel", 0.5, 1.5, between(0.1, 2, 3))
sample("lpmv", 1, 2.5, between(-0.8, 0.8, 3))
sample("sph_harm_y", 3, np.array([[-3], [0], [2], [4]]), between(0.1, 3, 3), between(-2, 2, 3))
DEGREES = np.array([[0], [1], [4]])
for _name in ("legendre", "chebyt", "chebyu", "chebyc", "chebys", "sh_legendre", "sh_chebyt", "sh_chebyu", "laguerre",
              "hermite", "hermitenorm"):
    sample(f"eval_{_name}", DEGREES, between(-0.8, 0.9, 3))
for _name in ("legendre", "chebyt", "chebyu", "laguerre"):
    sample(f"eval_{_name}", 1.5, between(-0.8, 0.9, 3))
for _name in ("gegenbauer", "genlaguerre"):
    sample(f"eval_{_name}", DEGREES, 0.5, between(-0.8, 0.9, 3))
sample("eval_jacobi", DEGREES, 0.5, 1.5, between(-0.8, 0.9, 3))
sample("eval_sh_jacobi", DEGREES, 2.5, 1.5, between(-0.8, 0.9, 3))

# --- integrals ---

of_one(0.3, 4, "expi exp1 sici shichi spence wrightomega")
sample("expn", ORDERS, between(0.3, 3, 2))
sample("lambertw", between(0.3, 4, 3))
sample("lambertw", between(-0.3, -0.1, 3), -1)
sample("lambertw", np.array([0.3 + 0.2j, -1 + 0.5j]))

# --- wave functions ---

for _name in ("cem", "sem"):
    sample(f"mathieu_{_name}", 1, 0.5, between(10, 80, 2))
for _name in ("modcem1", "modcem2", "modsem1", "modsem2"):
    sample(f"mathieu_{_name}", 1, 0.5, between(0.3, 1, 2))
for _name in ("pbdv", "pbvv"):
    sample(_name, 1.5, between(0.3, 2, 2))
sample("pbdv", np.array([[1], [2]]), between(0.3, 2, 2))
sample("pbwa", 0.5, between(0.3, 2, 2))

# --- distributions ---

for _name in ("gammainc", "gammaincc"):
    sample(_name, np.array([0.5, 2.0, 7.0]), np.array([0.7, 3.0, 5.0]))
for _name in ("gammaincinv", "gammainccinv"):
    sample(_name, np.array([0.5, 2.0, 7.0]), np.array([0.2, 0.6, 0.9]))
for _name in ("betainc", "betaincc", "betaincinv", "betainccinv"):
    sample(_name, np.array([0.5, 2.0, 7.0]), np.array([1.5, 0.8, 4.0]), np.array([0.2, 0.6, 0.7]))
sample("btdtria", np.array([0.3, 0.6]), np.array([1.5, 3.0]), np.array([0.3, 0.6]))
sample("btdtrib", np.array([1.5, 3.0]), np.array([0.3, 0.6]), np.array([0.3, 0.6]))
for _name in ("chdtr", "chdtrc"):
    sample(_name, np.array([1.0, 4.0]), np.array([0.7, 3.0]))
sample("chdtri", np.array([1.0, 4.0]), np.array([0.3, 0.6]))
sample("chdtriv", np.array([0.3, 0.6]), np.array([0.7, 3.0]))
for _name in ("gdtr", "gdtrc"):
    sample(_name, np.array([1.0, 0.5]), np.array([1.5, 3.0]), np.array([0.7, 3.0]))
sample("gdtria", np.array([0.3, 0.6]), np.array([1.5, 3.0]), np.array([0.7, 3.0]))
sample("gdtrib", np.array([1.0, 0.5]), np.array([0.3, 0.6]), np.array([0.7, 3.0]))
sample("gdtrix", np.array([1.0, 0.5]), np.array([1.5, 3.0]), np.array([0.3, 0.6]))
for _name in ("pdtr", "pdtrc"):
    sample(_name, np.array([[0], [3]]), between(0.5, 4, 2))
sample("pdtri", np.array([[0], [3]]), between(0.2, 0.8, 2))
sample("pdtrik", between(0.2, 0.8, 2), np.array([4.0, 7.0]))
for _name in ("bdtr", "bdtrc", "bdtri"):
    sample(_name, 2, 5, between(0.2, 0.8, 2))
for _name in ("nbdtr", "nbdtrc", "nbdtri"):
    sample(_name, 2, 5, between(0.2, 0.8, 2))
for _name in ("bdtrik", "nbdtrik"):
    sample(_name, np.array([0.5, 0.7]), np.array([8.0, 6.0]), np.array([0.4, 0.6]))
for _name in ("bdtrin", "nbdtrin"):
    sample(_name, np.array([3.0, 2.5]), np.array([0.5, 0.7]), np.array([0.4, 0.3]))
for _name in ("fdtr", "fdtrc"):
    sample(_name, np.array([3.0, 5.0]), np.array([4.0, 2.5]), np.array([0.7, 2.0]))
sample("fdtri", np.array([3.0, 5.0]), np.array([4.0, 2.5]), np.array([0.3, 0.6]))
sample("fdtridfd", np.array([3.0, 5.0]), np.array([0.6, 0.7]), np.array([1.5, 2.0]))
sample("stdtr", np.array([3.0, 5.0]), np.array([-0.7, 2.0]))
sample("stdtrit", np.array([3.0, 5.0]), np.array([0.3, 0.8]))
sample("stdtridf", np.array([0.9, 0.2]), np.array([1.5, -1.0]))
sample("chndtr", np.array([2.0, 5.0]), 3.0, np.array([0.5, 2.0]))
sample("chndtrix", np.array([0.3, 0.6]), 3.0, np.array([0.5, 2.0]))
sample("chndtrinc", np.array([2.0, 5.0]), 3.0, np.array([0.3, 0.6]))
of_one(0.4, 1.6, "kolmogorov")
of_one(0.1, 0.9, "kolmogi")
sample("smirnov", 5, np.array([0.13, 0.37, 0.71]))
sample("smirnovi", 5, np.array([0.2, 0.55, 0.8]))

# --- sums ---

sample("logsumexp", between(-2, 2, 2, 3))
sample("logsumexp", between(-2, 2, 2, 3), axis=-1, tolerance=1e-15)
sample("logsumexp", between(-2, 2, 2, 3), axis=0, keepdims=True, tolerance=1e-15)
sample("logsumexp", between(-2, 2, 2, 3), 1, between(0.5, 2, 2, 3))
sample("logsumexp", between(-2, 2, 2, 3), axis=1, b=np.array([1.0, -3.0, 0.5]), return_sign=True)
sample("logsumexp", between(-2, 2, 3) + 0.5j)
sample("softmax", between(-2, 2, 2, 3))
sample("softmax", between(-2, 2, 2, 3), axis=-1)
sample("log_softmax", between(-2, 2, 2, 3))
sample("log_softmax", between(-2, 2, 2, 3), axis=-1)
