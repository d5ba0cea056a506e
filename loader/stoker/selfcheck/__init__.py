"""Do the back-ends that are here keep to what is published? ``run(device)``, behind ``stoker selfcheck``."""

from stoker.selfcheck.compare import Finding
from stoker.selfcheck.run import Report, run

__all__ = ["Finding", "Report", "run"]
