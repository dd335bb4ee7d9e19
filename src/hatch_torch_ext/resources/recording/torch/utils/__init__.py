"""What ``setup.py`` asks of ``torch.utils``."""

import os

cmake_prefix_path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "share", "cmake")
