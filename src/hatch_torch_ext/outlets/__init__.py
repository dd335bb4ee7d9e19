"""Outlets: other forms of a finished wheel, made from it without compiling, and back again.

``parts`` unpacks a wheel of this project; ``writing`` writes another one with the same files of the author; ``merging``
joins partial wheels, ``variantwheels`` splits by backend (PEP 825), ``exact`` writes one wheel for each variant and a
static index of them, ``kernels`` a kernel repository of Hugging Face's Hub.
"""
