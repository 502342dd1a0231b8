"""Random imperative programs, as NumPy users write them: text that runs with NumPy and with `pydispatch.numpy`.

A program is a function `program(np, a, b, m)` of two vectors of N numbers and a matrix of N by N. It assigns elements,
rows and slices, makes views, keeps running totals, swaps, fills arrays in loops, writes to its arguments, branches on
integers, draws numbers, and calls helper functions that write to theirs. It returns a scalar and some arrays.
"""

import random
import textwrap
from collections.abc import Callable
from typing import Any

import numpy

N = 4
HELPERS = '''
def halve_the_end(v):
    v[v.shape[0] // 2:] *= 0.5


def rotate(v):
    first = v[0]
    for k in range(v.shape[0] - 1):
        v[k] = v[k + 1]
    v[v.shape[0] - 1] = first


def running(np, v):
    total = v[0]
    for k in range(1, v.shape[0]):
        total += v[k]
        v[k] = np.tanh(total)
    return total


def scaled(np, v, s):
    s *= 0.5
    return v * s


def orthogonal(np, m):
    for k in range(m.shape[0]):
        m[k] /= np.sqrt(m[k] @ m[k] + 0.1)
        for j in range(k + 1, m.shape[0]):
            m[j] -= (m[k] @ m[j]) * m[k]


def factorise(m):
    for k in range(m.shape[0] - 1):
        m[k + 1:, k] /= m[k, k] * m[k, k] + 1.0
        m[k + 1:, k + 1:] -= m[k + 1:, k:k + 1] * m[k:k + 1, k + 1:]


def insert_in_order(np, v):
    for k in range(1, v.shape[0]):
        low, high = np.minimum(v[k - 1], v[k]), np.maximum(v[k - 1], v[k])
        v[k - 1], v[k] = low, high


def newton(np, s):
    history = np.zeros(3)
    history[0] = 1.0 + s * s
    for k in range(2):
        history[k + 1] = history[k] - (history[k] ** 2 - 2.0 - s * s) / (2.0 * history[k])
    return history


def cheapest_path(np, m):
    cost = np.copy(m)
    for i in range(1, m.shape[0]):
        for j in range(1, m.shape[1]):
            cost[i, j] += np.minimum(cost[i - 1, j], cost[i, j - 1])
    return cost


def overwrite(v, w):
    w[:] = v
    v *= w
    v = v + 1.0
    v[0] = 0.0
    return w
'''


def text_of(body: str) -> str:
    """Return the text of a program, the helper functions before it."""
    return f"{HELPERS}\n\ndef program(np, a, b, m):\n{textwrap.indent(body, '    ')}\n"


