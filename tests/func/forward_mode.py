"""A switch of forward mode, which the package sets only in its own guards."""

from pydispatch.autograd.grad_modes import set_grad_enabled


class set_forward_enabled(set_grad_enabled):  # noqa: N801  like the class of the package
    """Switch forward mode on or off. When it is off, `jvp` propagates no tangents."""

    what = "forward"
