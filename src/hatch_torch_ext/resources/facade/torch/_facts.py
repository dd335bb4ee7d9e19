"""What the wheel's own files say beyond ``version.py``; the literal is written when the SDK is made."""

FACTS = {"cxx11_abi": True}
