"""Docstrings follow what docs/contributing.md asks of them.

A function's docstring opens with a verb of verbs.txt, in the imperative, and has full stops rather than semicolons.
No docstring opens with a relative. First paragraphs ask no questions, and no sentence has more than 32 words. Tests,
benchmarks, examples and tools keep to the same rules. Comments have full stops too, and ask no questions.
Phrases that read as translated are nowhere in the package and the documentation, messages included.
"""

import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.together import together

ROOT = Path(__file__).parent.parent
SOURCES = [path for ending in ("py", "pyx") for path in sorted(ROOT.glob(f"pydispatch/**/*.{ending}"))]
HEADERS = sorted(ROOT.glob("pydispatch/**/*.h"))
RELATIVES = frozenset(("What", "How", "Which", "Where", "When", "That"))
PROSE = [*SOURCES, *HEADERS, *sorted(ROOT.glob("pydispatch/**/*.pxd")), ROOT / "README.md",
         *[path for path in sorted(ROOT.glob("docs/*.md")) if path.name != "glossary.md"]]
OTHERS = [path for folder in ("tests", "benchmarks", "examples", "tools")
          for path in sorted(ROOT.glob(f"{folder}/**/*.py"))]
LONGEST = 32        # words of a sentence
VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text().split())
NOUNS_FOLLOW = re.compile(r"\b(?:property|cached_property|overload|setter)\b")
LAYOUT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.COMMENT)
EXAMPLE = re.compile(r"(?ms)^\s*>>>.*?(?:\n\s*\n|\Z)")
FAULTS_OF_COMMENTS = {"asks a question": r"\?(?:$| )", "has a semicolon": ";", "opens with So": r"# *So\b"}
FAULTS_OF_C = {**FAULTS_OF_COMMENTS, "opens with So": r"(?:^|[.:])\s+So\b"}
LIBRARY = "(?:NumPy|SciPy|Dask|JAX|PyTorch|Python)"
TRANSLATED = {      # the phrase, and what to write
    r"of users": "users' functions, a user's mode", r"takes? no(?! more| longer| part)": "does not take a",
    r"(?:has|have) not (?:the|an?|its)": "does not have the", r"nothing but": "only", r"but for": "except for",
    r"likewise": "in the same way", r"all that (?:an?|is|it|the|they|was)": "everything that",
    rf"{LIBRARY}'s (?:arrays|scalars|integers|numbers|universal functions)(?! of)": "NumPy arrays",
    rf"an? (?:array|scalar|ufunc|mask|function|number|error) of {LIBRARY}'s": "a NumPy array",
    r"a text(?! signature)": "text", r"taken for an?": "mistaken for", r"only each \w+th": "only every",
    r"(?:derivatives?|differentiate|gradients?) by (?:its|the) (?:argument|parameter)s?": "with respect to",
    r"another (?!one\b)[\w ]{1,24} than": "differs from, other than",
    r"those of no": "without a", r"as far as (?:is|can be) known": "if it is known",
}
CODE = re.compile(r"``.*?``|`[^`]*`", re.DOTALL)


