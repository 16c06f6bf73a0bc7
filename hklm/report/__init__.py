"""Pictures of runs and models; imported by nothing but the outermost call."""
