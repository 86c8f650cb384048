"""The real SGLang on a CPU: closed locks of what it needs, stand-ins for what has no CPU build, tiny models."""
