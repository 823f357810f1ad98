"""The ObjectStore port on a Ceph RADOS gateway."""
