"""What to do about one workload: an ordered table over what is wanted, known and seen. Pure."""
