"""Virtual machines on libvirt."""
