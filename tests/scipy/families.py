"""Loads all families of `pydispatch.scipy`, and declares the methods of distributions, which is done on demand."""

from importlib import import_module

from pydispatch.scipy.pack import FAMILIES, SOLVERS
from pydispatch.scipy.stats.scipys import ScipysDistribution

for family in (*FAMILIES, *SOLVERS):
    for each in list(vars(import_module(f"pydispatch.scipy.{family}")).values()):
        if isinstance(each, ScipysDistribution):
            each.declare()
