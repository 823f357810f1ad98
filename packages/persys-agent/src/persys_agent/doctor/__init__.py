"""``persys-agent doctor``: looks at everything that ``run`` needs, before ``run`` needs it."""
