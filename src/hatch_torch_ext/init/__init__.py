"""The bridge: a setuptools project with torch extensions, or nothing at all -> an ordinary project of ours.

``recording`` runs ``setup.py`` without building and gives what it declares; ``targets`` joins its two faces, CPU and
CUDA; ``cmakelists`` writes CMakeLists.txt; ``pyproject`` pyproject.toml, with the metadata of ``project`` and the
matrix of ``served``; ``sources`` changes what loads the extensions; ``fresh`` makes a new package. Nothing is written
before everything is known.
"""
