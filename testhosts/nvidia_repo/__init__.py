"""A small signed apt repository with NVIDIA's package names, versions and dependencies, and what a host needs of Debian's."""
