"""Real systemd hosts on one machine, for tests and for the demo: `python3 -m testhosts --help`.

A host is a Debian root file system on an overlay, booted by systemd-nspawn in namespaces and cgroups of its
own, with sshd on a bridge that leads nowhere else. Its content comes from read-only layers; what it writes
ends with it.
"""
