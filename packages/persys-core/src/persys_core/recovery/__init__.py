"""What is to be made of work that others know: agents' reports, another's records. Pure."""
