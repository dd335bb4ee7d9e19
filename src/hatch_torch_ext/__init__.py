"""A hatchling build hook that puts every build of a PyTorch extension into one wheel."""

__version__ = "0.1.0"
