"""Pictures of runs and models; leaves of the house, imported by nothing but the outermost call."""
