"""Tests with real tools (hatch, CMake, compilers, patchelf) on tiny sources."""
