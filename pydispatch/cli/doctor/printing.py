"""`python -m pydispatch doctor`: examine everything and print what was found."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from pydispatch.cli.console import Cell, Column, Plain, Rich
from pydispatch.cli.doctor.extensions import examine_backends, examine_compilers, examine_packs
from pydispatch.cli.doctor.findings import REINSTALL, Finding, text_of
from pydispatch.cli.doctor.installation import examine_installation, examine_libraries
from pydispatch.cli.doctor.self_test import examine_calls
from pydispatch.cli.doctor.threads import examine_blas
from pydispatch.exceptions import DispatchError

EXAMINATIONS: dict[str, Callable[[], Iterator[Finding]]] = {
    "Installation": examine_installation,
    "Libraries": examine_libraries,
    "Packs of operators": examine_packs,
    "Backends": examine_backends,
    "Compilers": examine_compilers,
    "BLAS and threads": examine_blas,
    "Self-test": examine_calls,
}


def run_doctor(out: Plain | Rich, _: argparse.Namespace) -> None:
    """Print the findings of each examination, then a remedy for each problem. Raise DispatchError if there is one."""
    wrong = []
    for title, examine in EXAMINATIONS.items():
        findings = list(examined(title, examine))
        if findings:
            out.table([Column(title), Column("", wraps=True)], map(row, findings))
        wrong += [finding for finding in findings if finding.remedy]
    if not wrong:
        out.line("\nno problems found", "good")
        return
    out.heading("Remedies")
    for finding in wrong:
        out.line(f"{finding.subject}: {finding.remedy}")
    raise DispatchError(f"doctor: {len(wrong)} wrong: {', '.join(finding.subject for finding in wrong)}\n"
                        "apply the remedies printed above")


def examined(title: str, examine: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield the findings of an examination, including an error that it raises."""
    try:
        yield from examine()
    except Exception as error:
        yield Finding(title, f"cannot be examined: {text_of(error)}", REINSTALL)


def row(finding: Finding) -> tuple[str | Cell, ...]:
    """Return the subject and the state, in red for a problem."""
    return Cell(finding.subject, "name"), Cell(finding.found, "bad" if finding.remedy else "")
