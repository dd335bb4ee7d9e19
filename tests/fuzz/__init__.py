"""Fuzz targets: readers of foreign bytes, run for minutes by `python tests/fuzz/run.py`."""
