"""The audit: what keeps a compiled file from loading for a user, or a wheel from being what it states.

``audit_variant`` runs in every build, ``audit_wheel`` on any wheel of a torch extension, whoever made it.
"""

from hatch_torch_ext.audit.findings import CODES, Code, Finding, settle, text
from hatch_torch_ext.audit.loading import check_package
from hatch_torch_ext.audit.variants import audit_variant
from hatch_torch_ext.audit.wheels import audit_wheel

__all__ = [
    "CODES",
    "Code",
    "Finding",
    "audit_variant",
    "audit_wheel",
    "check_package",
    "settle",
    "text",
]
