"""The service round Stoker's loader: dispatcher, workers, the client inside a trainer, and the command line."""
