"""Part of a stand-in for SGLang."""
