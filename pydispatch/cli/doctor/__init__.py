"""`python -m pydispatch doctor`: examine the installation, test it, and say what to do about what is wrong."""
