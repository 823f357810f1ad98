"""The ServiceRegistry port on the records that CoreDNS reads from etcd."""
