"""The command line client, against a scheduler of a few lines in the same process."""
