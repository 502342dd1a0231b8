"""What takes no Tensors: functions of whole numbers, tables, and what has no derivative that SciPy could compute."""

from __future__ import annotations

from scipy import special

from pydispatch.scipy.pack import PASSED_ON
from pydispatch.scipy.special.declare import refuse

refuse("comb", "it counts, and rounds; write binom(N, k), which is smooth")
refuse("perm", "it counts, and rounds; write poch(N - k + 1, k), which is smooth")
refuse("factorial factorial2 factorialk", "it is a function of whole numbers; write gamma(n + 1), which is smooth")
refuse("stirling2 bernoulli euler", "it is a table of whole numbers, which have no gradient; pass plain numbers")
refuse("mathieu_a mathieu_b mathieu_even_coef mathieu_odd_coef pro_cv obl_cv pro_cv_seq obl_cv_seq",
       "it is an eigenvalue, or coefficients of its function, whose derivative SciPy does not have; pass plain numbers")
refuse("pro_ang1 pro_rad1 pro_rad2 obl_ang1 obl_rad1 obl_rad2 "
       "pro_ang1_cv pro_rad1_cv pro_rad2_cv obl_ang1_cv obl_rad1_cv obl_rad2_cv",
       "its values and slopes in SciPy contradict each other in places, and in single precision it may not return; "
       "pass plain numbers")
refuse("ncfdtr ncfdtri ncfdtridfd ncfdtridfn ncfdtrinc nctdtr nctdtridf nctdtrinc nctdtrit chndtridf",
       "SciPy has no function for the derivatives of this noncentral distribution; detach the argument")
refuse("legendre_p legendre_p_all assoc_legendre_p assoc_legendre_p_all sph_legendre_p sph_legendre_p_all sph_harm_y "
       "sph_harm_y_all sph_harm clpmn lpmn lpn lqn lqmn",
       "it returns derivatives itself if you ask for them; for a gradient write eval_legendre(n, x) or lpmv(m, v, x)")
refuse("riccati_jn riccati_yn lmbda pbdn_seq pbdv_seq pbvv_seq",
       "it is a sequence of all orders at one number; write the function of one order, with an array of orders")
refuse("assoc_laguerre", "it is an older name; write eval_genlaguerre(n, k, x)")
refuse("ellip_harm ellip_harm_2 ellip_normal", "SciPy has no derivative of ellipsoidal harmonics; pass plain numbers")
refuse("kelvin", "it returns complex pairs of four functions and their slopes; write ber, bei, ker, kei, berp, ...")
refuse("modfresnelm modfresnelp", "it is complex, with a phase of its own; write fresnel(z), which is related to it")
refuse("btdtr btdtri", "SciPy advises against it; write betainc(a, b, x) or betaincinv(a, b, y)")

PREFIXES = ("roots_",)
SUFFIXES = ("_zeros", "_roots")
CLASSES = ("legendre chebyt chebyu chebyc chebys jacobi laguerre genlaguerre hermite hermitenorm gegenbauer "
           "sh_legendre sh_chebyt sh_chebyu sh_jacobi")
SETTINGS = "geterr seterr errstate SpecialFunctionWarning SpecialFunctionError"

PASSED_ON["special"] = tuple([
    name for name in special.__all__
    if name.startswith(PREFIXES) or name.endswith(SUFFIXES) or name in CLASSES.split() or name in SETTINGS.split()])
