"""The command groups of `tidegate`: thin shells around functions of the packages; heavy imports inside the handlers."""
