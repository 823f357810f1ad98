"""In-memory implementations of the ports: the executable statement of what each port promises."""
