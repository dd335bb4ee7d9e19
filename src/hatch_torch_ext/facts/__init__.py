"""Facts that several stages share: releases of torch, labels, architectures, policies, SONAMEs, the variant itself.

Nothing here runs a program, reads the network or knows a stage.
"""
