"""The commands of ``stoker``, one module each; what they need is imported when they run."""
