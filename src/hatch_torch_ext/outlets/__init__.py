"""Outlets: other forms of a finished wheel, made from it without compiling, and back again.

``parts`` takes a wheel of ours apart; ``writing`` writes another of the same author's files; ``merging`` joins parts,
``variantwheels`` cuts by backend (PEP 825), ``exact`` gives one wheel for each variant, with a static index of them.
"""