@functools.lru_cache(1)
def tokens_of(source: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of a file, of which docstrings and comments are read in turn."""
    return list(tokenize.generate_tokens(io.StringIO(source).readline))


def docstrings(source: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield the line, the decorators, the header and the text of each docstring, of Python and of Cython."""
    tokens = tokens_of(source)
    line: list[str] = []
    header, decorators = "", ""
    for i, token in enumerate(tokens):
        if token.type in LAYOUT:
            if token.type == tokenize.NEWLINE:
                if line[:1] == ["@"]:
                    decorators += " " + " ".join(line)
                else:
                    header, decorators = " ".join(line), decorators if line[-1:] == [":"] else ""
                line = []
            continue
        opens_block = tokens[i - 1].type == tokenize.INDENT
        if token.type == tokenize.STRING and opens_block and tokens[i + 1].type == tokenize.NEWLINE:
            if "extern" not in header:
                yield token.start[0], decorators, header, eval(token.string)
            decorators = ""
        line.append(token.string)


def faults(source: str, *, of_package: bool = True) -> Iterator[str]:
    for line, decorators, header, text in docstrings(source):
        first = CODE.sub("x", text.split("\n\n")[0])
        is_function = re.match(r"(?:async )?(?:def|cdef|cpdef)\b(?! class)", header)
        word = re.split(r"[\s.,:(]", text.strip(), maxsplit=1)[0]
        is_heading = word.isdigit()     # of a step of the demo, which prints it
        may_open_otherwise = is_heading or NOUNS_FOLLOW.search(decorators)
        if is_function and not may_open_otherwise and word.lower() not in VERBS:
            yield f"{line}: opens with {word!r}, which is not a verb of the list"
        if word in RELATIVES and not may_open_otherwise:
            yield f"{line}: opens with {word!r}, which makes an abstract subject: {first.split(chr(10))[0]}"
        if "?" in first:
            yield f"{line}: asks a question: {first.split(chr(10))[0]}"
        prose = CODE.sub("x", EXAMPLE.sub(" ", text))
        if (is_function or not of_package) and ";" in prose:
            yield f"{line}: has a semicolon: {text.split(chr(10))[0]}"
        for paragraph in re.split(r"\n\s*\n|\n\s*-", prose):
            for sentence in re.split(r"(?<=[.:])\s+", " ".join(paragraph.split())):
                if len(sentence.split()) > LONGEST:
                    yield f"{line}: a sentence of {len(sentence.split())} words: {sentence[:80]}"


def faults_of_comments(source: str) -> Iterator[str]:
    for token in tokens_of(source):
        if token.type == tokenize.COMMENT:
            text = CODE.sub("x", token.string)
            for fault, pattern in FAULTS_OF_COMMENTS.items():
                if re.search(pattern, text):
                    yield f"{token.start[0]}: {fault}: {token.string}"


def faults_of_headers(source: str) -> Iterator[str]:
    for comment in re.finditer(r"/\*(.*?)\*/", source, re.DOTALL):
        for fault, pattern in FAULTS_OF_C.items():
            if re.search(pattern, CODE.sub("x", comment[1])):
                yield f"{source.count(chr(10), 0, comment.start()) + 1}: {fault}: {comment[1]}"


@together("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_and_comments_keep_to_the_style_sheet(path):
    source = path.read_text()
    found = [*faults(source), *faults_of_comments(source)]
    assert not found, "\n".join(found)


@together("path", OTHERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_other_files_keep_to_the_style_sheet(path):
    source = path.read_text()
    found = [*faults(source, of_package=False), *faults_of_comments(source)]
    assert not found, "\n".join(found)


@together("path", HEADERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_of_headers_keep_to_the_style_sheet(path):
    found = list(faults_of_headers(path.read_text()))
    assert not found, "\n".join(found)


def translated(text: str) -> Iterator[str]:
    for phrase, better in TRANSLATED.items():
        for found in re.finditer(rf"\b{phrase}\b", text):
            yield f"{text.count(chr(10), 0, found.start()) + 1}: {found[0]!r}: write {better!r}"


@together("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_phrase_reads_as_translated(path):
    found = list(translated(path.read_text()))
    assert not found, "\n".join(found)


def test_translated_phrases_are_found():
    assert list(translated("x\nIt has not the kernels of users.")) == [
        "2: 'of users': write \"users' functions, a user's mode\"", "2: 'has not the': write 'does not have the'"]
    assert not list(translated("It takes no more, and takes no part."))


@pytest.mark.parametrize(("docstring", "fault"), [
    ("The gradient.", "opens with 'The'"), ("Returns the gradient.", "opens with 'Returns'"),
    ("Return it?", "asks a question"), ("Return it; or not.", "has a semicolon"),
    ("Return" + " word" * LONGEST + ".", "a sentence of 33 words"),
])
def test_faults_are_found(docstring, fault):
    source = f'class A:\n    """A thing."""\n\n    @staticmethod\n    def f():\n        """{docstring}"""\n'
    assert [fault in text for text in faults(source)] == [True]
    assert not list(faults('@property\ndef f(self):\n    """The gradient; `a; b`?"""\n'.replace("; `a; b`?", "")))
    assert not list(faults('cdef extern from *:\n    """\n    int f(int x); /* The C code? */\n    """\n'))
    assert [fault in text for text in faults(source, of_package=False)] == [True]
    assert len(list(faults('class A:\n    """What it is."""\n'))) == 1
    assert len(list(faults('cdef inline int f(x) except -1:\n    """The number."""\n    return 1\n'))) == 1


@pytest.mark.parametrize(("comment", "fault"), [
    ("# Is it?", "asks a question"), ("# one; two", "has a semicolon"), ("# So it is.", "opens with So")])
def test_faults_of_comments_are_found(comment, fault):
    assert [fault in text for text in faults_of_headers(f"int x; /*{comment[1:]} */\n")] == [True]
    assert [fault in text for text in faults_of_comments(f"x = 1    {comment}\n")] == [True]
    assert not list(faults_of_comments("x = 1    # one, `a; b`, so it is\n"))
