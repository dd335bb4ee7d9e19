"""Tests with real torch releases: a wheel is built, installed into fresh environments, and run."""
