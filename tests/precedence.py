"""The precedence by examples, stated once more on purpose: for the package and for the model in `docs/`."""

COLUMNS = ("Undefined", "CPU", "A", "AutogradCPU", "AutogradA", "AutogradOther")

# What is registered: what each column runs. FB is the framework's fallback, a fall-through. - is no entry.
EXAMPLES = {
    "": "- - - FB FB FB",
    "CPU": "- CPU - FB FB FB",
    "CIA": "CIA CIA CIA CIA CIA CIA",
    "CEA": "CEA CEA CEA FB FB FB",
    "Autograd": "- - - Autograd Autograd Autograd",
    "Autograd AutogradCPU": "- - - AutogradCPU Autograd Autograd",
    "CPU CIA": "CIA CPU CIA FB CIA CIA",
    "CPU Autograd CIA": "CIA CPU CIA Autograd CIA CIA",
    "CPU CEA": "CEA CPU CEA FB FB FB",
    "CPU Autograd CEA": "CEA CPU CEA Autograd Autograd Autograd",
    "CPU Autograd CIA CEA": "CEA CPU CEA Autograd Autograd Autograd",
    "CIA Autograd": "CIA CIA CIA CIA CIA CIA",
    "CIA SparseCPU": "CIA CIA CIA CIA CIA ambiguous",
    "CIA SparseA Autograd": "CIA CIA CIA CIA CIA ambiguous",
    "CIA SparseA AutogradOther": "CIA CIA CIA CIA CIA AutogradOther",
    "CEA CIA SparseA": "CEA CEA CEA FB FB ambiguous",
    "CEANF CIA": "CEANF CEANF CEANF CIA CIA CIA",
}
