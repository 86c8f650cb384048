"""A small signed apt repository with the names, versions and relations of NVIDIA's packages, and of some of Debian's."""
