"""`scipy.spatial.transform` for arrays and Tensors: rotations with gradients."""

# tests: tests/scipy/test_classes.py
from __future__ import annotations

from typing import Any as _Any

import pydispatch.numpy as _np
from pydispatch._loading import only_public
from pydispatch.scipy.borrowed import REPLACED as _REPLACED
from pydispatch.scipy.borrowed import borrow_classes as _borrow_classes
from pydispatch.scipy.borrowed import copy_of as _copy_of
from pydispatch.scipy.borrowed import publish as _publish
from pydispatch.scipy.pack import FACE as _FACE


def _from_matrix(matrix: _Any, assume_valid: bool = False) -> _Any:
    """Return the quaternions of the rotations that are nearest to matrices, by Newton's iteration.

    SciPy leaves orthogonal matrices as they are, which is another function beside them.
    """
    if not assume_valid:
        if _np.any(_np.linalg.det(matrix) <= 0):
            raise ValueError("Non-positive determinant (left-handed or null coordinate frame) in rotation matrix: all "
                             "must be rotations")
        for _ in range(20):
            matrix = (matrix + _np.swapaxes(_np.linalg.inv(matrix), -1, -2)) / 2
    return _copy_of(f"{_MODULE}._rotation_xp")._from_matrix_orthogonal(matrix)


def _reduce(quat: _Any, left: _Any = None, right: _Any = None) -> _Any:
    """Return the products of least angle of rotations with those of two groups, and the indices in the groups.

    SciPy's has quaternions of ones in place of a group that is not given.
    """
    if left is None and right is None:
        return quat, None, None
    quat = _np.atleast_2d(quat)
    left, right = (_np.array([[0.0, 0.0, 0.0, 1.0]]) if group is None else _np.atleast_2d(group)
                   for group in (left, right))
    compose = _copy_of(f"{_MODULE}._rotation_xp").compose_quat
    products = compose(compose(left[None, :, None], quat[:, None, None]), right[None, None])
    products = _np.reshape(products, (len(quat), -1, 4))
    best = _np.argmax(_np.abs(products[..., 3]), axis=1)
    return products[_np.arange(len(quat)), best], best // len(right), best % len(right)


_MODULE = "scipy.spatial.transform"
_REPLACED[f"{_MODULE}._rotation_xp"] = {"from_matrix": _from_matrix, "reduce": _reduce}
for _name in ("_rotation", "_rigid_transform"):
    _REPLACED[f"{_MODULE}.{_name}"] = {
        "select_backend": lambda *_, name=_name, **__: _copy_of(f"{_MODULE}.{name}_xp")}
if _FACE.original("spatial.transform._rotation_xp") is not None:      # older versions compute in compiled code
    _borrow_classes("spatial.transform", "RigidTransform Rotation RotationSpline Slerp")
__all__ = _publish("spatial.transform", globals())
__dir__ = only_public(globals())
