"""Set-up of production: a first settings file from answers or from another program's file, and the next steps after it."""
