"""What persysctl prints: tables and texts for people, JSON and YAML for programs."""
