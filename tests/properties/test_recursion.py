"""Functions that call themselves through the core end in RecursionError: no crash, no hang, nothing left behind."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BEFORE = """
import sys
import numpy as np
from pydispatch import DispatchMode, Tensor, _core, autograd, compile, func, higher_order, library, ops
from pydispatch.tracing import make_fx

X = np.ones(2)
lib = library.Library("rec", "DEF")
lib.define("f(Tensor x) -> Tensor")
f = ops.rec.f.default

def leaf():
    return Tensor(X.copy(), requires_grad=True)

given = (X, Tensor(X), leaf())
"""

BELOW_AUTOGRAD = "given = (X, Tensor(X))\n"

AFTER = """
def depth_left():
    try:
        return 1 + depth_left()
    except RecursionError:
        return 0

state, depth = _core.current_state(), depth_left()
for value in given:
    try:
        run(value)
    except RecursionError:
        pass
    else:
        raise AssertionError("it returned")
    assert _core.current_state() is state
    assert autograd.is_grad_enabled()
    assert depth_left() == depth, (depth_left(), depth)
    t = leaf()
    (ops.np.add(t, 1.0) * t).sum().backward()
    assert t.grad.array.tolist() == [3.0, 3.0]
    assert func.vmap(func.grad(lambda x: x * x))(X).tolist() == [2.0, 2.0]
print("well")
"""

FUNCTION = """
class F(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return {forward}

    @staticmethod
    def backward(ctx, g):
        return {backward}
"""

pytestmark = pytest.mark.slow

ROWS = {
    "kernel": BELOW_AUTOGRAD + 'lib.impl("f", f, "CPU"); run = f',
    "boxed kernel": """
        given = (X, Tensor(X))
        lib.impl("f", lambda op, stack: op.call_boxed(stack), "CPU", boxed=True)
        run = f
    """,
    "composite": 'lib.impl("f", f, "CompositeImplicitAutograd"); run = f',
    "explicit composite": BELOW_AUTOGRAD + 'lib.impl("f", f, "CompositeExplicitAutograd"); run = f',
    "autograd kernel": """
        given = (Tensor(X), leaf())
        lib.impl("f", lambda x: x * 1.0, "CPU")
        lib.impl("f", f, "Autograd")
        run = f
    """,
    "redispatch": """
        given = (X, Tensor(X))
        from pydispatch import DispatchKeySet
        lib.impl("f", lambda x: f.redispatch(DispatchKeySet("CPU"), x), "CPU")
        run = f
    """,
    "two operators": """
        given = (X, Tensor(X))
        lib.define("g(Tensor x) -> Tensor")
        lib.impl("f", ops.rec.g.default, "CPU")
        lib.impl("g", f, "CPU")
        run = f
    """,
    "fake kernel": """
        lib.impl("f", f, "Meta")
        from pydispatch.backends.meta import MetaArray
        run = lambda x: f(_core.MetaArray((2,), np.dtype(float)))
    """,
    "backward of itself": """
        lib.impl("f", lambda x: x * 1.0, "CPU")
        def backward(ctx, g):
            with autograd.enable_grad():
                t = leaf()
                f(t).sum().backward()
            return t.grad
        library.register_autograd("rec::f", backward)
        run = lambda x: f(leaf()).sum().backward()
    """,
    "hook that goes back": """
        @autograd.enable_grad()
        def run(x):
            y = leaf() * 2.0
            y.register_hook(lambda g: run(x))
            y.sum().backward()
    """,
    "batching rule": """
        lib.impl("f", lambda x: x * 1.0, "CPU")
        library.register_vmap("rec::f", lambda info, in_dims, x: (func.vmap(f)(x), 0))
        run = lambda x: func.vmap(f)(x)
    """,
    "grad rule": """
        lib.impl("f", lambda x: x * 1.0, "CPU")
        library.register_autograd("rec::f", lambda ctx, g: func.grad(lambda x: f(x).sum())(X))
        run = lambda x: func.grad(lambda x: f(x).sum())(X)
    """,
    "handler with the mode on": """
        class Mode(DispatchMode):
            def __pydispatch__(self, func, types, args=(), kwargs=None):
                with Mode():
                    return func(*args, **(kwargs or {}))
        def run(x):
            with Mode():
                ops.np.add(x, 1.0)
    """,
    "handler with the same mode on": """
        class Mode(DispatchMode):
            def __pydispatch__(self, func, types, args=(), kwargs=None):
                with self:
                    return func(*args, **(kwargs or {}))
        mode = Mode()
        def run(x):
            with mode:
                ops.np.add(x, 1.0)
    """,
    "handler of a subclass": """
        class Own(Tensor):
            @classmethod
            def __pydispatch__(cls, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))
        run = lambda x: ops.np.add(Own(X), 1.0)
    """,
    "guards": """
        def run(x):
            with autograd.no_grad():
                return run(ops.np.add(x, 1.0))
    """,
    "forward": FUNCTION.format(forward="F.apply(x)", backward="g") + "run = F.apply",
    "backward of a Function": FUNCTION.format(forward="x * 1.0", backward="autograd.enable_grad()(run)(g)") + """
