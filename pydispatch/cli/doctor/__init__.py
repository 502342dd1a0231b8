"""`python -m pydispatch doctor`: examine the installation, test it, and print remedies for problems."""
