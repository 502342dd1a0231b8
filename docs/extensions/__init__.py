"""What Sphinx does for these pages besides its own work."""
