"""A small signed apt repository with the package names, versions and dependencies of NVIDIA's, and what a test host needs of Debian's."""
