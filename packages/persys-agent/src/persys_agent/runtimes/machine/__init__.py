"""What virtual machines and microVMs share: images of disks, addresses of NICs, their consoles."""
