"""Facts of the wheel's own files besides ``version.py``; the literal is written when the SDK is made."""

from typing import Dict

FACTS: Dict[str, bool] = {"cxx11_abi": True}