class Writer:
    """Writes one program. `vectors`, `matrices` and `scalars` are the names of the variables so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.vectors, self.matrices, self.scalars = ["a", "b"], ["m"], ["1.5"]
        self.count = 0

    def new(self, kind: list[str], value: str) -> str:
        name = f"{'vms'[(self.vectors, self.matrices, self.scalars).index(kind)]}{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {value}")
        kind.append(name)
        return name

    def pick(self, kind: list[str]) -> str:
        return self.random.choice(kind)

    @property
    def vector(self) -> str:
        return self.pick(self.vectors)

    @property
    def matrix(self) -> str:
        return self.pick(self.matrices)

    @property
    def scalar(self) -> str:
        return self.pick(self.scalars)

    @property
    def variable_scalar(self) -> str:
        """A scalar that has a name."""
        if len(self.scalars) == 1:
            self.element()
        return self.pick(self.scalars[1:])

    @property
    def index(self) -> int:
        return self.random.randrange(-N, N)

    # --- statements: new values ---

    def element(self) -> None:
        self.new(self.scalars, self.random.choice(
            [f"{self.vector}[{self.index}]", f"{self.matrix}[{self.index}, {self.index}]"]))

    def total(self) -> None:
        self.new(self.scalars, self.random.choice(
            [f"np.sum({self.vector})", f"{self.vector} @ {self.vector}", f"{self.matrix}.mean()",
             f"np.tanh({self.scalar})", f"{self.vector}.max()", f"np.linalg.norm({self.vector} + 2.0)"]))

    def copy_of_a_scalar(self) -> None:
        self.new(self.scalars, self.variable_scalar)

    def filled(self) -> None:
        vector, scalar = self.vector, self.scalar
        name = self.new(self.vectors, self.random.choice([f"np.empty({N})", f"np.empty_like({vector})"]))
        self.lines.append(self.random.choice(
            [f"{name}[...] = {scalar}", f"{name}.fill({scalar})",
             f"for k in range({N}): {name}[k] = {vector}[k] * {scalar}"]))

    def made(self) -> None:
        self.new(self.vectors, self.random.choice(
            [f"np.zeros({N})", f"np.full({N}, {self.scalar})", f"np.zeros({N}, dtype={self.vector}.dtype)",
             f"np.ones({N})", f"np.zeros_like({self.vector})", f"{self.vector}.copy()", f"np.array({self.vector})",
             f"newton(np, {self.scalar})[[0, 1, 2, 2]]",
             f"np.array([{self.scalar}, {self.scalar}, 0.5, {self.scalar}])"]))

    def computed(self) -> None:
        self.new(self.vectors, self.random.choice(
            [f"np.sin({self.vector})", f"{self.vector} * {self.vector}", f"{self.vector} + {self.scalar}",
             f"np.tanh({self.vector} - {self.vector})", f"{self.matrix} @ {self.vector} * 0.3",
             f"np.where({self.vector} > 0.0, {self.vector}, {self.scalar})",
             f"scaled(np, {self.vector}, {self.variable_scalar})", f"np.cumsum({self.vector})",
             f"{self.matrix}.sum(axis={self.random.randrange(2)})", f"{self.vector}[[3, 1, 1, 0]]",
             f"np.take({self.vector}, [0, 3, 2, 2])", f"np.concatenate([{self.vector}[1:], {self.vector}[:1]])",
             f"np.einsum('ij,j->i', {self.matrix}, {self.vector})", f"{self.vector}[np.argsort({self.vector})]"]))

    def view(self) -> None:
        self.new(self.vectors, self.random.choice(
            [f"{self.vector}[::-1]", f"{self.vector}[:]", f"{self.matrix}[{self.index}]", f"{self.matrix}[:, 1]",
             f"{self.matrix}.T[{self.index}]", f"{self.vector}.reshape(2, 2).reshape(-1)",
             f"{self.matrix}.reshape(-1)[::{N}]", f"{self.matrix}.T.ravel()[:{N}]",
             f"np.ravel({self.matrix})[1:{N + 1}]",
             f"np.split({self.matrix}, 2)[1][0]", f"np.atleast_1d({self.vector})", f"np.squeeze({self.vector}[None])",
             f"{self.matrix}[1:3, :2].reshape(-1)", f"{self.matrix}.reshape(2, 2, {N})[1, 0]", self.vector,
             f"np.moveaxis({self.matrix}, 0, 1)[2]", f"np.asarray({self.vector})",
             f"{self.matrix}[{self.index}, ...]", f"np.einsum('ii->i', {self.matrix})"]))

    def two_views(self) -> None:
        first, second = f"v{self.count}", f"v{self.count + 1}"
        self.count += 2
        self.lines.append(f"{first}, {second} = np.split(np.concatenate([{self.vector}, {self.vector}]), 2)")
        self.vectors += [first, second]

    def read_only_view(self) -> None:
        matrix, view = self.matrix, f"r{self.count}"
        made = self.random.choice(
            [f"np.diagonal({matrix})", f"{matrix}.diagonal()", f"np.diag({matrix}[::-1])",
             f"np.broadcast_to({matrix}[{self.index}], ({N},))"])
        self.lines += [f"{view} = {made}", f"{matrix}[{self.index}, {self.index}] = {self.scalar}"]
        self.new(self.vectors, f"{view} * 1.0")

    def new_matrix(self) -> None:
        self.new(self.matrices, self.random.choice(
            [f"{self.matrix}.T", f"np.outer({self.vector}, {self.vector})", f"np.cos({self.matrix})",
             f"{self.matrix}.copy()", f"np.zeros(({N}, {N}))", f"{self.matrix}[::-1]",
             f"np.ascontiguousarray({self.matrix}.T)",
             f"np.stack([{self.vector}, {self.vector}, {self.vector}, {self.vector}])", f"np.eye({N})",
             f"np.asfortranarray({self.matrix})", f"cheapest_path(np, {self.matrix})", f"{self.matrix}[[1, 0, 0, 3]]",
             f"np.transpose({self.matrix})[:, ::-1]", f"np.diag({self.vector})"]))

    def draw(self) -> None:
        self.new(self.vectors, f"np.random.default_rng({self.random.randrange(9)}).normal(size={N})")

    # --- statements: writes ---

    def augmented_scalar(self) -> None:
        self.lines.append(f"{self.variable_scalar} {self.random.choice(['+=', '-=', '*='])} {self.scalar}")

    def write_element(self) -> None:
        target = self.random.choice([f"{self.vector}[{self.index}]", f"{self.matrix}[{self.index}, {self.index}]"])
        self.lines.append(f"{target} {self.random.choice(['=', '=', '+=', '*='])} {self.scalar}")

    def write_slice(self) -> None:
        key, value = self.random.choice(
            [("1:", f"{self.vector}[:-1]"), (":-1", f"{self.vector}[1:]"), ("::2", self.scalar), (":", self.vector),
             ("[0, 2]", f"{self.vector}[1:3]"), ("[True, False, True, True]", self.scalar), ("...", self.vector),
             (f"{self.vector} > 0.1", self.scalar), (f"np.argmax({self.vector})", self.scalar), ("::-1", self.vector)])
        operator = "=" if ">" in key else self.random.choice(["=", "=", "+=", "*="])
        self.lines.append(f"{self.vector}[{key}] {operator} {value}")

    def augmented_vector(self) -> None:
        operator = self.random.choice(["+=", "-=", "*="])
        self.lines.append(f"{self.vector} {operator} {self.random.choice([self.vector, self.scalar])}")

    def write_row(self) -> None:
        key = self.random.choice([f"{self.index}", f":, {self.index}", f"{self.index}, :", "::2", "[0, 2]", ":, ::-1",
                                  f"np.arange({N}), [1, 0, 3, 2]"])
        self.lines.append(f"{self.matrix}[{key}] {self.random.choice(['=', '+=', '*='])} {self.vector}")

    def swap(self) -> None:
        v, m, i, j = self.vector, self.matrix, self.index, self.index
        self.lines.append(self.random.choice(
            [f"{v}[{i}], {v}[{j}] = {v}[{j}], {v}[{i}]", f"{m}[{i}], {m}[{j}] = {m}[{j}], {m}[{i}]",
             f"{m}[[{i % N}, {j % N}]] = {m}[[{j % N}, {i % N}]]"]))

    def write_by_function(self) -> None:
        self.lines.append(self.random.choice(
            [f"np.add({self.vector}, {self.vector}, out={self.vector})", f"np.copyto({self.vector}, {self.vector})",
             f"np.add.at({self.vector}, [0, 1, 0], {self.scalar})", f"np.put({self.vector}, [1, 2], {self.scalar})",
             f"np.fill_diagonal({self.matrix}, {self.scalar})", f"{self.vector}.fill({self.scalar})",
             f"np.sin({self.vector}, out={self.vector})", f"np.multiply.at({self.vector}, 1, {self.scalar})",
             f"np.sum({self.matrix}, axis=0, out={self.vector})", f"np.cumsum({self.vector}, out={self.vector})",
             f"np.clip({self.vector}, -0.7, 0.7, out={self.vector})",
             f"np.maximum.at({self.vector}, [2, 0], {self.scalar})",
             f"np.matmul({self.matrix}, {self.matrix}, out={self.matrix})", f"{self.vector}.sort()",
             f"np.putmask({self.vector}, {self.vector} < 0.0, {self.scalar})",
             f"np.multiply({self.vector}, {self.vector}, out={self.matrix}[{self.index}])",
             f"np.add({self.vector}, 1.0, out={self.vector}, where={self.vector} > 0.0)",
             f"np.copyto({self.matrix}, {self.vector}[:, None])",
             f"np.subtract.at({self.matrix}, [0, 1, 1], {self.vector})",
             f"np.place({self.vector}, [True, False, False, True], [{self.scalar}])",
             f"{self.matrix}.flat[{self.random.randrange(N * N)}] = {self.scalar}",
             f"np.put_along_axis({self.vector}, np.array([0, 3]), {self.scalar}, 0)"]))

    def loop(self) -> None:
        out, v, w = self.vector, self.vector, self.vector
        self.lines.append(f"for k in range(1, {N}):")
        self.lines.append("    " + self.random.choice(
            [f"{out}[k] = np.sin({out}[k - 1]) + {v}[k]", f"{out}[k] += {v}[k - 1] * {w}[k]",
             f"{out}[k] = {v}[{N - 1} - k]", f"{self.matrix}[k] = {self.matrix}[k - 1] * 0.5 + {v}",
             f"if k % 2: {out}[k] = {self.scalar}", f"{out}[:k] += {v}[k]",
             f"{out}[k], {out}[k - 1] = {v}[k - 1], {w}[k] * 0.5", f"{out}[k:] *= {self.scalar}"]))

    def loop_over_rows(self) -> None:
        self.lines.append(f"for row in {self.matrix}: " + self.random.choice(
            ["row *= 0.5", f"row[0] = {self.scalar}", "row[1:] += row[:-1]", f"row -= {self.vector}",
             "row = row * 2.0"]))

    def branch(self) -> None:
        n = f"n{self.count}"
        self.count += 1
        self.lines += [f"{n} = {self.random.randrange(5)}", f"if {n} % 2 == {self.random.randrange(2)}:",
                       f"    {self.vector}[{n} % {N}] = {self.scalar}", "else:",
                       f"    {self.vector}[{n} - 1:] *= {self.scalar}", f"while {n} > 1:",
                       f"    {n} -= 1", f"    {self.vector}[{n} % {N}] += np.sin({self.vector}[{n} - 1])"]

    def accumulate(self) -> None:
        name = self.new(self.scalars, f"{self.vector}[0]")
        self.lines += [f"for k in range(1, {N}):", f"    {name} += np.sin({self.vector}[k])"]

    def two_buffers(self) -> None:
        old, new = self.vector, f"v{self.count}"
        self.count += 1
        self.lines += [f"{new} = {old}.copy()", "for _ in range(2):",
                       f"    {new}[1:-1] = 0.5 * {old}[1:-1] + 0.25 * ({old}[:-2] + {old}[2:])",
                       f"    {old}, {new} = {new}, {old}"]
        self.vectors.append(new)

    def helper(self) -> None:
        self.random.choice([
            lambda: self.lines.append(f"halve_the_end({self.vector})"),
            lambda: self.lines.append(f"rotate({self.vector})"),
            lambda: self.new(self.scalars, f"running(np, {self.vector})"),
            lambda: self.lines.append(f"orthogonal(np, {self.matrix})"),
            lambda: self.lines.append(f"factorise({self.matrix})"),
            lambda: self.lines.append(f"insert_in_order(np, {self.vector})"),
            lambda: self.new(self.vectors, f"overwrite({self.vector}, {self.vector})"),
        ])()

    def source(self, n_statements: int) -> str:
        statements = [self.element, self.total, self.copy_of_a_scalar, self.made, self.computed, self.view,
                      self.new_matrix, self.draw, self.augmented_scalar, self.write_element, self.write_element,
                      self.write_slice, self.augmented_vector, self.write_row, self.swap, self.write_by_function,
                      self.loop, self.accumulate, self.two_buffers, self.helper, self.filled, self.two_views,
                      self.read_only_view, self.loop_over_rows, self.branch]
        for _ in range(n_statements):
            self.random.choice(statements)()
        values = [*(f"np.sum(np.tanh({name}))" for name in (*self.vectors, *self.matrices)), *self.scalars[1:]]
        arrays = ", ".join([*self.vectors[2:], *self.matrices[1:]])
        body = "\n".join([*self.lines, f"loss = np.tanh(0.3 * ({' + '.join(values)}))", f"return loss, [{arrays}]"])
        return text_of(body)


def source_of(seed: int) -> str:
    """Return the text of the program of a seed."""
    writer = Writer(seed)
    return writer.source(writer.random.randint(3, 9))


def program_of(source: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(source, scope)
    program: Callable[..., Any] = scope["program"]
    return program


def arguments_of(seed: int) -> list[Any]:
    """Return the arguments for the program of a seed."""
    rng = numpy.random.default_rng(seed)
    return [rng.uniform(-1.0, 1.0, N), rng.uniform(-1.0, 1.0, N), rng.uniform(-1.0, 1.0, (N, N))]
