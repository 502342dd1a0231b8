"""Programs as graphs, which can be traced, printed, edited, run, compiled and drawn."""

from pydispatch._loading import only_public
from pydispatch.tracing import counting  # noqa: F401  registers a rule
from pydispatch.tracing.calling import call_graph, flatten_arguments, interpret
from pydispatch.tracing.codegen import generate, listing
from pydispatch.tracing.compilation import compile_graph
from pydispatch.tracing.compiled import CompiledGraph
from pydispatch.tracing.decompositions import get_decompositions, register_decomposition
from pydispatch.tracing.drawing import draw_graph
from pydispatch.tracing.fake import FakeMode, FakeTensor
from pydispatch.tracing.graph import Graph, Match, Node
from pydispatch.tracing.interpreting import GraphInterpreter, Transformer
from pydispatch.tracing.linting import lint
from pydispatch.tracing.pictures import graph_in_notebook
from pydispatch.tracing.rewriting import eliminate_dead_code, replace_pattern
from pydispatch.tracing.trace import make_fx
from pydispatch.tracing.values import ArraySpec, spec_of

__all__ = [
    "ArraySpec",
    "CompiledGraph",
    "FakeMode",
    "FakeTensor",
    "Graph",
    "GraphInterpreter",
    "Match",
    "Node",
    "Transformer",
    "get_decompositions",
    "make_fx",
    "register_decomposition",
    "spec_of",
]
__dir__ = only_public(globals())

# Operations on graphs are functions in modules that import `graph`. Here they become methods of `Graph`.
Graph.generate = generate
Graph.__str__ = listing
Graph.lint = lint
Graph.eliminate_dead_code = eliminate_dead_code
Graph.replace = replace_pattern
Graph.flatten_arguments = flatten_arguments
Graph.__call__ = call_graph
Graph.interpret = interpret
Graph.compile = compile_graph
Graph.draw = draw_graph
Graph._repr_html_ = graph_in_notebook
