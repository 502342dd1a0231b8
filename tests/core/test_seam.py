"""Private parts of CPython and NumPy, and extensions of C, are in the seam, with the public way beside them."""

import re
from pathlib import Path

import pydispatch
from tests.together import together

PACKAGE = Path(pydispatch.__file__).parent
SOURCES = sorted(path for folder in ("core", "plans") for path in (PACKAGE / folder).rglob("*")
                 if path.suffix in {".pyx", ".pxd", ".h"})
SEAM = [path for path in SOURCES if path.parent.name == "seam" or path.name.startswith("seam")]
OUTSIDE = [path for path in SOURCES if path not in SEAM]

PRIVATE = re.compile(
    r"\b_Py\w+|\b_import_\w+|\bnumpy\._core\b|\bPyUnstable_\w+|\bPyArrayObject_fields\b|\bPyLongScalarObject\b"
    r"|\b(?:context_ver|curexc_type|current_exception|exc_info|ob_digit|ob_item|ob_refcnt|obval|weakreflist)\b"
    r"|\bPyThreadState_GET\b|\bPyUnicode_CHECK_INTERNED\b|\bPyCFunction_GET_\w+|\bPyCodeObject\*>|\bPy_BUILD_CORE\w*"
    r"|\btp_vectorcall(?:_offset)?\b|\bPy_TPFLAGS_\w+|\bPy_REFCNT\b")
EXTENSIONS = re.compile(
    r"__(?:builtin|atomic|sync)_\w+|__attribute__|__asm__|\basm\b|__thread\b|&&\w+##|\bgoto \*|__GNUC__")


def without_comments(path: Path) -> str:
    text = path.read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return text if path.suffix == ".h" else re.sub(r"(?m)^ *# .*$|(?<=  )# .*$", "", text)


@together("path", OUTSIDE, ids=lambda path: path.name)
def test_private_parts_are_used_only_in_the_seam(path):
    assert PRIVATE.findall(without_comments(path)) == []


@together("path", OUTSIDE, ids=lambda path: path.name)
def test_extensions_of_c_are_used_only_where_there_is_another_way(path):
    text = without_comments(path)
    if re.search(r"#if.*\bHAS_GNU_C\b", text):
        text = re.sub(r"#if[^\n]*\bHAS_GNU_C\b.*?#(?:else|endif)", "", text, flags=re.DOTALL)
    assert EXTENSIONS.findall(text) == []


def test_the_headers_of_the_seam_have_a_public_way():
    headers = [path for path in SEAM if path.suffix == ".h" and path.stem != "seam"]
    assert len(headers) == 3
    for path in headers:
        assert re.search(r"PYDISPATCH_PORTABLE|IS_PORTABLE", path.read_text()), path.name
