"""Projects of others, fetched from the package index by name and version: built with what an author would add."""
