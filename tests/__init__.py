"""The tests. A package only so that its modules of support can be imported."""
