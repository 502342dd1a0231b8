"""Names, types and schemas of operators: parse, print, compare and infer them, and convert values to declared types.

A schema is a line of text: ``np::add.out(Tensor x1, Tensor x2, *, Tensor(a!) out) -> Tensor(a!)``. Names, types and
schemas are frozen values. Parsing a printed one returns an equal one.

Each file uses only files that are named before it in this list: frozen, scanner, literals, names, base_types,
compound_types, spellings, model, user_types, annotations, type_parser, default_parser, fitting, parser, declared,
checks, inference.
"""

# tests: tests/schema/test_checks.py
from typing import TYPE_CHECKING

from pydispatch import _loading
from pydispatch.schema.base_types import (
    ANY,
    BASE_TYPES,
    BOOL,
    COMPLEX,
    DEVICE,
    DTYPE,
    FLOAT,
    GENERATOR,
    INT,
    SCALAR,
    STR,
    TENSOR,
    AnyType,
    BoolType,
    ComplexType,
    DeviceType,
    DtypeType,
    FloatType,
    GeneratorType,
    IntType,
    ScalarType,
    StrType,
    TensorType,
    Type,
)
from pydispatch.schema.compound_types import (
    DictType,
    ListType,
    OptionalType,
    TupleType,
    UnionType,
    optional,
    union,
    without_none,
)
from pydispatch.schema.declared import parse_declared_signature
from pydispatch.schema.fitting import EXACT, Fit, compare_signature, first_difference
from pydispatch.schema.frozen import REQUIRED, described, same_value
from pydispatch.schema.model import MAX_ARGUMENTS, AliasInfo, Argument, Return, Schema
from pydispatch.schema.names import OperatorName, parse_name, validate_namespace
from pydispatch.schema.parser import parse_schema, parse_schema_or_name, parse_signature
from pydispatch.schema.scanner import RESERVED_WORDS
from pydispatch.schema.user_types import EnumType, OpaqueType, register_opaque_type, unregister_opaque_type

if TYPE_CHECKING:
    from pydispatch.schema.checks import check_strict, check_tags, tags_of, written_names
    from pydispatch.schema.inference import infer_kernel_schema, infer_schema

__all__ = [
    "ANY",
    "BASE_TYPES",
    "BOOL",
    "COMPLEX",
    "DEVICE",
    "DTYPE",
    "EXACT",
    "FLOAT",
    "GENERATOR",
    "INT",
    "MAX_ARGUMENTS",
    "REQUIRED",
    "RESERVED_WORDS",
    "SCALAR",
    "STR",
    "TENSOR",
    "AliasInfo",
    "AnyType",
    "Argument",
    "BoolType",
    "ComplexType",
    "DeviceType",
    "DictType",
    "DtypeType",
    "EnumType",
    "Fit",
    "FloatType",
    "GeneratorType",
    "IntType",
    "ListType",
    "OpaqueType",
    "OperatorName",
    "OptionalType",
    "Return",
    "ScalarType",
    "Schema",
    "StrType",
    "TensorType",
    "TupleType",
    "Type",
    "UnionType",
    "check_strict",
    "check_tags",
    "compare_signature",
    "described",
    "first_difference",
    "infer_kernel_schema",
    "infer_schema",
    "optional",
    "parse_declared_signature",
    "parse_name",
    "parse_schema",
    "parse_schema_or_name",
    "parse_signature",
    "register_opaque_type",
    "same_value",
    "tags_of",
    "union",
    "unregister_opaque_type",
    "validate_namespace",
    "without_none",
    "written_names",
]

__getattr__, __dir__ = _loading.attributes_on_demand(__name__, globals(), {
    "check_strict": "checks", "check_tags": "checks", "tags_of": "checks", "written_names": "checks",
    "infer_kernel_schema": "inference", "infer_schema": "inference",
})
