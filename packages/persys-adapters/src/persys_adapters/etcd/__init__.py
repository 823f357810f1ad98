"""The cluster ports on etcd."""
