// Everything is in the part.
