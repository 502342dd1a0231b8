"""Interfaces of other libraries, for code that is moved from them.

`compat.autograd` is the interface of HIPS autograd. `compat.custom_ops` is the custom-operator interface of 2023. Write
new operators with `library.custom_op`.
"""

from typing import TYPE_CHECKING

from pydispatch._loading import attributes_on_demand

if TYPE_CHECKING:
    from pydispatch.compat import autograd, custom_ops

__all__ = ["autograd", "custom_ops"]

__getattr__, __dir__ = attributes_on_demand(__name__, globals(), {name: name for name in __all__})
