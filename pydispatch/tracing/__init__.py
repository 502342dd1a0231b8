"""Programs as graphs: traced, printed, edited, run, compiled, drawn."""

from pydispatch.tracing.compilation import CompiledGraph
from pydispatch.tracing.decompositions import get_decompositions, register_decomposition
from pydispatch.tracing.fake import FakeMode, FakeTensor
from pydispatch.tracing.graph import Graph
from pydispatch.tracing.interpreting import Interpreter, Transformer
from pydispatch.tracing.node import Node
from pydispatch.tracing.rewriting import Match
from pydispatch.tracing.trace import make_fx
from pydispatch.tracing.values import ArraySpec, spec_of

__all__ = [
    "ArraySpec",
    "CompiledGraph",
    "FakeMode",
    "FakeTensor",
    "Graph",
    "Interpreter",
    "Match",
    "Node",
    "Transformer",
    "get_decompositions",
    "make_fx",
    "register_decomposition",
    "spec_of",
]
