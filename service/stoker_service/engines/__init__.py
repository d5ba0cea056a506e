"""What runs a service's workers beyond child processes of ``stoker up``."""
