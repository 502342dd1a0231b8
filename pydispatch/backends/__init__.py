"""Array types that the package brings along; NumPy's own needs no code."""
