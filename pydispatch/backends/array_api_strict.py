"""The library array-api-strict, which implements the Array API standard and nothing else."""

import array_api_strict

from pydispatch.backends.array_api import register_array_api

register_array_api("ArrayAPIStrict", type(array_api_strict.zeros(())), "array_api_strict")
