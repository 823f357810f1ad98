"""The small transactional key-value contract, and the ClusterStore built on it."""
