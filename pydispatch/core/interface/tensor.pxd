# The class Tensor, as Python sees it. values.pxd declares it.
#
# No other part uses this one.
