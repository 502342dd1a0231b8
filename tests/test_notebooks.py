"""Notebooks: every cell runs twice, and shows what it should."""

import pytest

CELLS = {
    "imports": """
import numpy as np, pydispatch
from pydispatch import Tensor, debug, func, library, ops
from pydispatch.compat import custom_ops
from pydispatch.library import Library
from pydispatch.tracing import make_fx""",
    "library": """
lib = Library("cells", "DEF")
lib.define("double(Tensor x) -> Tensor")""",
    "kernel": """
lib.impl("double", lambda x: x * 2, "CPU")""",
    "formula": """
library.register_autograd("cells::double", lambda ctx, g: g * 2)""",
    "operator": """
@library.custom_op("cells_2::triple", mutates_args=())
def triple(x: Tensor) -> Tensor:
    return x * 3""",
    "function": """
def define():
    library.define("cells_3::f", "(Tensor x) -> Tensor")""",
    "call": """
define()""",
    "interface of 2023": """
@custom_ops.custom_op("cells_4::f")
def f(x: Tensor) -> Tensor: ...
@custom_ops.impl("cells_4::f")
def kernel(x): return x * 5""",
    "backend": """
class Mine:
    def __init__(self, data):
        self.data = np.asarray(data)
        self.shape, self.dtype = self.data.shape, self.data.dtype
key = pydispatch.register_backend("Mine", Mine)
library.impl("np::negative", "Mine", lambda x: Mine(-x.data))""",
    "functionality": """
key = pydispatch.register_functionality("Units")
Library("_", "IMPL").fallback(library.fallthrough_kernel, "Units")""",
    "types": """
class Point: pass
pydispatch.tree.register_pytree_node(Point, lambda p: ((), None), lambda c, _: Point())
library.register_opaque_type(Point)""",
    "use": """
x = Tensor(np.ones(3), requires_grad=True)
ops.cells.double(x).sum().backward()
assert x.grad.tolist() == [2.0] * 3
assert triple(np.ones(1)).tolist() == [3.0]
assert ops.cells_4.f(np.ones(1)).tolist() == [5.0]
assert ops.np.negative(Mine([1.0])).data.tolist() == [-1.0]
x""",
    "graph": """
make_fx(lambda x: ops.np.sin(x) + 1)(np.ones(3))""",
    "explanation": """
ops.np.add.explain(x, 1.0)""",
    "profile": """
with debug.profile() as profile:
    ops.np.sin(x)
profile""",
}
SHOWN = {"use": "requires_grad=True", "graph": "<svg", "explanation": "<details", "profile": "<table"}


@pytest.fixture(scope="module")
def run():
    """Provide a notebook in which every cell runs, then all of them again, then an edited library and what follows it.
    """
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    import nbformat.v4 as nb

    names = [name for name in CELLS for _ in range(2)] + list(CELLS)
    cells = [nb.new_code_cell(CELLS[name]) for name in names]
    edited = CELLS["library"].replace("(Tensor x)", "(Tensor x, float by=1.0)") + "  # edited"
    cells += [nb.new_code_cell(edited), nb.new_code_cell('lib.impl("double", lambda x, by=1.0: x * by, "CPU")'),
              nb.new_code_cell("ops.cells.double(np.ones(1), 7.0)")]
    notebook = nb.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python", "language": "python"}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return names, notebook.cells


def outputs(cell, kind):
    return [output for output in cell.outputs if output.output_type == kind]


def test_every_cell_runs_twice(run):
    names, cells = run
    told = {}
    for name, cell in zip(names, cells, strict=False):
        text = "".join(output.text for output in outputs(cell, "stream"))
        told.setdefault(name, []).append("OverrideWarning" in text)
        assert "Traceback" not in text
    for name in ("library", "kernel", "operator", "call", "interface of 2023", "backend", "functionality", "types"):
        assert told[name][0] is False, name
        assert told[name][1] is True, name


def test_an_edited_library_takes_the_place_of_the_former(run):
    _, cells = run
    assert outputs(cells[-1], "execute_result")[0].data["text/plain"] == "array([7.])"


@pytest.mark.parametrize("name", SHOWN)
def test_cells_show_pictures_and_tables(run, name):
    names, cells = run
    result, = outputs(cells[names.index(name)], "execute_result")
    assert SHOWN[name] in result.data["text/html"]
    assert "text/plain" in result.data


def test_a_cell_that_the_frontend_names_is_a_place_of_its_own():
    manager = pytest.importorskip("jupyter_client.manager")
    pytest.importorskip("ipykernel")
    kernel, client = manager.start_new_kernel(kernel_name="python3")
    try:
        def execute(code, cell):
            message = client.session.msg("execute_request", {
                "code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False,
                "stop_on_error": True}, metadata={"cellId": cell})
            client.shell_channel.send(message)
            reply = {"parent_header": {}}
            while reply["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                reply = client.get_shell_msg(timeout=60)
            return reply["content"]

        define = 'from pydispatch import library\nlibrary.define("places::f", "(Tensor x) -> Tensor")'
        assert execute(define, "one")["status"] == "ok"
        assert execute(define + "  # edited", "one")["status"] == "ok"
        clash = execute(define, "two")
        assert (clash["status"], clash["ename"]) == ("error", "RegistrationError")
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
