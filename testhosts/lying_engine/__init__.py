"""A stand-in for SGLang that starts in a second, says what a release says, and lies where a scenario tells it to."""
