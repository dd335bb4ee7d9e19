"""``init``: a setuptools project with torch extensions, or an empty folder -> a project with hatch-torch-ext.

``migrating`` has the steps in their order, and what other releases of torch change: ``recording`` runs ``setup.py``
without compiling, once as on a machine without CUDA and once as on one with CUDA, and returns what it declares;
``declared`` says what that means for the project, and ``texts`` reads what is there. Of the files, ``targets`` joins
the two recordings; ``splitting`` splits modules that also register operators; ``cmakelists`` makes CMakeLists.txt, and
``keeping`` keeps one that is there; ``pyproject`` makes pyproject.toml, with a matrix of what is ``served`` and the
options of ``packing``; ``imports`` changes the code that loads the extensions. All of it is a ``texts.Migration``,
which is written only after all steps have succeeded. ``fresh`` makes a new package; ``kernel_builder`` makes a project
of a kernel of Hugging Face's Hub, which ``build_toml`` reads.
"""
