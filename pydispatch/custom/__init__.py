"""Custom operators: how they are defined, and what authors register for them. Public names are in `library`."""
