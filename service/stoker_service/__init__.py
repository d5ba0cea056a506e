"""The service round Stoker's loader; so far it holds the command line."""
