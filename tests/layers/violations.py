"""How a check of this folder ends."""


def conclude(found, fine):
    """Prints the violations, one per line, or the text `fine` if there are none; returns the exit status."""
    found = list(found)
    print("\n".join(found) if found else fine)
    return 1 if found else 0
