"""storage: redaction. Text that a store's library wrote flows in; the same without credentials flows out."""

import os
import re
from collections.abc import Mapping

_SECRET_VARIABLE = re.compile(r"KEY|SECRET|TOKEN|PASS|CREDENTIAL|SAS|AUTH|CONNECTION_STRING", re.IGNORECASE)
_LEAST_LENGTH = 6
_PATTERNS = (
    re.compile(r"(?<=://)[^/@\s]+@"),  # user:password@host
    re.compile(r"(?<=Credential=)[^\s,&\"']+", re.IGNORECASE),
    re.compile(r"(?<=Signature=)[^\s,&\"']+", re.IGNORECASE),
    re.compile(r"(?<=[?&]sig=)[^\s&\"']+", re.IGNORECASE),
    re.compile(r"(?<=Token=)[^\s,&\"']+", re.IGNORECASE),
    re.compile(r"(?<=Bearer )[^\s,\"']+", re.IGNORECASE),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"),
)


def without_credentials(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """``text`` with every value of an environment variable that sounds secret, and everything that looks like a key, a
    signature or a password, replaced by ``***``."""
    secrets = [value for name, value in environment.items() if _SECRET_VARIABLE.search(name)]
    for secret in sorted((it for it in secrets if len(it) >= _LEAST_LENGTH), key=len, reverse=True):
        text = text.replace(secret, "***")
    for pattern in _PATTERNS:
        text = pattern.sub("***", text)
    return text
