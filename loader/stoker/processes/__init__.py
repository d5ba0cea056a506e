"""Worker processes of a loader: how they start, what they are sent, what comes back."""
