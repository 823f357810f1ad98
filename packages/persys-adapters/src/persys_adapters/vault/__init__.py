"""The Secrets and Certificates ports on Vault or OpenBao."""
