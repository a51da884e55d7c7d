"""Training objectives: binary cross-entropy and its adaptive score augmentation (ASA)."""
