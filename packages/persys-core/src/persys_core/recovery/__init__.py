"""What is to be made of agents' reports where the records were lost. Pure."""
