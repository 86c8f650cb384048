"""smg, with the admin key that systemd hands over as credential `admin-key`: on a command line every user would see it."""

import os
import sys
from pathlib import Path

from smg.cli import main

credential = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent"), "admin-key")
key = credential.read_text().strip() if credential.exists() else None
main([*sys.argv[1:], *(["--control-plane-api-keys", f"deploy:deploy:admin:{key}"] if key else [])])
