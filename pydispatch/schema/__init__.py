"""Names, types and schemas of operators: parse, print, compare and infer them, and convert values to declared types.

A schema is a line of text: ``np::add.out(Tensor x1, Tensor x2, *, Tensor(a!) out) -> Tensor(a!)``. Names, types and
schemas are frozen values. Parsing a printed one returns an equal one.

Each file uses only files that are named before it in this list: frozen, scanner, literals, names, base_types,
compound_types, spellings, model, user_types, annotations, type_parser, default_parser, fitting, parser, declared,
checks, inference.
"""

# tests: tests/schema/test_checks.py
from pydispatch import _loading
from pydispatch.schema.base_types import DEVICE
from pydispatch.schema.model import AliasInfo, Argument, Return, Schema
from pydispatch.schema.names import OperatorName, parse_name
from pydispatch.schema.parser import parse_schema, parse_schema_or_name, parse_signature

__all__ = [
    "DEVICE", "AliasInfo", "Argument", "OperatorName", "Return", "Schema", "parse_name", "parse_schema",
    "parse_schema_or_name", "parse_signature",
]

__getattr__, __dir__ = _loading.attributes_on_demand(__name__, globals(), {"infer_kernel_schema": "inference"})
