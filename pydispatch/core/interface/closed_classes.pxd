# Classes for Python code: whose objects only the core makes, and whose objects are called as fast in subclasses.
#
# No other part uses this one.
