"""Which node a workload goes to, and the reasons why no other does. Pure; nothing is written."""
