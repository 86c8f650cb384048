"""Stand-ins for the hardware and the kernel of a GPU host: see README.md."""
