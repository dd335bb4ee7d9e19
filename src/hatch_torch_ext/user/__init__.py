"""The user's side: the machine, the right torch, faults of an installation, a smaller installation.

It does not need hatch.

``machine`` and ``drivers`` find out what the machine can run, ``target`` which Python is meant, ``packages`` which
variants a package has; ``installing``, ``doctor``, ``pruning`` and ``first_use`` do what a user asks for. A build at
first use is requested by a ``request`` and kept in ``builtcache``.
"""
