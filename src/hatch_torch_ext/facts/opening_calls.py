"""Calls by which a package's Python files open libraries, as they are written."""

LOADS = {"torch.ops.load_library", "torch.classes.load_library", "ops.load_library", "classes.load_library"}
CTYPES = {"ctypes.CDLL", "CDLL", "ctypes.cdll.LoadLibrary", "cdll.LoadLibrary", "ctypes.PyDLL"}
