"""The observer of the chaos runs, held against histories that are wrong on purpose."""
