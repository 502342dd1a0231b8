# Entry points of `jacfwd`, `jacrev` and `hessian`. Other parts use nothing of these.
