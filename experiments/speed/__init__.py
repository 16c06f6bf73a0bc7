"""How fast is it, and beside what? The same work, set to several libraries in turn.

`experiments.benchmark` is the binary; a `with_` file is a contender, `measures` sets the work.
"""
