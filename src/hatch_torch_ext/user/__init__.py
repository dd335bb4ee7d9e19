"""The user's side: the machine, the right torch, what does not work, a smaller installation. Nothing here needs hatch.

``machine`` and ``drivers`` say what runs here, ``target`` which Python is meant, ``packages`` what is offered;
``installing``, ``doctor`` and ``pruning`` are the three things that a user asks for.
"""
