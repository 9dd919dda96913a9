"""Topics: create, describe, alter, wait for, and ask for their offsets."""
