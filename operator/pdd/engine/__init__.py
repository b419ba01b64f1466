"""Engine adapters and the reference engine."""
