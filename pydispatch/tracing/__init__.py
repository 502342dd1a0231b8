"""Programs as graphs: traced, printed, edited, run, compiled, drawn."""

from pydispatch.tracing.compilation import CompiledGraph
from pydispatch.tracing.graph import Graph
from pydispatch.tracing.interpreting import Interpreter, Transformer
from pydispatch.tracing.node import Node
from pydispatch.tracing.rewriting import Match
from pydispatch.tracing.values import ArraySpec, GraphError, spec_of

__all__ = [
    "ArraySpec",
    "CompiledGraph",
    "Graph",
    "GraphError",
    "Interpreter",
    "Match",
    "Node",
    "Transformer",
    "spec_of",
]