run = lambda x: F.apply(leaf()).sum().backward()
""",
    "checkpoint": "run = lambda x: autograd.checkpoint(run, x)",
    "checkpoint and backward": """
        def run(x):
            t = leaf()
            autograd.checkpoint(lambda x: (run(x), x * 2.0)[1], t).sum().backward()
    """,
    "cond": "run = lambda x: higher_order.cond(np.array(True), run, run, (x,))",
    "cond of one branch": "run = lambda x: higher_order.cond(np.array(True), run, lambda x: x * 1.0, (x,))",
    "cond in vmap": """
        def branch(x):
            return higher_order.cond(np.array(True), branch, branch, (x,))
        run = lambda x: func.vmap(branch)(np.ones((2, 2)))
    """,
    "cond in jvp": """
        def branch(x):
            return higher_order.cond(np.array(True), branch, branch, (x,))
        run = lambda x: func.jvp(branch, (x,), (X,))
    """,
    "scan": "run = lambda x: higher_order.scan(lambda c, _: (run(c), None), x, length=2)[0]",
    "while_loop": "run = lambda x: higher_order.while_loop(lambda c: c.sum() < 5.0, run, (x,))",
    "while_loop test": "run = lambda x: higher_order.while_loop(lambda c: run(c).sum() < 5.0, abs, (x,))[0]",
    "map": "run = lambda x: higher_order.map(run, ops.np.reshape(x, (1, 2)))",
    "map of rows": "run = lambda x: higher_order.map(lambda y: run(x), x)",
    "associative_scan": "run = lambda x: higher_order.associative_scan(lambda a, b: run(X) + a + b, x)",
    "functionalize": "run = lambda x: func.functionalize(run)(x)",
    "grad": "run = lambda x: func.grad(lambda y: run(y).sum())(x)",
    "vmap": "run = lambda x: func.vmap(lambda y: run(x))(X)",
    "jvp": "run = lambda x: func.jvp(run, (x,), (X,))[1]",
    "vjp": "run = lambda x: func.vjp(run, x)[0]",
    "jacrev": "run = lambda x: func.jacrev(run)(x)",
    "linearize": "run = lambda x: func.linearize(run, x)[0]",
    "compiled": "compiled = compile(lambda x: compiled(x)); run = compiled",
    "compiled kernel": """
        given = (X, Tensor(X))
        lib.impl("f", lambda x: compiled(x), "CPU")
        lib.impl("f", ops.np.empty_like.default, "Meta")
        compiled = compile(lambda x: f(x * 1.0) * 2.0)
        run = compiled
    """,
    "compiled with a variant": """
        given = (X, Tensor(X))
        deep = False
        lib.impl("f", lambda x: compiled(x) if deep else x, "CPU")
        lib.impl("f", ops.np.empty_like.default, "Meta")
        compiled = compile(lambda x: f(x * 1.0) * 2.0)
        compiled(X)
        deep = True
        run = compiled
    """,
    "array function": """
        from pydispatch import numpy as pnp
        class Deep(Tensor):
            @classmethod
            def __pydispatch__(cls, func, types, args=(), kwargs=None):
                return pnp.median(args[0])
        run = lambda x: pnp.median(Deep(X))
    """,
    "the look-up of the state, beside another variable": """
        import contextvars, itertools

        def place(variable):            # where the mapping of a context looks for it first
            return (hash(variable) ^ hash(variable) >> 32) & 31

        def variables_inside():
            with autograd.no_grad():
                return set(contextvars.copy_context())

        states, = contextvars.Context().run(variables_inside)
        others = (contextvars.ContextVar(f"other {i}") for i in itertools.count())
        beside = next(variable for variable in others if place(variable) == place(states))

        def deeper():
            contextvars.copy_context().run(look)
            deeper()

        def look():
            assert _core.current_state() is outside

        outside = _core.current_state()
        beside.set(None)
        run = lambda x: deeper()
    """,
    "nested lists": """
        from pydispatch import numpy as pnp
        deep = []
        for _ in range(100_000):
            deep = [deep]
        run = lambda x: pnp.sum(deep)
    """,
    "nested arguments of a compiled function": """
        deep = X
        for _ in range(100_000):
            deep = (deep,)
        run = lambda x: compile(lambda x: X)(deep)
    """,
    "trace": "sys.setrecursionlimit(300); run = lambda x: make_fx(run)(x)(x)",      # each trace adds to each call
}


FORKS = """
import json, os, sys, traceback
from pathlib import Path
from pydispatch import compile, func, higher_order, library, numpy, ops
from pydispatch.tracing import make_fx

def run(program, output):
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    try:
        exec(program, {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

programs, codes = json.load(sys.stdin), {}
for i, (name, program) in enumerate(programs.items()):
    with open(f"{i}.txt", "w") as output:
        child = os.fork()
        if child == 0:
            code = run(program, output)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    codes[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), Path(f"{i}.txt").read_text()
print(json.dumps(codes))
"""
"""Runs each program in a fork of one process, which has imported the package once."""


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """Provide the exit code and the output of each program."""
    programs = {name: "\n".join((BEFORE, textwrap.dedent(source), AFTER)) for name, source in ROWS.items()}
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    child = subprocess.run([sys.executable, "-c", FORKS], input=json.dumps(programs), capture_output=True, text=True,
                           check=True, timeout=600, cwd=tmp_path_factory.mktemp("ends"), env=environment)
    return json.loads(child.stdout)


@pytest.mark.parametrize("name", ROWS)
def test_recursion_ends_in_an_error(ends, name):
    code, output = ends[name]
    assert (code, output) == (0, "well\n"), output[-1000:]
