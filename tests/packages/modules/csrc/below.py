"""Installed by CMake, beside a module of the same package."""

NAME = "below"
