"""What a script that was written for torch's DataLoader needs."""
