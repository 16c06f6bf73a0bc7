"""How parameters move: optimisers, the pure update, the loop around it, what it leaves on disk."""
