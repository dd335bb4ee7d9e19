"""Tests without network and compiler."""
