"""The shape of the code: dependencies, purity, sizes."""
