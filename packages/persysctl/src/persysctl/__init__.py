"""persysctl: the command line client of the Persys control plane."""
