# Classes whose objects only the core makes.
#
# No other part uses this one: it runs once, at the import.
