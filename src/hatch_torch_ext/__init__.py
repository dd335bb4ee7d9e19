"""A hatchling build hook that builds a PyTorch extension for every entry of a hatch matrix, into one wheel."""

__version__ = "0.1.0"
