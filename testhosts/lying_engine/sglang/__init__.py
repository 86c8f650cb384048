"""A stand-in for SGLang: it reads the arguments of a release, says its lines and serves its API, and loads no model.

What it says honestly is what the real engine said in a recorded start. Where /etc/lying-engine/<port>.json is, it lies
as that file tells it to: see mouth.py.
"""
