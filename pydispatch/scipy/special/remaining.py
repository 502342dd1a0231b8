"""Functions that do not take Tensors: of whole numbers, tables, and functions whose derivative SciPy cannot compute."""

from __future__ import annotations

from scipy import special

from pydispatch.scipy.pack import PASSED_ON
from pydispatch.scipy.special.declare import refuse

refuse("factorial2 factorialk", "write gamma(n + 1), which is smooth: these are functions of whole numbers")
refuse("stirling2 bernoulli euler", "pass plain numbers: it is a table of whole numbers, which have no gradient")
refuse("mathieu_a mathieu_b mathieu_even_coef mathieu_odd_coef pro_cv obl_cv pro_cv_seq obl_cv_seq",
       "pass plain numbers: SciPy has no derivatives of these eigenvalues and coefficients")
refuse("pro_ang1 pro_rad1 pro_rad2 obl_ang1 obl_rad1 obl_rad2 "
       "pro_ang1_cv pro_rad1_cv pro_rad2_cv obl_ang1_cv obl_rad1_cv obl_rad2_cv",
       "pass plain numbers: its values and slopes in SciPy contradict each other in places, and in single precision it "
       "sometimes does not return")
refuse("ncfdtr ncfdtri ncfdtridfd ncfdtridfn ncfdtrinc nctdtr nctdtridf nctdtrinc nctdtrit chndtridf",
       "detach the argument: SciPy has no function for the derivatives of this noncentral distribution")
refuse("legendre_p legendre_p_all assoc_legendre_p assoc_legendre_p_all sph_legendre_p sph_legendre_p_all "
       "sph_harm_y_all sph_harm clpmn lpmn lpn lqn lqmn",
       "for a gradient, write eval_legendre(n, x) or lpmv(m, v, x): this function can return derivatives itself")
refuse("riccati_jn riccati_yn lmbda pbdn_seq pbdv_seq pbvv_seq",
       "write the function of one order, with an array of orders: this returns all orders at one number")
refuse("assoc_laguerre", "write eval_genlaguerre(n, k, x): this is an older name")
refuse("ellip_harm ellip_harm_2 ellip_normal", "pass plain numbers: SciPy has no derivative of ellipsoidal harmonics")
refuse("kelvin", "write ber, bei, ker, kei, berp, ...: this returns complex pairs of four functions and their slopes")
refuse("modfresnelm modfresnelp", "write fresnel(z), which is related to it: this is complex, with a different phase")
refuse("btdtr btdtri", "write betainc(a, b, x) or betaincinv(a, b, y): SciPy advises against this function")

PREFIXES = ("roots_",)
SUFFIXES = ("_zeros", "_roots")
CLASSES = ("legendre chebyt chebyu chebyc chebys jacobi laguerre genlaguerre hermite hermitenorm gegenbauer "
           "sh_legendre sh_chebyt sh_chebyu sh_jacobi")
SETTINGS = "geterr seterr errstate SpecialFunctionWarning SpecialFunctionError"

PASSED_ON["special"] = tuple([
    name for name in special.__all__
    if name.startswith(PREFIXES) or name.endswith(SUFFIXES) or name in CLASSES.split() or name in SETTINGS.split()])
