# Classes whose objects only the core makes.
#
# No other part uses this one. It runs once, at import.
