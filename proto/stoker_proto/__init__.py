"""The control protocol between dispatcher, workers and clients; empty until the service is built."""
