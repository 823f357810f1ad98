"""What holds for every test: how hypothesis runs."""

from hypothesis import settings

# Machines are noisy: no example fails for being slow.
settings.register_profile("persys", deadline=None, print_blob=True)
settings.load_profile("persys")
