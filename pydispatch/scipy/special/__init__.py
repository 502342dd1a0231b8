"""`scipy.special` for arrays and Tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scipy import special as _special

from pydispatch._loading import only_public
from pydispatch.scipy.pack import FACE as _FACE
from pydispatch.scipy.pack import PASSED_ON as _PASSED_ON
from pydispatch.scipy.pack import SCIPY as _SCIPY
from pydispatch.scipy.special import (  # noqa: F401
    bessel,
    counts,
    declare,
    distributions,
    elementary,
    elliptic,
    errors,
    gammas,
    integrals,
    polynomials,
    private,
    remaining,
    sums,
    waves,
)

_SCIPY.install("special")
_FUNCTIONS: dict[str, Any] = {
    **{name: getattr(_special, name) for name in _PASSED_ON["special"]},
    **{name.removeprefix("special."): function for name, function in _FACE.functions.items()
       if name.startswith("special.")},
}
if TYPE_CHECKING:       # type checkers cannot see what the next line defines
    from pydispatch._stubs.scipy_special import *  # noqa: F403
globals().update(_FUNCTIONS)
__all__ = sorted(_FUNCTIONS)
__dir__ = only_public(globals())
