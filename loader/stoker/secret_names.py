"""Which storage options are secrets, by their names."""

from __future__ import annotations

import re

_SECRET = re.compile(
    r"secret|token|passw|credential|signature|sas_|_sas|^sas$|(access|account|api|private|encryption|customer)_?key|^key$"
)


def is_secret(option: str) -> bool:
    """Whether a storage option's name looks like that of a secret; the path of a file that holds a token is none."""
    name = option.lower()
    return not name.endswith(("skip_signature", "_token_file")) and _SECRET.search(name) is not None
