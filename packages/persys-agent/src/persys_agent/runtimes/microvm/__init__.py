"""MicroVMs on Firecracker."""
